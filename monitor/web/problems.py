"""Answers errors of the API as problem documents (RFC 9457), on and before every route.

``error`` repeats ``detail`` for clients of earlier versions.
"""

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from pydantic import BaseModel, TypeAdapter
from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.routing import Match

from monitor.display_text import closest_name, did_you_mean
from monitor.web.answers import PROBLEM_JSON, Problem, declare_problem
from monitor.web.deps import Access, BusyError
from pipeline.errors import (
    ConfigError,
    HeldError,
    ProofError,
    UnknownNameError,
    UnreachableError,
)

COMMON = {
    400: "A parameter, a key of the body or a value is invalid",
    401: "The token of http.auth is missing or wrong",
    403: "The Host or the Origin is not known to this service",
    413: "The body is too large",
    500: "A defect of Sluice; its log has the traceback",
    503: "A source, the lake or the store is unavailable",
}
"""Errors that every operation may answer, in addition to those that it declares."""
TOKEN = {
    "type": "http",
    "scheme": "bearer",
    "description": "The token of `http.auth`. Where it is set, every POST and DELETE needs it, and"
    " so does reading where other machines reach the service.",
}
UNDECLARED = ("HTTPValidationError", "ValidationError")  # FastAPI's models; 400 is sent instead
RETRY_SECONDS = 10
UNREAD = "There was an error parsing the body"  # FastAPI's description of it
BODY = "send a JSON object with content-type application/json"
TRACE_PAGE = "/trace"
DEFECT = "internal error; see the traceback in the service's log"


def refuses_head(path: str) -> bool:
    """Tell whether GET *path* may store a certificate or commit a heartbeat; HEAD must not."""
    traces = path == TRACE_PAGE or (path.startswith("/v1/tables/") and path.endswith("/trace"))
    return traces or path == "/v1/gate" or path.startswith("/v1/readiness/")


def traces_row(path: str, query: bytes) -> bool:
    """Tell whether a request traces a row on the page for people; without a key it does not."""
    return path == TRACE_PAGE and "key" in QueryParams(query)


def build_problem(status: int, why: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """Build the problem document that says *why* a request was refused or failed."""
    body: Problem = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": why,
        "error": why,
    }
    return JSONResponse(body, status, headers, PROBLEM_JSON)


class Api(FastAPI):
    """An application whose errors are problem documents, in its answers and its OpenAPI document.

    Its routes are passed at once, because the document is generated from them on the first request.
    """

    def __init__(self, access: Access | None = None, **rest: Any) -> None:
        super().__init__(redirect_slashes=False, **rest)  # an unknown path is 400
        self._access = access or Access()
        self.exception_handler(ConfigError)(_bad_request)
        self.exception_handler(UnknownNameError)(_unknown)
        self.exception_handler(RequestValidationError)(_bad_parameters)
        for error in (UnreachableError, ProofError, HeldError):
            self.exception_handler(error)(_unreachable)
        self.exception_handler(BusyError)(_full)
        self.exception_handler(HTTPException)(_refused)
        self.exception_handler(Exception)(_failed)

    def openapi(self) -> dict[str, Any]:
        """Return the document, with exactly the errors that each operation may answer."""
        made = self.openapi_schema is not None
        document = super().openapi()
        if not made:
            _declare(document, self._access)
        return document


def _declare(document: dict[str, Any], access: Access) -> None:
    parts = document.setdefault("components", {})
    parts["securitySchemes"] = {"token": TOKEN}
    schemas = parts.setdefault("schemas", {})
    for name in UNDECLARED:
        schemas.pop(name, None)
    schemas["Problem"] = TypeAdapter(Problem).json_schema()
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            needed = access.unauthorized(method.upper(), path, "")
            operation["security"] = [{"token": []}] if needed else [{}, {"token": []}]
            answers = operation["responses"]
            answers.pop("422", None)
            for status, text in COMMON.items():
                declared = declare_problem(text)
                known = answers.setdefault(str(status), declared)
                known["content"] = {**known.get("content", {}), **declared["content"]}


async def _bad_request(_: Request, error: Exception) -> JSONResponse:
    return build_problem(400, str(error))


async def _unknown(_: Request, error: Exception) -> JSONResponse:
    return build_problem(404, str(error))


