"""Serves the routes that request backfills, pause merges and register archive windows.

A bootstrap reads all rows of a table. A repair reads named rows. A replay reads the rows that meet
a condition. Each kind can be listed, and a running backfill can be cancelled. A pause is resumed,
and an archive window is withdrawn.
"""

import re
import uuid
from collections.abc import Iterable
from datetime import date, datetime, time
from shlex import quote
from typing import Annotated

from fastapi import APIRouter
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from alerts.model import IncidentState
from checks.blocks import Pause
from checks.model import Outcome, Verdict
from monitor.display_text import similar_names
from monitor.observe.progress import backfill_progress
from monitor.observe.verdicts import awaits_checks
from monitor.row_selection import NAMING, require_condition, select_failed_rows, select_rows
from monitor.store.requests import (
    ArchiveRecord,
    BackfillSpec,
    PauseRecord,
    StoredBackfill,
    Withdrawal,
    require_same,
)
from monitor.web import answers, render
from monitor.web.answers import NOT_FOUND, declare_answer
from monitor.web.deps import (
    ApiParts,
    Instant,
    Limit,
    Line,
    Parts,
    Rate,
    TableNames,
    Text,
    Word,
    end_after,
)
from pipeline.archive import ArchiveWindow, RegisteredWindow
from pipeline.backfill_state import RepairPreview, RowSelection
from pipeline.errors import ConfigError, UnknownNameError
from pipeline.model import Origin, Table
from pipeline.sources.condition import parse_condition

BACKFILL_ROUTES = APIRouter(prefix="/v1")


