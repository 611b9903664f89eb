"""/docs: a page of our own that shows openapi.json, since the usual ones load their scripts from elsewhere."""

from pathlib import Path

from fastapi import APIRouter
from fastapi.responses import FileResponse

HERE = Path(__file__).parent / "page"


def routes() -> APIRouter:
    router = APIRouter(include_in_schema=False)

    def add(path: str, file: str, kind: str) -> None:
        @router.get(path)
        async def page() -> FileResponse:
            return FileResponse(HERE / file, media_type=kind)

    add("/docs", "docs.html", "text/html; charset=utf-8")
    add("/docs/docs.css", "docs.css", "text/css; charset=utf-8")
    add("/docs/docs.js", "docs.js", "text/javascript; charset=utf-8")
    return router
