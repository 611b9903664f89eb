"""make_app: the models, the forms of several clients, and the gate around them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import PlainTextResponse
from pydantic import ValidationError
from starlette.exceptions import HTTPException

from unmask import __version__
from unmask.errors import UserError
from unmask.server import docs
from unmask.server.batching import Batcher
from unmask.server.errors import Refused, refusal
from unmask.server.gate import Gate
from unmask.server.json_io import Answer
from unmask.server.limits import DEFAULT, LOOPBACK, Limits
from unmask.server.metrics import Metrics
from unmask.server.routes import huggingface, openai, tei
from unmask.server.studio import routes as studio

if TYPE_CHECKING:
    from unmask.inference.predictor import Predictor


def make_app(
    models: Mapping[str, "Predictor"],
    *,
    runs: Path | None = None,
    limits: Limits = DEFAULT,
    key: str | None = None,
    cors: Sequence[str] = (),
    hosts: Sequence[str] | None = LOOPBACK,
) -> Gate:
    """An ASGI app. `runs`: a folder of runs that the studio shows; `hosts`: names that a request may call it by, None = any."""
    metrics = Metrics()
    batcher = Batcher(models, limits, metrics)
    app = FastAPI(
        title="unmask",
        version=__version__,
        description="Masked language models over HTTP.",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    handle_errors(app)
    gate = Gate(app, limits, metrics, hosts=hosts, key=key, cors=cors)

    @app.get("/health", tags=["server"], summary="Whether it answers.", operation_id="health")
    async def health(request: Request) -> Response:
        said: dict[str, Any] = {"status": "draining" if gate.draining else "ok"}
        if gate.knows_key(dict(request.headers.raw)):
            said["models"] = list(models)
        return Answer(said, status_code=503 if gate.draining else 200)

    @app.get(
        "/metrics",
        tags=["server"],
        summary="Figures for Prometheus.",
        operation_id="metrics",
        response_class=PlainTextResponse,
    )
    async def figures() -> Response:
        return PlainTextResponse(metrics.text(), media_type="text/plain; version=0.0.4")

    app.include_router(huggingface.routes(models, batcher.ask))
    app.include_router(openai.routes(models, batcher.ask))
    app.include_router(tei.routes(models, batcher.ask))
    app.include_router(docs.routes())
    app.include_router(studio.routes(models, runs, batcher.ask), include_in_schema=False)
    return gate


def handle_errors(app: FastAPI) -> None:
    """Whatever is raised becomes the one form of error."""

    def answer(request: Request, refused: Refused) -> Response:
        request.scope["unmask.refused"] = refused.code
        return Response(refused.body(), refused.status, refused.all_headers())

    @app.exception_handler(Refused)
    async def _refused(request: Request, error: Refused) -> Response:
        return answer(request, error)

    @app.exception_handler(UserError)
    async def _user(request: Request, error: UserError) -> Response:
        return answer(request, refusal(error))

    @app.exception_handler(RequestValidationError)
    async def _invalid(request: Request, error: RequestValidationError) -> Response:
        return answer(request, explain(error.errors()))

    @app.exception_handler(ValidationError)
    async def _invalid_own(request: Request, error: ValidationError) -> Response:
        return answer(request, explain(error.errors()))

    @app.exception_handler(Exception)
    async def _own_fault(request: Request, error: Exception) -> Response:  # raised again for the gate, which logs it
        return answer(request, Refused(500, "internal", "the server failed; its log says where"))

    @app.exception_handler(HTTPException)
    async def _http(request: Request, error: HTTPException) -> Response:
        missing = Refused(
            404, "not_found", f"nothing is at {request.url.path[:200]}", hint="GET /docs lists what there is"
        )
        other = Refused(error.status_code, str(error.status_code), str(error.detail), headers=dict(error.headers or {}))
        return answer(request, missing if error.status_code == 404 else other)


def explain(errors: Sequence[Any]) -> Refused:
    """What pydantic found, in a line: places and reasons, never the input itself.

    >>> explain([{"loc": ("body", "parameters", "topk"), "type": "extra_forbidden", "msg": ""}]).message
    'parameters.topk: unknown'
    """
    said = []
    for error in errors:
        place = ".".join(str(part) for part in error["loc"] if part != "body") or "body"
        said.append(f"{place}: {'unknown' if error['type'] == 'extra_forbidden' else error['msg'].lower()}")
    said = list(dict.fromkeys(said))
    more = f" (and {len(said) - 4} more)" if len(said) > 4 else ""
    return Refused(422, "invalid", "; ".join(said[:4])[:600] + more, hint="GET /docs says what it takes")
