"""Rows that are read again from their source: named (a repair), or by a condition (a replay)."""

import uuid
from datetime import date, datetime, time
from shlex import quote
from typing import Annotated

from fastapi import APIRouter
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from alerts.model import IncidentState
from checks.model import Outcome, Verdict
from monitor.named_rows import NAMING, found_wrong, named, require_condition
from monitor.store.rereads import RereadRequest, RereadWish, require_same
from monitor.web import answers
from monitor.web.answers import NOT_FOUND, answer
from monitor.web.bootstraps import backfills, meant
from monitor.web.bounds import Line, Rate, Text, Word
from monitor.web.parts import ApiParts, Parts
from pipeline.backfill_state import RowsWished
from pipeline.errors import ConfigError, UnknownNameError
from pipeline.model import Origin, Table
from pipeline.sources.condition import parsed

REPAIR_ROUTES = APIRouter(prefix="/v1")
Most = Annotated[int, Field(ge=1, le=10_000_000)]
MOST_KEYS = 10_000
MOST_DRY = 100_000
DRY = "a dry run"  # the reason of one that names none


class RepairRequest(BaseModel):
    """Who asks for which rows of a table, and why; ``most`` of them may be read.

    Only a dry run needs no ``reason``.
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
    """Who asks for rows of tables (a name, or the beginning of names and `*`), and why.

    ``where`` is a plain condition, ``day`` the business day that the rows show.
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
    "/repairs", status_code=202, responses={202: answer(answers.Backfills), **NOT_FOUND}
)
def repair(parts: Parts, body: RepairRequest) -> JSONResponse:
    """Have rows read again that are named: 202; 400 if they are none of the table's."""
    if "reason" not in body.model_fields_set and not body.dry_run:
        raise ConfigError("reason: is required; only a dry run needs none")
    table = parts.table(body.table)
    fails = _fails(body.incident, table, parts)
    if body.incident:
        rows = found_wrong(table, fails, body.most)
    else:
        columns = parts.gate.roster.columns(table) if body.keys else ()
        rows = named(table, body.keys, body.ranges, body.most, columns)
    if body.dry_run:
        _require_previewable(rows, body.most)
    checks = tuple(sorted({one.check for one in fails})) if not body.dry_run else ()
    named_by, dry = body.incident, body.dry_run
    wish = RereadWish(Origin.REPAIR, rows, incident=named_by, checks=checks, dry=dry)
    return _asked([body.table], wish, body.reason, body.who, parts)


@REPAIR_ROUTES.post(
    "/replays", status_code=202, responses={202: answer(answers.Backfills), **NOT_FOUND}
)
def replay(parts: Parts, body: ReplayRequest) -> JSONResponse:
    """Have rows read again that meet a condition: 202; 400 if it is not plain, or none is meant."""
    condition = parsed(body.where) if body.where else None
    names = meant(body.tables, (table.name for table in parts.gate.roster.tables()))
    if not names:
        raise UnknownNameError(
            f"no table's name begins with {body.tables!r}; `sluice status` shows them"
        )
    for name in names:
        table = parts.table(name)
        if condition is not None:
            require_condition(table, condition, parts.gate.roster.columns(table))
    shown = None if body.day is None else _noon(body.day, parts)
    rows = RowsWished(where=body.where, most=body.most)
    wish = RereadWish(Origin.REPLAY, rows, shown, rate=body.rate)
    return _asked(names, wish, body.reason, body.who, parts)


def _asked(
    names: list[str], wish: RereadWish, reason: str, who: str, parts: ApiParts
) -> JSONResponse:
    """Record one for each of *names*, or none where another one stands in the way."""
    open_ones = {one.table: one for one in parts.store.rereads.open()}
    for name in names:
        if name in open_ones:
            require_same(open_ones[name], wish)
    made = [
        parts.store.rereads.add(
            RereadRequest(uuid.uuid4().hex[:12], name, reason, who, parts.clock(), wish=wish)
        )
        for name in names
    ]
    return backfills(made, parts, 202)


def _require_previewable(rows: RowsWished, most: int) -> None:
    """Refuse what no dry run can be of.

    Raises:
        ConfigError: says what else to ask for.
    """
    if rows.keys:
        raise ConfigError("a dry run is of ids: name ranges, or keys that are one integer each")
    if most > MOST_DRY:
        msg = f"a dry run is held in memory: of {MOST_DRY} rows at most, {most} may be (--most)"
        raise ConfigError(f"{msg}; look at fewer ranges at a time")


def _fails(incident: str, table: Table, parts: ApiParts) -> tuple[Verdict, ...]:
    """The newest verdicts of checks that name rows, if they are FAILs; of *incident* alone."""
    among = _checks_of(incident, table, parts) if incident else frozenset(NAMING)
    view = parts.current.board.table(table.name)
    found = () if view is None else view.verdicts
    return tuple(v for v in found if v.check in among and v.ruling.outcome is Outcome.FAIL)


def _checks_of(incident: str, table: Table, parts: ApiParts) -> frozenset[str]:
    found = parts.store.incidents.get(incident)
    if found is None:
        raise UnknownNameError(f"no incident {incident!r}; `sluice status` shows the open ones")
    if found.state is IncidentState.RESOLVED:
        raise ConfigError(f"incident {incident} is over: there is nothing to repair")
    checks = frozenset(one.check for one in found.members if one.table == table.name)
    if not checks & {*NAMING}:
        msg = f"incident {incident} names no rows of {table.name}; name them (--keys, --ranges)"
        raise ConfigError(f"{msg}, or take a new base: sluice bootstrap {quote(table.name)}")
    return checks & {*NAMING}


def _noon(day: date, parts: ApiParts) -> datetime:
    """The middle of a business day: that day whichever zone near by it is read in."""
    return datetime.combine(day, time(12), parts.gate.zone)
