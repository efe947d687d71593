"""Serves the HTTP API: gate and readiness for programs, metrics, and the status page.

The gate answers 200 for ready, 404 for not ready or unknown, and 409 for blocked or revoked. It
answers 400 for an unknown table or an invalid cut. An unknown path is 400, too. Elsewhere, unknown
names are 404.

Only the gate and waivers query sources or the lake, at most once per sample age.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, FastAPI, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import (
    HTMLResponse,
    JSONResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
)
from pydantic import BeforeValidator
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from checks.readiness import ReadinessState
from monitor.board import Board
from monitor.display_text import did_you_mean
from monitor.gate import CLOSED, Decision, GateQuestion
from monitor.web import answers, render
from monitor.web.actions import ARCHIVE_ROUTES, BACKFILL_ROUTES, PAUSE_ROUTES, REPAIR_ROUTES
from monitor.web.answers import NOT_FOUND, declare_answer
from monitor.web.deps import (
    TOKEN_NEEDED,
    Access,
    ApiParts,
    GateRoom,
    Parts,
    Room,
    find_refusal,
    parse_seconds,
)
from monitor.web.history import ARRIVAL_ROUTES, HISTORY_ROUTES, LINEAGE_ROUTES, late_arrivals
from monitor.web.ledger import LEDGER_PAGES, LEDGER_ROUTES
from monitor.web.metrics import CONTENT_TYPE
from monitor.web.problems import Api, build_problem, traces_row
from monitor.web.quarantine import QUARANTINE_ROUTES
from monitor.web.request_rules import RequestRules
from monitor.web.status_page import (
    RUNBOOK_ROUTES,
    WORST_FIRST,
    TableQuestion,
    reference_page,
    status_page,
)
from monitor.web.summary import find_headlines
from monitor.web.trace import TRACE_PAGES, TRACE_ROUTES
from monitor.web.validation import VALIDATION_PAGES
from pipeline.clocks import has_passed
from pipeline.errors import ConfigError, UnknownNameError
from pipeline.model import Stage

LONGEST_WAIT = 300.0
GATE_HEADER = "Sluice-Gate"
_STATES = {"type": "string", "enum": [state.value for state in ReadinessState]}
STATE_HEADER = {"headers": {GATE_HEADER: {"required": True, "schema": _STATES}}}

Names = Annotated[list[str], Query(min_length=1, max_length=1000)]
Wait = Annotated[float, BeforeValidator(parse_seconds), Query(ge=0, le=LONGEST_WAIT)]
GATE_ROUTES, SERVICE_ROUTES = APIRouter(prefix="/v1"), APIRouter()


def build_application(parts: ApiParts) -> FastAPI:
    """Return the whole application; every error is a problem document."""
    app = _api(parts.access)
    app.state.parts, app.state.room = parts, parts.room()
    app.add_middleware(RequestRules)  # inside the middleware below
    app.add_middleware(TrustedOnly, access=parts.access)
    return app


def openapi_document() -> dict[str, Any]:
    """Return the OpenAPI document of a service on loopback without a token; none needs to run."""
    return _api(Access()).openapi()


def _api(access: Access) -> Api:
    query_routes = (GATE_ROUTES, ARRIVAL_ROUTES, HISTORY_ROUTES, LINEAGE_ROUTES, TRACE_ROUTES)
    asked = (
        *query_routes,
        LEDGER_ROUTES,
        TRACE_PAGES,
        LEDGER_PAGES,
        VALIDATION_PAGES,
        SERVICE_ROUTES,
        RUNBOOK_ROUTES,
    )  # runbooks last, because they match any name.md
    acting = (BACKFILL_ROUTES, REPAIR_ROUTES, PAUSE_ROUTES, ARCHIVE_ROUTES, QUARANTINE_ROUTES)
    routers = (*asked, *acting)
    routes = [route for router in routers for route in router.routes]
    return Api(access, title="Sluice", docs_url=None, redoc_url=None, routes=routes)


@dataclass(frozen=True, slots=True)
class TrustedOnly:
    """Answers only requests that `monitor.web.deps` accepts."""

    app: ASGIApp
    access: Access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a refused request instead of the application: 403, or 401 without the token."""
        if scope["type"] == "http":
            headers = HTTPConnection(scope).headers
            host, origin = headers.get("host", ""), headers.get("origin", "")
            bound = (scope.get("server") or ("", 0))[0]
            path, site = scope["path"], headers.get("sec-fetch-site", "")
            acts, names = traces_row(path, scope["query_string"]), self.access.names
            if why := find_refusal(host, origin, names, bound, path=path, site=site, acts=acts):
                await build_problem(403, why)(scope, receive, send)
                return
            sent = headers.get("authorization", "")
            if self.access.unauthorized(scope["method"], path, sent):
                asked = {"WWW-Authenticate": "Bearer"}
                await build_problem(401, TOKEN_NEEDED, asked)(scope, receive, send)
                return
        await self.app(scope, receive, send)


