"""/docs: our own page that shows openapi.json, because the pages of FastAPI load their scripts from a CDN."""

from pathlib import Path

from fastapi import APIRouter
from fastapi.responses import FileResponse

PAGE = Path(__file__).parent / "page"


def routes() -> APIRouter:
    router = APIRouter(include_in_schema=False)

    def add(path: str, file: str, media_type: str) -> None:
        @router.get(path)
        async def page() -> FileResponse:
            return FileResponse(PAGE / file, media_type=f"{media_type}; charset=utf-8")

    add("/docs", "docs.html", "text/html")
    add("/docs/docs.css", "docs.css", "text/css")
    add("/docs/docs.js", "docs.js", "text/javascript")
    return router
