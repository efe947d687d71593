"""Checks rules that hold for each HTTP request on every route.

A parameter that a route does not declare is refused: `cutt=2027-01-01` would otherwise be ignored,
and the answer would be about another cut. A body beyond a limit is refused before it is read. HEAD
is answered as GET without the body, except for the gate, because READY is stored, and for traces,
because they commit heartbeats. A page may load nothing from other servers.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import get_origin

from fastapi import HTTPException
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from monitor.display_text import did_you_mean
from monitor.web.problems import build_problem, refuses_head, shown_path

LARGEST_BODY = 2**20
LARGEST_BODIES = {"/v1/resubmissions": 32 * 2**20}
"""Bytes of a request's body, by path; a corrected message has at most 16 Mi characters."""

PAGE_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src 'self' data:; form-action 'self';"
    " base-uri 'none'; frame-ancestors 'none'"
)


@dataclass(frozen=True, slots=True)
class RequestRules:
    """Answers requests that break a rule; passes all others to ``app``."""

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (
            scope["type"] == "http"
            and scope["method"] == "HEAD"
            and not refuses_head(scope["path"])
        ):
            scope = {**scope, "method": "GET"}  # the server sends no body for HEAD
        if scope["type"] == "http" and scope["query_string"]:
            route = _route(scope, scope["app"].routes)
            fault = "" if route is None else parameter_fault(route, scope["query_string"])
            if fault:
                await build_problem(400, fault)(scope, receive, send)
                return
        if scope["type"] == "http":
            send = _confined(send)
            most = LARGEST_BODIES.get(scope["path"], LARGEST_BODY)
            length = Headers(scope=scope).get("content-length", "0")
            if length.isdecimal() and int(length) > most:
                answer = build_problem(413, _too_large(most), {"Connection": "close"})
                await answer(scope, receive, send)
                return
            receive = _limited(receive, most)
        await self.app(scope, receive, send)


def _confined(send: Send) -> Send:
    """Wrap *send* so that pages among the answers may load nothing, from this server or others."""

    async def send_some(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers.setdefault("X-Content-Type-Options", "nosniff")
            if headers.get("content-type", "").startswith("text/html"):
                headers.setdefault("Content-Security-Policy", PAGE_POLICY)
        await send(message)

    return send_some


def _too_large(most: int) -> str:
    return f"the request's body is larger than {most} bytes; send less"


def _limited(receive: Receive, most: int) -> Receive:
    """Wrap *receive* to fail with 413 after *most* bytes: a chunked body has no length."""
    taken = 0

    async def receive_some() -> Message:
        nonlocal taken
        message = await receive()
        taken += len(message.get("body", b""))
        if taken > most:
            raise HTTPException(413, _too_large(most), {"Connection": "close"})
        return message

    return receive_some


def parameter_fault(route: BaseRoute, query: bytes) -> str:
    """Return the fault of the first parameter of *query* that *route* does not accept."""
    known = dict(_parameters(route.dependant)) if isinstance(route, APIRoute) else {}
    path = shown_path(getattr(route, "path", ""))
    given = Counter(name for name, _ in QueryParams(query).multi_items())
    for name, count in given.items():
        if name not in known:
            named = did_you_mean(name, known) if known else "it takes none"
            return f"unknown parameter {name!r} at {path}, {named}"
        if count > 1 and not known[name]:
            return f"parameter {name!r} occurs {count} times at {path}; send it once"
    return ""


def _route(scope: Scope, routes: Iterable[BaseRoute]) -> BaseRoute | None:
    """Return the route that answers; None if the path or the method is unknown."""
    return next((one for one in routes if one.matches(scope)[0] is Match.FULL), None)


def _parameters(dependant: Dependant) -> Iterator[tuple[str, bool]]:
    """Yield each declared parameter, and whether it may occur several times."""
    for field in dependant.query_params:
        yield field.alias, get_origin(field.field_info.annotation) is list
    for inner in dependant.dependencies:
        yield from _parameters(inner)
