"""The HTTP face: gate and readiness for programs, metrics for Prometheus, a page for people.

Answers of the gate: 200 ready, 404 not yet or unknown, 409 blocked or revoked, 400 no such table
or cut.  A path that no route has is 400, too.  Nothing is asked of a source or the lake here but
by the gate and for waivers, within their samples' age.
"""

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from difflib import get_close_matches
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, FastAPI, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from fastapi.routing import APIRoute
from pydantic import BeforeValidator
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from monitor.board import Board
from monitor.gate import CLOSED, Decision
from monitor.web import render
from monitor.web.archives import ARCHIVE_ROUTES
from monitor.web.arrivals import ARRIVAL_ROUTES, late_arrivals
from monitor.web.bootstraps import REREAD_ROUTES
from monitor.web.bounds import seconds
from monitor.web.first_lines import first_lines
from monitor.web.history_api import HISTORY_ROUTES
from monitor.web.lineage import LINEAGE_ROUTES
from monitor.web.metrics import CONTENT_TYPE
from monitor.web.parts import ApiParts, Parts, Room
from monitor.web.pauses import PAUSE_ROUTES
from monitor.web.quarantine import QUARANTINE_ROUTES
from monitor.web.repairs import REPAIR_ROUTES
from monitor.web.request_rules import RequestRules, unknown_key
from monitor.web.runbooks import RUNBOOK_ROUTES, reference_page
from monitor.web.shown_tables import TableQuestion
from monitor.web.status_page import status_page
from monitor.web.trusted import TOKEN_NEEDED, Access, refusal
from pipeline.clocks import over
from pipeline.errors import ConfigError, HeldError, ProofError, UnreachableError
from pipeline.model import Stage

LONGEST_WAIT = 300.0
GATE_HEADER = "Sluice-Gate"

Names = Annotated[list[str], Query(min_length=1, max_length=1000)]
Wait = Annotated[float, BeforeValidator(seconds), Query(ge=0, le=LONGEST_WAIT)]
GATE_ROUTES, SERVICE_ROUTES = APIRouter(prefix="/v1"), APIRouter()


def application(parts: ApiParts) -> FastAPI:
    """The whole application; every error is JSON with one line under ``error``."""
    told = (GATE_ROUTES, ARRIVAL_ROUTES, HISTORY_ROUTES, LINEAGE_ROUTES)
    asked = (*told, SERVICE_ROUTES, RUNBOOK_ROUTES)  # runbooks last: they take any name.md
    acting = (REREAD_ROUTES, REPAIR_ROUTES, PAUSE_ROUTES, ARCHIVE_ROUTES, QUARANTINE_ROUTES)
    routers = (*asked, *acting)
    routes = [route for router in routers for route in router.routes]
    app = FastAPI(title="Sluice", docs_url=None, redoc_url=None, routes=routes)
    app.state.parts, app.state.room = parts, parts.room()
    app.add_middleware(RequestRules)  # inside of what follows
    app.add_middleware(TrustedOnly, access=parts.access)
    app.exception_handler(ConfigError)(_bad_request)
    app.exception_handler(RequestValidationError)(_bad_parameters)
    app.exception_handler(UnreachableError)(_unreachable)
    app.exception_handler(ProofError)(_unreachable)
    app.exception_handler(HeldError)(_unreachable)
    app.exception_handler(HTTPException)(_refused)
    return app


