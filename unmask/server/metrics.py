"""Prometheus metrics for /metrics. Each app has its own registry, so that two apps in one process do not add up."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

SECONDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
INPUTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
TOKENS = (16, 64, 256, 1024, 2048, 4096, 8192, 16384, 65536, 262144)


class Metrics:
    """
    >>> m = Metrics()
    >>> m.queue_tokens.set(3)
    >>> b"unmask_queue_tokens 3.0" in m.text()
    True
    """

    def __init__(self) -> None:
        self.registry = r = CollectorRegistry()
        batch = ["model", "method"]
        self.requests = Counter("unmask_requests", "Requests.", ["route", "method", "status"], registry=r)
        self.errors = Counter("unmask_errors", "Requests that failed, by error code.", ["code"], registry=r)
        self.request_seconds = Histogram(
            "unmask_request_seconds", "Time from request to response.", ["route"], buckets=SECONDS, registry=r
        )
        self.active = Gauge("unmask_active_requests", "Requests in progress.", registry=r)
        self.queue_tokens = Gauge("unmask_queue_tokens", "Tokens that are queued or being processed.", registry=r)
        self.batch_size = Histogram("unmask_batch_size", "Inputs per batch.", batch, buckets=INPUTS, registry=r)
        self.batch_tokens = Histogram("unmask_batch_tokens", "Tokens per batch.", batch, buckets=TOKENS, registry=r)
        self.batch_seconds = Histogram("unmask_batch_seconds", "Time per batch.", batch, buckets=SECONDS, registry=r)

    def text(self) -> bytes:
        return generate_latest(self.registry)
