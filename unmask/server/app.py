"""make_app: the ASGI app with all routes, the batcher behind them, and the middleware around them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import PlainTextResponse

from unmask import __version__
from unmask.server import docs
from unmask.server.batching import Batcher
from unmask.server.error_handlers import register_error_handlers
from unmask.server.json_io import JSONResponse
from unmask.server.limits import DEFAULT, LOOPBACK, Limits
from unmask.server.metrics import Metrics
from unmask.server.middleware import RequestMiddleware
from unmask.server.routes import huggingface, openai, tei
from unmask.server.studio import routes as studio

if TYPE_CHECKING:
    from unmask.inference.predictor import Predictor


def make_app(
    models: Mapping[str, "Predictor"],
    *,
    runs: Path | None = None,
    limits: Limits = DEFAULT,
    api_key: str | None = None,
    cors_origins: Sequence[str] = (),
    allowed_hosts: Sequence[str] | None = LOOPBACK,
) -> RequestMiddleware:
    """Return an ASGI app. The studio lists the runs in the folder `runs`; `allowed_hosts` = None accepts any Host header."""
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
    register_error_handlers(app)
    middleware = RequestMiddleware(
        app, limits, metrics, allowed_hosts=allowed_hosts, api_key=api_key, cors_origins=cors_origins
    )

    @app.get("/health", tags=["server"], summary="Health check.", operation_id="health")
    async def health(request: Request) -> Response:
        status: dict[str, Any] = {"status": "draining" if middleware.draining else "ok"}
        if middleware.is_authorized(dict(request.headers.raw)):
            status["models"] = list(models)
        return JSONResponse(status, status_code=503 if middleware.draining else 200)

    @app.get(
        "/metrics",
        tags=["server"],
        summary="Prometheus metrics.",
        operation_id="metrics",
        response_class=PlainTextResponse,
    )
    async def prometheus() -> Response:
        return PlainTextResponse(metrics.text(), media_type="text/plain; version=0.0.4")

    for routes in (huggingface.routes, openai.routes, tei.routes):
        app.include_router(routes(models, batcher.submit))
    app.include_router(docs.routes())
    app.include_router(studio.routes(models, runs, batcher.submit), include_in_schema=False)
    return middleware