@GATE_ROUTES.get("/tables", responses={200: declare_answer(list[answers.Table])})
def tables(parts: Parts) -> JSONResponse:
    """All tables, with readiness for the end of yesterday and for one lag budget ago."""
    return render.Answer([render.render_table(view) for view in parts.current.board.tables])


@GATE_ROUTES.get(
    "/readiness/{table:path}",  # table names may contain slashes
    responses={200: declare_answer(answers.Readiness | answers.GateAnswer), **NOT_FOUND},
)
async def readiness(
    parts: Parts,
    table: str,
    *,
    cut: str | None = None,
    stage: Stage = Stage.MIRROR,
    copy: str = "",
    verified: bool = False,
) -> JSONResponse:
    """Readiness of one table, always with status 200; the state is in the body."""
    question = ((table,), parts.gate.cut(cut), stage, copy, verified)
    with parts.way.foreground(), parts.scrape.gate_latency.time():
        decision = await run_in_threadpool(parts.gate.decide, *question)
    answer = _answer(decision)
    return render.Answer(answer["tables"][0] if decision.answers else answer)


@GATE_ROUTES.get(
    "/gate",
    responses={
        200: {**declare_answer(answers.GateAnswer, "Ready"), **STATE_HEADER},
        404: {**declare_answer(answers.GateAnswer, "Not ready yet, or unknown"), **STATE_HEADER},
        409: {**declare_answer(answers.GateAnswer, "Blocked or revoked"), **STATE_HEADER},
    },
)
async def ask(
    request: Request,
    parts: Parts,
    room: Room,
    table: Names,
    *,
    cut: str | None = None,
    stage: Stage = Stage.MIRROR,
    copy: str = "",
    wait: Wait = 0.0,
    patient: bool = False,
    verified: bool = False,
) -> JSONResponse:
    """One answer for all tables; waits at most *wait* seconds until it is 200 or 409.

    With *verified*, a table is ready only if each row that was changed before the cut was compared
    with its source after its merge.

    The header ``Sluice-Gate`` has the state in lower case, so a client can tell "not ready yet"
    from the 404 of another server.
    """
    question = (tuple(dict.fromkeys(table)), parts.gate.cut(cut), stage, copy, verified)
    try:
        gone, patience = request.is_disconnected, timedelta(seconds=wait)
        decision = await _decision(parts, room, question, patience, gone, patient=patient)
    except UnknownNameError as error:  # a sensor reads 404 as "not yet", and would wait
        raise ConfigError(str(error)) from error
    headers = {GATE_HEADER: decision.state.value}
    return render.Answer(_answer(decision), decision.status(patient=patient), headers)


async def _decision(
    parts: ApiParts,
    room: GateRoom,
    question: GateQuestion,
    patience: timedelta,
    gone: Callable[[], Awaitable[bool]],
    *,
    patient: bool,
) -> Decision:
    """Return the first answer that ends the wait, else the last one in time.

    A client that has *gone* gets no further answer.
    """
    began = parts.clock()
    with parts.way.foreground(), parts.scrape.gate_latency.time():
        decision = await run_in_threadpool(parts.gate.decide, *question)
    while not (decision.status() == 200 or (decision.state in CLOSED and not patient)):
        now = parts.clock()
        if has_passed(began, patience, now) or parts.stopping():
            break
        later = await room.next(question, (began + patience - now).total_seconds(), gone)
        if later is None:
            break  # "not yet" is always safe
        decision = later
    return decision