@dataclass(frozen=True, slots=True)
class TrustedOnly:
    """Answers only requests that `monitor.web.trusted` accepts."""

    app: ASGIApp
    access: Access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer instead of the application what is refused: 403, or 401 without the token."""
        if scope["type"] == "http":
            told = HTTPConnection(scope).headers
            host, origin = told.get("host", ""), told.get("origin", "")
            bound = (scope.get("server") or ("", 0))[0]
            if why := refusal(host, origin, self.access.names, bound):
                await JSONResponse({"error": why}, 403)(scope, receive, send)
                return
            sent = told.get("authorization", "")
            if self.access.unauthorized(scope["method"], scope["path"], sent):
                asked = {"WWW-Authenticate": "Bearer"}
                await JSONResponse({"error": TOKEN_NEEDED}, 401, asked)(scope, receive, send)
                return
        await self.app(scope, receive, send)


@GATE_ROUTES.get("/tables")
def tables(parts: Parts) -> list[render.Json]:
    """Every table with its readiness for the end of yesterday and for one lag budget ago."""
    return [render.table(view) for view in parts.current.board.tables]


@GATE_ROUTES.get("/readiness/{table:path}")  # names of tables may hold slashes
async def readiness(
    parts: Parts, table: str, cut: str | None = None, stage: Stage = Stage.MIRROR, copy: str = ""
) -> render.Json:
    """One answer, always with status 200; the state is in it."""
    question = ((table,), parts.gate.cut(cut), stage, copy)
    with parts.way.first(), parts.scrape.gate_latency.time():
        decision = await run_in_threadpool(parts.gate.decide, *question)
    return _answer(decision)["tables"][0] if decision.answers else _answer(decision)


@GATE_ROUTES.get("/gate")
async def ask(
    parts: Parts,
    room: Room,
    table: Names,
    *,
    cut: str | None = None,
    stage: Stage = Stage.MIRROR,
    copy: str = "",
    wait: Wait = 0.0,
    patient: bool = False,
) -> JSONResponse:
    """One answer for all tables; *wait* seconds at most for it to become 200 or 409.

    The header ``Sluice-Gate`` has the state in small letters, so that "not yet" is told from the
    404 of something else.
    """
    question = (tuple(dict.fromkeys(table)), parts.gate.cut(cut), stage, copy)
    began, patience = parts.clock(), timedelta(seconds=wait)
    with parts.way.first(), parts.scrape.gate_latency.time():
        decision = await run_in_threadpool(parts.gate.decide, *question)
    while not (decision.status() == 200 or (decision.state in CLOSED and not patient)):
        now = parts.clock()
        if over(began, patience, now) or parts.stopping():
            break
        later = await room.next(question, (began + patience - now).total_seconds())
        if later is None:
            break  # "not yet" is never wrong
        decision = later
    headers = {GATE_HEADER: decision.state.value}
    return JSONResponse(_answer(decision), decision.status(patient=patient), headers)


@GATE_ROUTES.get("/late")
def late(parts: Parts, since: str | None = None) -> list[render.Json]:
    """What is to be computed again.

    Days: changes from before a cut landed after its image was made.  Partitions: rows of files
    came after their hour.
    """
    instant = None if since is None else parts.gate.cut(since)
    days = [one for view in parts.current.board.tables for one in render.late(view, instant)]
    return [*days, *late_arrivals(parts, instant)]


@SERVICE_ROUTES.get("/metrics")
def metrics(parts: Parts) -> Response:
    """What Prometheus scrapes."""
    return Response(parts.scrape.text(), media_type=CONTENT_TYPE)


@SERVICE_ROUTES.get("/livez")
async def live() -> render.Json:
    """The process answers."""
    return {"live": True}


@SERVICE_ROUTES.get("/readyz")
async def ready(parts: Parts) -> JSONResponse:
    """Whether the watching round runs and the store takes what it decides."""
    why = _stalled(parts.current.board, parts.clock()) or parts.store.database.ailment
    return JSONResponse({"ready": not why, "why": why}, 503 if why else 200)


@SERVICE_ROUTES.get("/v1/service")
def service(parts: Parts) -> render.Json:
    """The same for programs that want to know more than a status."""
    board, now = parts.current.board, parts.clock()
    first = [render.first_line(one) for one in first_lines(board, now)]
    state = {"turning": not _stalled(board, now), "why": _stalled(board, now)}
    return {**state, "first": first, **_parts(board)}


@SERVICE_ROUTES.get("/docs", response_class=HTMLResponse)
def reference(request: Request) -> str:
    """Every route with its parameters, for people; for programs there is /openapi.json."""
    return reference_page(request.app.openapi())


@SERVICE_ROUTES.get("/tables/{table:path}", include_in_schema=False)
def table_page(table: str) -> RedirectResponse:
    """The page with this table alone."""
    return RedirectResponse(f"/?{urlencode({'text': table})}")


@SERVICE_ROUTES.get("/", response_class=HTMLResponse)
def page(parts: Parts, text: str = "", state: str = "", page: int = 1) -> str:
    """What a person on call reads first; tables by a part of their name, and by state."""
    asked = TableQuestion(text, state, page)
    return status_page(parts.current.board, parts.clock(), asked)


def _answer(decision: Decision) -> render.Json:
    answer: render.Json = {
        "state": decision.state.value,
        "ready": decision.status() == 200,
        "tables": [render.readiness(one) for one in decision.answers],
    }
    if not decision.answers:
        answer["why"] = "no table is known yet: nothing has been landed since the service started"
    return answer


def _parts(board: Board) -> render.Json:
    return {
        "at": render.instant(board.at),
        "started": render.instant(board.started),
        "spark_restarts": board.restarts,
        "parts": [{"name": p.name, "works": p.works, "detail": p.detail} for p in board.parts],
        "jobs": [{"name": j.name, "overdue": j.overdue, **j.results} for j in board.jobs],
    }


def _stalled(board: Board, now: datetime) -> str:
    if board.at == Board().at:
        return "no watching round has ended yet"
    age = board.age(now).total_seconds()
    return f"the last watching round ended {age:.0f} s ago" if board.stale(now) else ""


async def _bad_request(_: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"error": str(error)}, 400)


async def _bad_parameters(request: Request, error: Exception) -> JSONResponse:
    faults: list[Any] = list(error.errors()) if isinstance(error, RequestValidationError) else []
    route = request.scope.get("route")
    return JSONResponse({"error": "; ".join(_fault(one, route) for one in faults)}, 400)


def _fault(one: Any, route: object) -> str:
    if one["type"] == "extra_forbidden":
        return unknown_key(route, one["loc"])
    return f"{_parameter(one['loc'])}: {_must(one['msg'])}"


def _parameter(loc: tuple[int | str, ...]) -> str:
    """What a fault is about: a parameter or a key of the body, or where it stands: ``body``."""
    return ".".join(map(str, loc[1:] or loc)) or "request"


def _must(said: str) -> str:
    return re.sub(r"^Input should be", "must be", said)


async def _refused(request: Request, error: Exception) -> JSONResponse:
    """What a route or the router refuses; 400 for a path that no route has.

    A sensor reads 404 as "not yet", and would wait for a mistyped path.
    """
    if not isinstance(error, HTTPException):
        return JSONResponse({"error": str(error)}, 500)
    if error.status_code == 404 and "endpoint" not in request.scope:
        paths = {route.path for route in request.app.routes if isinstance(route, APIRoute)}
        near = get_close_matches(request.url.path, sorted(paths), n=1, cutoff=0.5)
        fix = f"the nearest is {near[0]}" if near else "see /docs"
        return JSONResponse({"error": f"no path {request.url.path}; {fix}"}, 400)
    return JSONResponse({"error": error.detail}, error.status_code, error.headers)


async def _unreachable(_: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"error": str(error)}, 503)
