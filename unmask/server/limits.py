"""Limits of the server. Every size and duration that a client controls is bounded by one of these."""

from dataclasses import dataclass, fields

from unmask.errors import UserError

LOOPBACK = ("127.0.0.1", "localhost", "::1")  # Host headers of requests from this machine


@dataclass(frozen=True)
class Limits:
    """
    >>> Limits(max_inputs=8).max_inputs
    8
    >>> Limits(max_inputs=0)
    Traceback (most recent call last):
    unmask.errors.UserError: max_inputs is 0
      expected: above 0
    """

    max_body_bytes: int = 2 << 20  # maximum size of a request, as sent and after decompression
    max_buffered_bytes: int = 64 << 20  # maximum of all request bodies together; the server answers 503 above it
    max_inputs: int = 1024  # texts or records of a request
    max_request_tokens: int = 1 << 18  # maximum that the model reads for a request; scoring reads a text once per token
    max_queue_tokens: int = 1 << 20  # queued or running; beyond it: 429
    max_response_bytes: int = (
        32 << 20
    )  # maximum of a response, estimated before it is computed; the server answers 413 above it
    max_total_response_bytes: int = (
        128 << 20
    )  # maximum of all responses that are being computed or sent; the server answers 503 above it
    max_batch_tokens: int = 1 << 14  # of one call of the model
    request_timeout: float = 120.0  # seconds from the end of a request's body to the start of its response (503)
    # Seconds that a client may take to send the headers, to send the body, or to read the next chunk of a response.
    read_timeout: float = 20.0

    def __post_init__(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) <= 0:
                raise UserError(f"{field.name} is {getattr(self, field.name)}", expected="above 0")


DEFAULT = Limits()