class BootstrapRequest(BaseModel):
    """Body of a request to bootstrap tables: which tables, why, and who asks."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    tables: TableNames
    reason: Text
    who: Text
    rate: Rate = 0


@BACKFILL_ROUTES.get("/bootstraps", responses={200: declare_answer(list[answers.Backfill])})
def bootstraps(parts: Parts, limit: Limit = 100) -> JSONResponse:
    """Requested bootstraps, newest first."""
    found = parts.store.backfills.list(limit=limit)
    bases = [one for one in found if one.wish.origin is Origin.SNAPSHOT]
    return render.Answer([render_backfill(one, parts) for one in bases])


@BACKFILL_ROUTES.post(
    "/bootstraps", status_code=202, responses={202: declare_answer(answers.Backfills), **NOT_FOUND}
)
def bootstrap(parts: Parts, body: BootstrapRequest) -> JSONResponse:
    """Bootstrap tables: 202, also for a running bootstrap. 404 if a table is unknown."""
    for name in body.tables:
        _require(name, parts)
    wish = BackfillSpec(rate=body.rate)
    asked = [
        parts.store.backfills.add(
            StoredBackfill(
                uuid.uuid4().hex[:12], name, body.reason, body.who, parts.clock(), wish=wish
            )
        )
        for name in dict.fromkeys(body.tables)
    ]
    return answer_backfills(asked, parts, 202)


@BACKFILL_ROUTES.post(
    "/rereads/cancelled", responses={200: declare_answer(answers.Backfills), **NOT_FOUND}
)
def cancel(parts: Parts, body: BootstrapRequest) -> JSONResponse:
    """Cancel the running backfills of tables; `shop.*` selects by prefix.

    400 if none is running, 404 if a table is unknown.
    """
    open_ones = {one.table: one for one in parts.store.backfills.open()}
    ended = dict[str, StoredBackfill]()
    for name in body.tables:
        found = select_tables(name, open_ones)
        if not open_ones.keys() >= {*found} or not found:
            if found:
                parts.table(name)
            raise ConfigError(f"table {name}: no backfill is running; nothing was cancelled")
        ended |= {one: open_ones[one] for one in found}
    why = f"cancelled by {body.who}: {body.reason}"
    for one in ended.values():
        parts.store.backfills.cancel(one.id, why, parts.clock())
    kept = (parts.store.backfills.get(one.id) or one for one in ended.values())
    return answer_backfills(kept, parts)


@BACKFILL_ROUTES.get("/rereads", responses={200: declare_answer(list[answers.Backfill])})
def backfills(parts: Parts, limit: Limit = 100) -> JSONResponse:
    """All backfills, newest first."""
    return render.Answer(
        [render_backfill(one, parts) for one in parts.store.backfills.list(limit=limit)]
    )


def answer_backfills(
    some: Iterable[StoredBackfill], parts: ApiParts, status: int = 200
) -> JSONResponse:
    """Return the answer to a request that started or cancelled the backfills *some*."""
    made: answers.Backfills = {"rereads": [render_backfill(one, parts) for one in some]}
    return render.Answer(made, status)


def select_tables(text: str, names: Iterable[str]) -> list[str]:
    """Return the table *text*; with a final `*`, all of *names* that have this prefix."""
    begins = re.fullmatch(r"([^*]+)\*", text)
    return [text] if begins is None else [name for name in names if name.startswith(begins[1])]


def _require(name: str, parts: ApiParts) -> None:
    """Refuse a table that has not landed, that no statement names, and that no source has.

    Raises:
        UnknownNameError: the table is unknown everywhere.
    """
    if parts.gate.roster.table(name) is not None:
        return
    for shard in parts.gate.roster.existing():
        if shard.name == name:
            return
    if parts.gate.roster.has_source_of(name):
        return
    msg = f"unknown table {name!r}: none of its changes has landed, and no source has it"
    raise UnknownNameError(f"{msg}; run `sluice status` to list tables")


def render_backfill(one: StoredBackfill, parts: ApiParts) -> answers.Backfill:
    """Render a backfill with its progress, estimates and results."""
    rows, now = one.wish.rows, parts.clock()
    far = backfill_progress(one, parts.estimates, now)
    return {
        "id": one.id,
        "kind": one.kind,
        "table": one.table,
        "keys": [key.values for key in rows.keys],
        "ranges": [[span.first, span.last] for span in rows.ranges],
        "where": rows.where,
        "shown": render.render_instant(one.wish.shown) if one.wish.shown else None,
        "incident": one.wish.incident,
        "checks": list(one.wish.checks),
        "unchecked": list(one.unchecked),
        "awaits_checks": awaits_checks(one, now),
        "proofs": [
            {
                "check": p.check,
                "passed": p.passed,
                "at": render.render_instant(p.at),
                "reason": p.reason,
            }
            for p in one.proofs
        ],
        "reason": one.reason,
        "who": one.who,
        "at": render.render_instant(one.at),
        "ended": render.render_instant(one.ended) if one.ended else None,
        "done": one.done,
        "rows": one.rows,
        "preview": _preview(one),
        "about": far.about,
        "rate": far.rate,
        "left": None if far.left is None else far.left.total_seconds(),
        "brakes": list(far.brakes),
        "told": far.description,
        "why": one.why,
        "shards": [
            {"shard": s.shard, "rows": s.rows, "done": s.done is not None, "why": s.why}
            for s in one.states
        ],
    }


def _preview(one: StoredBackfill) -> answers.Preview | None:
    """Return the findings of a dry run, summed over all shards."""
    if not one.wish.dry or not one.done:
        return None
    found = RepairPreview()
    for state in one.states:
        found = found.with_more(state.preview or RepairPreview())
    return {
        "missing": found.missing,
        "extra": found.extra,
        "different": found.different,
        "keys": list(found.keys),
    }


REPAIR_ROUTES = APIRouter(prefix="/v1")
Most = Annotated[int, Field(ge=1, le=10_000_000)]
MOST_KEYS = 10_000
MOST_DRY = 100_000
DRY = "a dry run"  # default of ``reason`` for a dry run


class RepairRequest(BaseModel):
    """Body of a request to repair rows of a table; ``most`` is the highest number of rows to read.

    ``reason`` is optional for a dry run only.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    table: Text
    reason: Text = DRY
    who: Text
    keys: Annotated[list[Line], Field(max_length=MOST_KEYS)] = []
    ranges: Annotated[list[Line], Field(max_length=100)] = []
    incident: Word = ""
    most: Most = 100_000
    dry_run: bool = False


