"""Rules that each HTTP request keeps, whatever its route is.

A parameter that a route does not declare is refused: `cutt=2027-01-01` would otherwise be ignored,
and the answer would be about another cut.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import get_origin

from fastapi.dependencies.models import Dependant
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.datastructures import QueryParams
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Receive, Scope, Send

from monitor.nearest import nearest


@dataclass(frozen=True, slots=True)
class RequestRules:
    """Answers what breaks a rule; passes everything else to ``app``."""

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check the parameters of one request."""
        if scope["type"] == "http" and scope["query_string"]:
            route = _route(scope, scope["app"].routes)
            fault = "" if route is None else parameter_fault(route, scope["query_string"])
            if fault:
                await JSONResponse({"error": fault}, 400)(scope, receive, send)
                return
        await self.app(scope, receive, send)


def parameter_fault(route: BaseRoute, query: bytes) -> str:
    """The first parameter of *query* that *route* does not know, or takes once and has twice."""
    known = dict(_parameters(route.dependant)) if isinstance(route, APIRoute) else {}
    path = getattr(route, "path", "")
    given = Counter(name for name, _ in QueryParams(query).multi_items())
    for name, count in given.items():
        if name not in known:
            named = nearest(name, known) if known else "it takes none"
            return f"unknown parameter {name!r} at {path}, {named}"
        if count > 1 and not known[name]:
            return f"parameter {name!r} is given {count} times at {path}; give it once"
    return ""


def unknown_key(route: object, loc: tuple[int | str, ...]) -> str:
    """What is wrong with a key of a request's body at *loc* that *route* does not declare."""
    name, body = str(loc[-1]), getattr(route, "body_field", None)
    model = None if body is None else body.field_info.annotation
    if len(loc) != 2 or not isinstance(model, type) or not issubclass(model, BaseModel):
        return f"unknown key {name!r} in the request's body"
    return f"unknown key {name!r} in the request's body, {nearest(name, model.model_fields)}"


def _route(scope: Scope, routes: Iterable[BaseRoute]) -> BaseRoute | None:
    """The route that answers; None where the path or the method is unknown."""
    return next((one for one in routes if one.matches(scope)[0] is Match.FULL), None)


def _parameters(dependant: Dependant) -> Iterator[tuple[str, bool]]:
    """Each declared parameter, and whether it may be given several times."""
    for field in dependant.query_params:
        yield field.alias, get_origin(field.field_info.annotation) is list
    for inner in dependant.dependencies:
        yield from _parameters(inner)
