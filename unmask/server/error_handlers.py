"""Error handlers of the apps: every exception becomes the JSON body of `errors.py`."""

from collections.abc import Callable
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.exceptions import HTTPException

from unmask.errors import UserError
from unmask.server.errors import RequestError, from_user_error, from_validation, internal_error


def register_error_handlers(app: FastAPI) -> None:
    """Answer every exception with the JSON error body of `errors.py`."""

    def register(kind: type[Exception], convert: Callable[[Any, Request], RequestError]) -> None:
        async def respond(request: Request, error: Exception) -> Response:
            converted = convert(error, request)
            request.scope["unmask.error_code"] = converted.code
            return Response(converted.body(), converted.status, converted.response_headers())

        app.add_exception_handler(kind, respond)

    register(RequestError, lambda error, _: error)
    register(UserError, lambda error, _: from_user_error(error))
    register(RequestValidationError, lambda error, _: from_validation(error.errors()))
    register(ValidationError, lambda error, _: from_validation(error.errors()))
    register(HTTPException, _from_http)
    # Starlette raises the exception again after this response, and the middleware logs it.
    register(Exception, lambda *_: internal_error())


def _from_http(error: HTTPException, request: Request) -> RequestError:
    if error.status_code == 404:
        return RequestError(
            404, "not_found", f"not found: {request.url.path[:200]}", hint="see GET /docs for all routes"
        )
    headers = dict(error.headers or {})
    return RequestError(error.status_code, str(error.status_code), str(error.detail), headers=headers)