class ReplayRequest(BaseModel):
    """Body of a request to replay rows; ``tables`` is a table name, or a prefix and `*`.

    ``where`` is a plain condition. ``day`` is the business day that the rows show.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    tables: Text
    reason: Text
    who: Text
    where: Line = ""
    day: date | None = None
    most: Most = 1_000_000
    rate: Rate = 0


@REPAIR_ROUTES.post(
    "/repairs", status_code=202, responses={202: declare_answer(answers.Backfills), **NOT_FOUND}
)
def repair(parts: Parts, body: RepairRequest) -> JSONResponse:
    """Repair named rows of a table: 202; 400 if the table cannot have these rows."""
    if "reason" not in body.model_fields_set and not body.dry_run:
        raise ConfigError("reason: is required, except for a dry run; add it")
    if body.incident and (body.keys or body.ranges):
        why = "incident: names its rows, so no keys or ranges can be given with it (--incident)"
        raise ConfigError(f"{why}; leave out one, or request two repairs")
    table = parts.table(body.table)
    fails = _fails(body.incident, table, parts)
    by_key = body.keys or (body.incident and table.no_ranges)
    columns = parts.gate.roster.columns(table) if by_key else ()
    if body.incident:
        rows = select_failed_rows(table, fails, body.most, columns)
    else:
        rows = select_rows(table, body.keys, body.ranges, body.most, columns)
    if body.dry_run:
        _require_previewable(rows, body.most)
    checks = tuple(sorted({one.check for one in fails})) if not body.dry_run else ()
    named_by, dry = body.incident, body.dry_run
    wish = BackfillSpec(Origin.REPAIR, rows, incident=named_by, checks=checks, dry=dry)
    return _store_requests([body.table], wish, body.reason, body.who, parts)


@REPAIR_ROUTES.post(
    "/replays", status_code=202, responses={202: declare_answer(answers.Backfills), **NOT_FOUND}
)
def replay(parts: Parts, body: ReplayRequest) -> JSONResponse:
    """Replay rows that meet a condition: 202; 400 if it cannot be read or matches no table."""
    condition = parse_condition(body.where) if body.where else None
    names = select_tables(body.tables, (table.name for table in parts.gate.roster.tables()))
    if not names:
        raise UnknownNameError(
            f"no table name starts with {body.tables!r}; run `sluice status` to list tables"
        )
    for name in names:
        table = parts.table(name)
        if condition is not None:
            require_condition(table, condition, parts.gate.roster.columns(table))
    shown = None if body.day is None else _noon(body.day, parts)
    rows = RowSelection(where=body.where, most=body.most)
    wish = BackfillSpec(Origin.REPLAY, rows, shown, rate=body.rate)
    return _store_requests(names, wish, body.reason, body.who, parts)


def _store_requests(
    names: list[str], wish: BackfillSpec, reason: str, who: str, parts: ApiParts
) -> JSONResponse:
    """Record one request for each of *names*, or none if another backfill prevents one."""
    open_ones = {one.table: one for one in parts.store.backfills.open()}
    for name in names:
        if name in open_ones:
            require_same(open_ones[name], wish)
    made = [
        parts.store.backfills.add(
            StoredBackfill(uuid.uuid4().hex[:12], name, reason, who, parts.clock(), wish=wish)
        )
        for name in names
    ]
    return answer_backfills(made, parts, 202)


def _require_previewable(rows: RowSelection, most: int) -> None:
    """Refuse rows that a dry run cannot compare.

    Raises:
        ConfigError: says what to request instead.
    """
    if rows.keys:
        raise ConfigError("a dry run needs ids; use ranges, or keys that are one integer each")
    if most > MOST_DRY:
        msg = f"a dry run reads at most {MOST_DRY} rows, but --most allows {most}"
        raise ConfigError(f"{msg}; decrease --most, or use fewer ranges")


def _fails(incident: str, table: Table, parts: ApiParts) -> tuple[Verdict, ...]:
    """Return the newest FAILs of checks that name rows, only those of *incident* if it is set."""
    among = _checks_of(incident, table, parts) if incident else frozenset(NAMING)
    view = parts.current.board.table(table.name)
    found = () if view is None else view.verdicts
    return tuple(v for v in found if v.check in among and v.ruling.outcome is Outcome.FAIL)


def _checks_of(incident: str, table: Table, parts: ApiParts) -> frozenset[str]:
    found = parts.store.incidents.get(incident)
    if found is None:
        raise UnknownNameError(
            f"unknown incident {incident!r}; run `sluice status` to list open incidents"
        )
    if found.state is IncidentState.RESOLVED:
        raise ConfigError(f"incident {incident} has ended, so there is nothing to repair")
    checks = frozenset(one.check for one in found.members if one.table == table.name)
    if not checks & {*NAMING}:
        msg = f"incident {incident} has no rows of {table.name}; set --keys or --ranges"
        raise ConfigError(f"{msg}, or run `sluice bootstrap {quote(table.name)} --reason ...`")
    return checks & {*NAMING}


def _noon(day: date, parts: ApiParts) -> datetime:
    """Return the middle of a business day, which is that day in each nearby zone."""
    return datetime.combine(day, time(12), parts.gate.zone)


PAUSE_ROUTES = APIRouter(prefix="/v1")


class PauseRequest(BaseModel):
    """Body of a request to pause merging; ``until`` is an instant or a duration."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    tables: TableNames
    reason: Text
    who: Text
    until: Text | None = None