async def _bad_parameters(request: Request, error: Exception) -> JSONResponse:
    faults: list[Any] = list(error.errors()) if isinstance(error, RequestValidationError) else []
    route = request.scope.get("route")
    return build_problem(400, "; ".join(_fault(one, route) for one in faults))


def _fault(one: Any, route: object) -> str:
    if one["type"] == "extra_forbidden":
        return unknown_key(route, one["loc"])
    loc, kind = one["loc"], one["type"]
    if kind == "missing" and loc[1:]:
        return _missing(str(loc[0]), _parameter(loc))
    if kind == "json_invalid":
        why = f"{one['ctx']['error']} at character {loc[-1]}"
        return f"the request's body is not JSON: {why}; {BODY}"
    if loc == ("body",):
        return f"the request's body is not a JSON object; {BODY}"
    return f"{_parameter(loc)}: {_WRONG.get(kind) or _must(one['msg'])}"


def _missing(where: str, name: str) -> str:
    if where == "body":
        return f"key {name!r} is missing in the request's body; add it"
    return f"parameter {name!r} is missing; add {name}=... to the query"


def shown_path(template: str) -> str:
    """Return a route's path in readable form: ``/v1/tables/TABLE/states``."""
    return re.sub(r"\{([^:}]+)[^}]*\}", lambda found: found[1].strip("_").upper(), template)


def unknown_key(route: object, loc: tuple[int | str, ...]) -> str:
    """Describe a key of a request's body at *loc* that *route* does not declare."""
    name, body = str(loc[-1]), getattr(route, "body_field", None)
    model = None if body is None else body.field_info.annotation
    if len(loc) != 2 or not isinstance(model, type) or not issubclass(model, BaseModel):
        return f"unknown key {name!r} in the request's body"
    return f"unknown key {name!r} in the request's body, {did_you_mean(name, model.model_fields)}"


def _parameter(loc: tuple[int | str, ...]) -> str:
    """Return the subject of a fault: a parameter, a key of the body, or ``body``."""
    return ".".join(map(str, loc[1:] or loc)) or "request"


_WRONG = {
    "timezone_aware": "must have its offset from UTC, such as 2026-03-29T12:00:00Z",
    "string_too_short": "must not be empty; write at least one character",
}


def _must(said: str) -> str:
    said = said.removeprefix("Value error, ").replace(" after validation", "")
    return re.sub(r"^(Input|\w+) should (be|have|match)", r"must \2", said)


async def _refused(request: Request, error: Exception) -> JSONResponse:
    """Answer a request that a route or the router refuses; 400 for an unknown path.

    A sensor reads 404 as "not yet", and would wait for a mistyped path.
    """
    if not isinstance(error, HTTPException):
        return build_problem(500, DEFECT)
    if error.status_code == 404 and "endpoint" not in request.scope:
        paths = {route.path for route in request.app.routes if isinstance(route, APIRoute)}
        close = closest_name(request.url.path, map(shown_path, paths))
        fix = f"the nearest is {close}" if close else "see /docs"
        return build_problem(400, f"no path {request.url.path}; {fix}")
    if error.status_code == 405:
        allowed = ", ".join(_methods(request))
        why = f"{request.url.path} takes no {request.method}; use {allowed}"
        return build_problem(405, why, {"Allow": allowed})
    if error.status_code == 400 and str(error.detail) == UNREAD:
        return build_problem(400, f"the request's body is not JSON in UTF-8; {BODY}")
    return build_problem(error.status_code, str(error.detail), error.headers)


def _methods(request: Request) -> list[str]:
    """Return the methods that exist for the path of the request."""
    found = set[str]()
    for route in request.app.routes:
        if route.matches(request.scope)[0] is not Match.NONE:
            found |= route.methods or set()
    head = "GET" in found and not refuses_head(request.url.path)
    return sorted(found | ({"HEAD"} if head else set()))


async def _unreachable(_: Request, error: Exception) -> JSONResponse:
    return build_problem(503, str(error))


async def _full(_: Request, error: Exception) -> JSONResponse:
    return build_problem(503, str(error), {"Retry-After": str(RETRY_SECONDS)})


async def _failed(_: Request, __: Exception) -> JSONResponse:
    return build_problem(500, DEFECT)
