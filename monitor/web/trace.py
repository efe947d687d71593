"""Serves traces of single rows, as JSON for `sluice trace` and as a page with a form.

Both read source, topics and lake on each request. The page does not refresh itself, because a key
that is being typed would be lost. Traces have their own threads, so that gate and metrics do not
wait for them. A column with a standard shows the mirror's value on both sides.
"""

import json
from collections.abc import Mapping
from datetime import date, datetime, timedelta
from functools import partial
from shlex import quote
from typing import Annotated, Any

import structlog
from fastapi import APIRouter, Query
from fastapi.responses import HTMLResponse, JSONResponse
from pydantic import BeforeValidator

from checks.trace import TraceVerdict, spell_order
from monitor.board import TableView
from monitor.tracing import MirrorLook, ShardTrace, SourceLook, Trace, TraceRequest
from monitor.web import answers, render
from monitor.web.answers import NOT_FOUND, declare_answer
from monitor.web.deps import ApiParts, Parts, Text, parse_seconds
from monitor.web.problems import TRACE_PAGE
from monitor.web.render import render_optional_instant
from monitor.web.status_page import PAGES
from pipeline.changelog.key_search import KeyChange, KeySearch
from pipeline.errors import ConfigError
from pipeline.model import Missing, Op, Order, Table

TRACE_ROUTES, TRACE_PAGES = APIRouter(prefix="/v1"), APIRouter()
LONGEST = 60.0  # seconds, for a wait or a budget
Key = Annotated[str, Query(min_length=1, max_length=10_000)]
Wait = Annotated[float, BeforeValidator(parse_seconds), Query(ge=0, le=LONGEST)]
ALL_COLUMNS = "*"  # shown for a row whose values are hidden
SHOWN = 1_000  # longest shown value, in characters
OP_WORDS = {one.value: one.name.lower() for one in Op} | {
    Op.READ.value: "read by a snapshot or backfill",
    Op.TRUNCATE.value: "truncate of its shard",
    Op.SETTLE.value: "end of a snapshot of its shard",
}
"""Names of operations on the page, by their codes in the change log."""
log = structlog.get_logger(__name__)


@TRACE_ROUTES.get(
    "/tables/{table:path}/trace",  # table names may contain slashes
    responses={200: declare_answer(answers.Trace), **NOT_FOUND},
)
async def trace(
    parts: Parts,
    table: str,
    key: Key,
    *,
    at: str | None = None,
    wait: Wait = 10.0,
    budget: Wait = 1.5,
) -> JSONResponse:
    """Where one row is: source, topic, change log, quarantine and mirror, side by side.

    *at* adds the mirror's row at that time. A row in flight is looked up again for *wait* seconds,
    and the change log is searched for *budget* seconds. Commits a heartbeat at the source.
    """
    request = _request(parts, table, key, at, (budget, wait))
    return render.Answer(await parts.traces.run(partial(_answer, parts, request)))


@TRACE_PAGES.get(TRACE_PAGE, response_class=HTMLResponse, responses=NOT_FOUND)
async def trace_page(parts: Parts, table: Text, key: str = "", at: str = "") -> str:
    """A form for the key of a row, and the current location of that row."""
    found, error = None, ""
    parts.table(table)
    if key:
        try:
            request = _request(parts, table, key, at or None, (1.5, 5.0))
            found = await parts.traces.run(partial(_answer, parts, request))
        except ConfigError as fault:
            error = str(fault)
    rows = [] if found is None else [_lines(one) for one in found["traces"]]
    page = PAGES.get_template("trace.html")
    shown = {"table": table, "key": key, "at": at, "found": found, "rows": rows, "error": error}
    return page.render(words=OP_WORDS, **shown)


def _request(
    parts: ApiParts, table: str, key: str, at: str | None, seconds: tuple[float, float]
) -> TraceRequest:
    times = (timedelta(seconds=one) for one in seconds)
    instant = None if at is None else parts.gate.cut(at, "at")
    return TraceRequest(parts.table(table), key, instant, *times)


def _answer(parts: ApiParts, request: TraceRequest) -> answers.Trace:
    log.info("row traced", table=request.table.name)
    found = parts.tracer().trace(request)
    views = {view.table.name: view for view in parts.current.board.tables}
    return render_trace(found, request, views.get(found.table))


def render_trace(found: Trace, request: TraceRequest, view: TableView | None) -> answers.Trace:
    """Render all hops of all shards; a value is a text, and bytes are ``0x`` and digits."""
    search, records = found.search, found.records
    key_search = search if isinstance(search, KeySearch) else None
    return {
        "table": found.table,
        "key": found.key,
        "respelled": found.respelled,
        "shards": found.shards,
        "traces": [_shard(one, found, request.table) for one in found.traces],
        "search": {
            "records": None if isinstance(records, Missing) else records.read,
            "skipped_records": None if isinstance(records, Missing) else records.skipped,
            "files": None if key_search is None else key_search.files,
            "footers": None if key_search is None else key_search.footers,
            "read_files": None if key_search is None else key_search.read,
            "row_groups": None if key_search is None else key_search.groups,
            "down_to": None if key_search is None else key_search.down_to,
            "left_out": None if key_search is None else key_search.left_out,
        },
        "images": [
            {
                "cut": render.render_instant(one.cut),
                "version": one.version,
                "path": one.path or None,
            }
            for one in (view.images if view else ())
        ],
        "copies": [
            {"name": one.name, "held": one.hold.detail if one.hold else None}
            for one in (view.copies if view else ())
        ],
        "seconds": round(found.seconds, 3),
    }