class ResumeRequest(BaseModel):
    """Body of a request to resume merging: which tables, and who asks."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    tables: TableNames
    who: Text


@PAUSE_ROUTES.get("/pauses", responses={200: declare_answer(list[answers.Pause])})
def pauses(parts: Parts, limit: Limit = 100) -> JSONResponse:
    """Pauses of merging, newest first."""
    found = parts.store.pauses.list(parts.clock(), limit=limit)
    return render.Answer([_render_pause(one) for one in found])


@PAUSE_ROUTES.post(
    "/pauses", status_code=201, responses={201: declare_answer(answers.Pauses), **NOT_FOUND}
)
def pause(parts: Parts, body: PauseRequest) -> JSONResponse:
    """Pause merging into tables: 201; 404 if a table is unknown."""
    now = parts.clock()
    until = None if body.until is None else end_after(body.until, now)
    for name in body.tables:
        parts.table(name)
    made = [
        parts.store.pauses.begin(Pause(name, body.reason, body.who, now, until))
        for name in dict.fromkeys(body.tables)
    ]
    began: answers.Pauses = {"pauses": [_render_pause(PauseRecord(one, now)) for one in made]}
    return render.Answer(began, 201)


@PAUSE_ROUTES.post("/pauses/ended", responses={200: declare_answer(answers.Pauses), **NOT_FOUND})
def resume(parts: Parts, body: ResumeRequest) -> JSONResponse:
    """Resume merging into tables; 400 if one is not paused, 404 if one is unknown."""
    now = parts.clock()
    standing = parts.store.pauses.standing(now)
    for name in body.tables:
        if name not in standing:
            parts.table(name)
            paused = similar_names(name, sorted(standing)) if standing else "none"
            raise ConfigError(f"table {name} is not paused; paused: {paused}")
    for name in body.tables:
        parts.store.pauses.resume(name, body.who, now)
    ended = [PauseRecord(standing[name], now, now, body.who) for name in dict.fromkeys(body.tables)]
    made: answers.Pauses = {"pauses": [_render_pause(one) for one in ended]}
    return render.Answer(made)


def _render_pause(one: PauseRecord) -> answers.Pause:
    pause = one.pause
    return {
        "table": pause.table,
        "reason": pause.reason,
        "who": pause.who,
        "since": render.render_instant(pause.since),
        "at": render.render_instant(one.at),
        "until": render.render_instant(pause.until) if pause.until else None,
        "ended": render.render_instant(one.ended) if one.ended else None,
        "ended_by": one.ended_by or None,
    }


ARCHIVE_ROUTES = APIRouter(prefix="/v1")


class WindowRequest(BaseModel):
    """Body of a request to register a window in which deletes only archive rows of a table."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    table: Text
    since: Instant
    until: Instant
    reason: Text
    who: Text
    column: Word = ""
    before: Word = ""


class WithdrawalRequest(BaseModel):
    """Body of a request to withdraw an archive window: which one, why, and who asks."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: Word
    reason: Text
    who: Text


@ARCHIVE_ROUTES.get("/archives", responses={200: declare_answer(list[answers.Archive])})
def archives(parts: Parts) -> JSONResponse:
    """Registered archive windows, newest first; without those of the config."""
    return render.Answer([_archive_answer(one) for one in parts.store.archives.list()])


@ARCHIVE_ROUTES.post(
    "/archives",
    status_code=201,
    responses={201: declare_answer(answers.RecordedArchive), **NOT_FOUND},
)
def keep(parts: Parts, body: WindowRequest) -> JSONResponse:
    """Register a window in which deletes keep their rows: 201; 404 if the table is unknown."""
    parts.table(body.table)
    values = (body.since, body.until, body.column, body.before, body.reason, body.who)
    window = ArchiveWindow(*values)
    if window.fault:
        raise ConfigError(f"{window.fault}; nothing was recorded")
    now, made = parts.clock(), RegisteredWindow(body.table, window)
    record, new = parts.store.archives.add(made, now)
    return render.Answer({"window": _archive_answer(record), "new": new}, 201)


@ARCHIVE_ROUTES.post(
    "/archives/withdrawals",
    status_code=201,
    responses={201: declare_answer(answers.WithdrawnArchive), **NOT_FOUND},
)
def withdraw(parts: Parts, body: WithdrawalRequest) -> JSONResponse:
    """Withdraw an archive window: 201; 404 if the id is unknown."""
    word = Withdrawal(body.who, parts.clock(), body.reason)
    return render.Answer(
        {"window": _archive_answer(parts.store.archives.withdraw(body.id, word))}, 201
    )


def _archive_answer(one: ArchiveRecord) -> answers.Archive:
    window, taken = one.registered.window, one.withdrawn
    return {
        "id": one.id,
        "table": one.registered.table,
        "since": render.render_instant(window.since),
        "until": render.render_instant(window.until),
        "column": window.column or None,
        "before": window.before or None,
        "reason": window.reason,
        "who": window.who,
        "at": render.render_instant(one.at),
        "withdrawn": {
            "who": taken.who,
            "at": render.render_instant(taken.at),
            "reason": taken.reason,
        }
        if taken
        else None,
    }
