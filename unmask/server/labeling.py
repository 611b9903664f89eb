"""The page of `unmask label` at `/`, and its API below `/studio/label`: one text at a time, and one request per label.

A response means that the label is saved. The page sends the id of the file with each label, so a page that is still open after
the server was started with another file cannot label its texts.
"""

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, FastAPI, Query, Response
from pydantic import Field

from unmask.labels.label_file import FileChanged, LabelFile
from unmask.server.error_handlers import register_error_handlers
from unmask.server.errors import RequestError
from unmask.server.json_io import JSONResponse, StrictModel, StrictRoute
from unmask.server.limits import DEFAULT, LOOPBACK
from unmask.server.metrics import Metrics
from unmask.server.middleware import RequestMiddleware
from unmask.server.studio.page_files import add_page


class LabelRequest(StrictModel):
    id: str
    index: int = Field(ge=0)
    label: str  # "": remove the label


def make_label_app(
    file: LabelFile,
    *,
    commands: dict[str, str],
    api_key: str | None = None,
    allowed_hosts: Sequence[str] | None = LOOPBACK,
) -> RequestMiddleware:
    """Return an ASGI app. `commands`: `resume` starts this server again, `next` continues with the labeled file; the page shows them."""
    app = FastAPI(title="unmask label", docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    register_error_handlers(app)
    router = APIRouter(route_class=StrictRoute)
    add_page(router, "label.html")
    _add_labels(router, file, commands)
    app.include_router(router)
    return RequestMiddleware(app, DEFAULT, Metrics(), allowed_hosts=allowed_hosts, api_key=api_key, cors_origins=())


def _add_labels(router: APIRouter, file: LabelFile, commands: dict[str, str]) -> None:
    @router.get("/studio/label/session")
    def session() -> Response:
        return JSONResponse({"id": file.id, "file": _valid(file.path.name), "labels": file.labels, **commands})

    @router.get("/studio/label/text")
    def text(index: Annotated[int | None, Query(ge=0)] = None) -> Response:
        """Return a text, or without an index the first one that has no label."""
        return JSONResponse(_view(file, file.next_unlabeled() if index is None else index))

    @router.post("/studio/label/save")
    def save(q: LabelRequest) -> Response:
        """Save a label, then return the next text without a label; after a label is removed, the same text."""
        if q.id != file.id or q.index >= len(file):
            message = f"this page shows another file than the server, which has {_valid(file.path.name)}"
            raise RequestError(409, "changed", message, hint="reload the page")
        if q.label and q.label not in file.labels:
            raise RequestError(422, "invalid", f"unknown label {q.label!r:.80}", expected=", ".join(file.labels))
        try:
            file.set_label(q.index, q.label)
        except FileChanged as error:
            raise RequestError(409, "changed", error.message, hint=f"{error.hint} ({commands['resume']})") from None
        return JSONResponse(_view(file, file.next_unlabeled(q.index + 1) if q.label else q.index))


def _view(file: LabelFile, index: int) -> dict[str, Any]:
    """Return a text with its label, and the progress. An index after the last text has no text: the end of the page."""
    index = min(index, len(file))
    view = {"index": index, "total": len(file), "labeled": file.num_labeled, "text": None}
    if index == len(file):
        return view | {"unlabeled": file.next_unlabeled()}
    suggested = file.suggested[index] if file.suggested[index] in file.labels else ""
    return view | {
        "text": _valid(file.texts[index]),
        "label": _valid(file.current[index]),
        "suggested": suggested,
        "probability": file.probabilities[index] if suggested else None,
    }


def _valid(text: str) -> str:
    """Replace lone surrogates, which JSON cannot hold."""
    return text.encode("utf-8", "replace").decode()