@GATE_ROUTES.get(
    "/late", responses={200: declare_answer(list[answers.LateImage | answers.LatePartition])}
)
def late(parts: Parts, since: str | None = None) -> JSONResponse:
    """Days and partitions to compute again.

    Days: changes before a cut landed after its image was made. Partitions: rows of files arrived
    after their hour.
    """
    instant = None if since is None else parts.gate.cut(since, "since")
    days = [
        one for view in parts.current.board.tables for one in render.render_late_days(view, instant)
    ]
    return render.Answer([*days, *late_arrivals(parts, instant)])


@SERVICE_ROUTES.get(
    "/metrics",
    response_class=PlainTextResponse,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
def metrics(parts: Parts) -> Response:
    """Metrics in the text format of Prometheus."""
    return Response(parts.scrape.text(), media_type=CONTENT_TYPE)


@SERVICE_ROUTES.get("/livez", responses={200: declare_answer(answers.Live)})
async def live() -> JSONResponse:
    """Liveness: 200 while the process runs."""
    return render.Answer({"live": True})


@SERVICE_ROUTES.get(
    "/readyz",
    responses={
        200: declare_answer(answers.Ready),
        503: declare_answer(answers.Ready, "The service is not ready"),
    },
)
async def ready(parts: Parts) -> JSONResponse:
    """Whether the monitoring round runs and the store accepts writes."""
    why = _stalled(parts.current.board, parts.clock()) or parts.store.database.problem
    return render.Answer({"ready": not why, "why": why}, 503 if why else 200)


@SERVICE_ROUTES.get("/v1/service", responses={200: declare_answer(answers.Service)})
def service(parts: Parts) -> JSONResponse:
    """The state of the service, its components and its jobs."""
    board, now = parts.current.board, parts.clock()
    first = [render.first_line(one) for one in find_headlines(board, now)]
    answer: answers.Service = {
        "turning": not _stalled(board, now),
        "why": _stalled(board, now),
        "first": first,
        "at": render.render_instant(board.at),
        "started": render.render_instant(board.started),
        "spark_restarts": board.restarts,
        "parts": [{"name": p.name, "works": p.works, "detail": p.detail} for p in board.parts],
        "jobs": [{"name": j.name, "overdue": j.overdue, **j.results} for j in board.jobs],
    }
    return render.Answer(answer)


@SERVICE_ROUTES.get("/docs", response_class=HTMLResponse)
def reference(request: Request) -> str:
    """Every route with its parameters as a page; /openapi.json has the same for programs."""
    return reference_page(request.app.openapi())


@SERVICE_ROUTES.get(
    "/tables/{table:path}",
    status_code=307,
    response_class=RedirectResponse,
    responses={307: {"description": "To the status page with this table"}, **NOT_FOUND},
)
def table_page(parts: Parts, table: str) -> RedirectResponse:
    """Redirects to the status page with this table alone."""
    parts.require_known(table)
    return RedirectResponse(f"/?{urlencode({'text': table})}")


@SERVICE_ROUTES.get("/", response_class=HTMLResponse)
def page(parts: Parts, text: str = "", state: str = "", page: int = 1) -> str:
    """The status page; tables can be filtered by a part of their name and by state."""
    if state not in ("", *WORST_FIRST):
        raise ConfigError(f"unknown state {state!r}; {did_you_mean(state, WORST_FIRST)}")
    asked = TableQuestion(text, state, page)
    return status_page(parts.current.board, parts.clock(), asked)


def _answer(decision: Decision) -> answers.GateAnswer:
    made: answers.GateAnswer = {
        "state": decision.state.value,
        "ready": decision.status() == 200,
        "tables": [render.render_readiness(one) for one in decision.answers],
    }
    if not decision.answers:
        made["why"] = "no table is known yet, because nothing has landed since the service started"
    return made


def _stalled(board: Board, now: datetime) -> str:
    if board.at == Board().at:
        return "no monitoring round has ended yet"
    age = board.age(now).total_seconds()
    return f"the last monitoring round ended {age:.0f} s ago" if board.stale(now) else ""
