"""What Prometheus reads at /metrics. A registry per app, so that two apps in one process do not add up."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

SECONDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
QUESTIONS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
TOKENS = (16, 64, 256, 1024, 2048, 4096, 8192, 16384, 65536, 262144)


class Metrics:
    """
    >>> m = Metrics()
    >>> m.waiting.set(3)
    >>> b"unmask_waiting_tokens 3.0" in m.text()
    True
    """

    def __init__(self) -> None:
        self.registry = r = CollectorRegistry()
        self.requests = Counter("unmask_requests", "Requests answered.", ["route", "method", "status"], registry=r)
        self.errors = Counter("unmask_errors", "Requests refused or failed.", ["code"], registry=r)
        self.seconds = Histogram(
            "unmask_request_seconds", "From the head of a request to the end of its answer.", ["route"], buckets=SECONDS, registry=r
        )  # fmt: skip
        self.active = Gauge("unmask_active_requests", "Requests being answered.", registry=r)
        self.waiting = Gauge("unmask_waiting_tokens", "Tokens that wait for a model, or that it reads.", registry=r)
        self.questions = Histogram(
            "unmask_batch_questions", "Questions answered by one call.", ["model", "method"], buckets=QUESTIONS, registry=r
        )  # fmt: skip
        self.tokens = Histogram(
            "unmask_batch_tokens", "Tokens of one call.", ["model", "method"], buckets=TOKENS, registry=r
        )
        self.computing = Histogram(
            "unmask_batch_seconds", "Time of one call.", ["model", "method"], buckets=SECONDS, registry=r
        )

    def text(self) -> bytes:
        return generate_latest(self.registry)
