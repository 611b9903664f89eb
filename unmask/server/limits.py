"""Limits: how much the server takes. Everything that a stranger may send is bounded by one of these."""

from dataclasses import dataclass, fields

from unmask.errors import UserError

LOOPBACK = ("127.0.0.1", "localhost", "::1")  # names under which a page of this machine may call the server


@dataclass(frozen=True)
class Limits:
    """
    >>> Limits(inputs=8).inputs
    8
    >>> Limits(inputs=0)
    Traceback (most recent call last):
    unmask.errors.UserError: inputs 0
      expected: above 0
    """

    body: int = 2 << 20  # bytes of a request, as sent and after decompression
    held: int = 64 << 20  # bytes of all requests at a time: above, new ones wait outside (503)
    inputs: int = 1024  # texts or records of a request
    tokens: int = 1 << 18  # tokens that the model reads for a request; a score reads its text once per token
    queue: int = 1 << 20  # tokens that wait for the model: above, new requests are refused (429)
    response: int = 32 << 20  # bytes of a response, estimated before it is computed (413)
    responses: int = (
        128 << 20
    )  # bytes of all responses that are computed or being sent: above, new ones are refused (503)
    batch: int = 1 << 14  # tokens of one call of the model
    wait: float = 120.0  # seconds from a request's body until its response begins (503)
    slow: float = (
        20.0  # seconds that a client may take to send its head, or its body, or to read the next part of a response
    )

    def __post_init__(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) <= 0:
                raise UserError(f"{field.name} {getattr(self, field.name)}", expected="above 0")


DEFAULT = Limits()