def _shard(one: ShardTrace, found: Trace, table: Table) -> answers.TracedShard:
    return {
        "shard": str(one.shard),
        "state": one.verdict.state.value,
        "sentence": one.verdict.sentence,
        "advice": _advice(one.verdict, found, table),
        "columns": list(one.verdict.columns),
        "source": _source(one.source),
        "topic": {
            "why": _why(one.waiting),
            "records": [
                {"place": str(each), "op": each.op.value, "at": render_optional_instant(each.sent)}
                for each in (() if isinstance(one.waiting, Missing) else one.waiting)
            ],
        },
        "change_log": {
            "why": _why(one.changes),
            "changes": [
                _change(each) for each in (() if isinstance(one.changes, Missing) else one.changes)
            ],
        },
        "quarantine": {
            "why": _why(one.refused),
            "messages": [
                {"id": each.id, "why": each.why, "received": render.render_instant(each.received)}
                for each in (() if isinstance(one.refused, Missing) else one.refused)
            ],
        },
        "mirror": _mirror(one.mirror),
        "before": None if one.before is None else _mirror(one.before),
    }


def _advice(verdict: TraceVerdict, found: Trace, table: Table) -> str:
    """Return the advice with table and key filled in; a standardised key stays a placeholder."""
    written = any(map(table.restates, table.key))
    text, name = verdict.advice, quote(found.table)
    for verb in ("repair", "explain"):
        text = text.replace(f"sluice {verb} TABLE", f"sluice {verb} {name}")
    return text if written else text.replace("--keys KEY", f"--keys {quote(found.key)}")


def _source(look: SourceLook | Missing) -> answers.TracedSource:
    if isinstance(look, Missing):
        return {"why": look.why, "row": None, "not_shown": {}}
    not_shown = {name: f"the collector alters it ({by})" for name, by in look.hidden.items()}
    not_shown |= {ALL_COLUMNS: look.unseen} if look.unseen else {}
    return {"why": None, "row": _texts(look.row), "not_shown": not_shown}


def _mirror(look: MirrorLook | Missing) -> answers.TracedMirror:
    if isinstance(look, Missing):
        nothing = MirrorLook(-1, -1)
        return {**_mirror(nothing), "why": look.why, "version": None, "applied": None}
    op, batch, at = (look.origin.get(name) for name in ("op", "batch", "at"))
    return {
        "why": None,
        "version": look.version,
        "applied": look.applied,
        "committed": render_optional_instant(look.committed),
        "row": _texts(look.row),
        "op": op,
        "batch": batch,
        "order": _order(look.order),
        "at": render_optional_instant(at),
    }


def _change(one: KeyChange) -> answers.TracedChange:
    return {
        "op": one.op.value,
        "batch": one.batch,
        "order": _order(one.order),
        "origin": one.origin.name.lower(),
        "at": render_optional_instant(one.at),
        "received": render.render_instant(one.received),
        "place": None if one.place is None else f"{one.place}:{one.offset}",
    }


def _why(answer: object) -> str | None:
    return answer.why if isinstance(answer, Missing) else None


def _order(order: Order | None) -> str | None:
    return None if order is None else spell_order(order)


def _texts(row: Mapping[str, Any] | None) -> dict[str, str | None] | None:
    return None if row is None else {name: render_value(value) for name, value in row.items()}


def render_value(value: Any) -> str | None:
    """Render a typed value as a text of at most ``SHOWN`` characters; NULL becomes None."""
    if value is None:
        return None
    if isinstance(value, bytes):
        text = f"0x{value.hex()}"
    elif isinstance(value, datetime | date):
        text = value.isoformat()
    elif isinstance(value, list | dict):
        text = json.dumps(value, default=str, ensure_ascii=False)
    else:
        text = str(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}... {len(text) - SHOWN} more"


def _lines(one: answers.TracedShard) -> list[tuple[str, list[str | None], bool, str]]:
    """Return each column with its values at source, in the mirror and before, and if they differ.

    The last item says why the source's value is not shown; empty if it is shown.
    """
    hidden = one["source"]["not_shown"]
    sides = [one["source"]["row"], one["mirror"]["row"]]
    sides += [one["before"]["row"]] if one["before"] is not None else []
    names = dict.fromkeys(name for side in sides if side is not None for name in side)
    return [
        (
            name,
            [None if side is None else side.get(name) for side in sides],
            name in one["columns"],
            hidden.get(name, hidden.get(ALL_COLUMNS, "")),
        )
        for name in names
    ]
