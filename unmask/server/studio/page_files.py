"""The files of the web pages: the studio (`index.html`) and the page of `unmask label` (`label.html`), which share styles and scripts."""

from pathlib import Path

from fastapi import APIRouter, Response

PAGE = Path(__file__).parent / "page"
MEDIA_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


def add_page(router: APIRouter, html: str) -> None:
    """Add the route of a page, and those of the files that it loads."""

    @router.get("/")
    def index() -> Response:
        return _file(html)

    @router.get("/studio/page/{name}")
    def page_file(name: str) -> Response:
        return _file(name)


def _file(name: str) -> Response:
    path = {path.name: path for path in PAGE.iterdir()}.get(name)
    if path is None:
        return Response(status_code=404)
    media_type = MEDIA_TYPES.get(path.suffix, "application/octet-stream")
    return Response(path.read_bytes(), media_type=media_type, headers={"Cache-Control": "no-cache"})
