"""What is read again from its source: asked for, looked at, given up."""

import re
import uuid
from collections.abc import Iterable

from fastapi import APIRouter
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict

from monitor.observe.rechecks import awaits_checks
from monitor.observe.reread_progress import progress
from monitor.store.rereads import RereadRequest, RereadWish
from monitor.web import answers, render
from monitor.web.answers import NOT_FOUND, answer
from monitor.web.bounds import Limit, Rate, TableNames, Text
from monitor.web.parts import ApiParts, Parts
from pipeline.backfill_state import Preview
from pipeline.errors import ConfigError, UnknownNameError
from pipeline.model import Origin, Shard

REREAD_ROUTES = APIRouter(prefix="/v1")


class BootstrapRequest(BaseModel):
    """Who asks for new bases, and why."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    tables: TableNames
    reason: Text
    who: Text
    rate: Rate = 0


@REREAD_ROUTES.get("/bootstraps", responses={200: answer(list[answers.Backfill])})
def bootstraps(parts: Parts, limit: Limit = 100) -> JSONResponse:
    """Bases that were asked for, newest first."""
    found = parts.store.rereads.list(limit=limit)
    bases = [one for one in found if one.wish.origin is Origin.SNAPSHOT]
    return render.Answer([reread(one, parts) for one in bases])


@REREAD_ROUTES.post(
    "/bootstraps", status_code=202, responses={202: answer(answers.Backfills), **NOT_FOUND}
)
def bootstrap(parts: Parts, body: BootstrapRequest) -> JSONResponse:
    """Have tables read again: 202; one that is being read already goes on. 404: no such table."""
    for name in body.tables:
        _require(name, parts)
    wish = RereadWish(rate=body.rate)
    asked = [
        parts.store.rereads.add(
            RereadRequest(
                uuid.uuid4().hex[:12], name, body.reason, body.who, parts.clock(), wish=wish
            )
        )
        for name in dict.fromkeys(body.tables)
    ]
    return backfills(asked, parts, 202)


@REREAD_ROUTES.post("/rereads/cancelled", responses={200: answer(answers.Backfills), **NOT_FOUND})
def cancel(parts: Parts, body: BootstrapRequest) -> JSONResponse:
    """Give up what is read of tables (`shop.*`: of all that begin so) now.

    400 if nothing of them is being read, 404 if there is no such table.
    """
    open_ones = {one.table: one for one in parts.store.rereads.open()}
    ended = dict[str, RereadRequest]()
    for name in body.tables:
        found = meant(name, open_ones)
        if not open_ones.keys() >= {*found} or not found:
            if found:
                parts.table(name)
            raise ConfigError(f"{name} is not being read now; nothing was recorded")
        ended |= {one: open_ones[one] for one in found}
    why = f"cancelled by {body.who}: {body.reason}"
    for one in ended.values():
        parts.store.rereads.cancel(one.id, why, parts.clock())
    kept = (parts.store.rereads.get(one.id) or one for one in ended.values())
    return backfills(kept, parts)


@REREAD_ROUTES.get("/rereads", responses={200: answer(list[answers.Backfill])})
def rereads(parts: Parts, limit: Limit = 100) -> JSONResponse:
    """All that was read again from its source, or is: newest first."""
    return render.Answer([reread(one, parts) for one in parts.store.rereads.list(limit=limit)])


def backfills(some: Iterable[RereadRequest], parts: ApiParts, status: int = 200) -> JSONResponse:
    """The answer to whoever asked for *some*, or cancelled them."""
    made: answers.Backfills = {"rereads": [reread(one, parts) for one in some]}
    return render.Answer(made, status)


def meant(text: str, names: Iterable[str]) -> list[str]:
    """The table that *text* names, or with `*` at its end those of *names* that begin so."""
    begins = re.fullmatch(r"([^*]+)\*", text)
    return [text] if begins is None else [name for name in names if name.startswith(begins[1])]


def _require(name: str, parts: ApiParts) -> None:
    """Refuse a table of which nothing has landed, no statement tells, and no source has it.

    Raises:
        UnknownNameError: there is none.
    """
    if parts.gate.roster.table(name) is not None:
        return
    for shard in parts.gate.roster.existing():
        if Shard.parse(shard).name == name:
            return
    if parts.gate.roster.has_source_of(name):
        return
    msg = f"no table {name!r}: none of its changes has landed, and no source has it now"
    raise UnknownNameError(f"{msg}; `sluice status` shows the tables")


def reread(one: RereadRequest, parts: ApiParts) -> answers.Backfill:
    """All that is known of one, for programs."""
    rows, now = one.wish.rows, parts.clock()
    far = progress(one, parts.estimates, now)
    return {
        "id": one.id,
        "kind": one.kind,
        "table": one.table,
        "keys": [key.values for key in rows.keys],
        "ranges": [[span.first, span.last] for span in rows.ranges],
        "where": rows.where,
        "shown": render.instant(one.wish.shown) if one.wish.shown else None,
        "incident": one.wish.incident,
        "checks": list(one.wish.checks),
        "unchecked": list(one.unchecked),
        "awaits_checks": awaits_checks(one, now),
        "proofs": [
            {"check": p.check, "passed": p.passed, "at": render.instant(p.at), "reason": p.reason}
            for p in one.proofs
        ],
        "reason": one.reason,
        "who": one.who,
        "at": render.instant(one.at),
        "ended": render.instant(one.ended) if one.ended else None,
        "done": one.done,
        "rows": one.rows,
        "preview": _preview(one),
        "about": far.about,
        "rate": far.rate,
        "left": None if far.left is None else far.left.total_seconds(),
        "brakes": list(far.brakes),
        "told": far.told,
        "why": one.why,
        "shards": [
            {"shard": s.shard, "rows": s.rows, "done": s.done is not None, "why": s.why}
            for s in one.states
        ],
    }


def _preview(one: RereadRequest) -> answers.Preview | None:
    """What a dry run has found, of all shards."""
    if not one.wish.dry or not one.done:
        return None
    found = Preview()
    for state in one.states:
        found = found.with_more(state.preview or Preview())
    return {
        "missing": found.missing,
        "extra": found.extra,
        "different": found.different,
        "keys": list(found.keys),
    }
