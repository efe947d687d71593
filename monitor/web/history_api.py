"""What was decided: certificates, verdicts, incidents, and the waivers of people."""

from typing import Annotated

from fastapi import APIRouter, HTTPException, Query
from fastapi.responses import JSONResponse
from pydantic import AwareDatetime, BaseModel, ConfigDict

from alerts.model import IncidentState
from checks.waivable import waivable
from monitor.store.waivers import Waiver
from monitor.web import render
from monitor.web.bounds import Limit, Text
from monitor.web.parts import Parts
from pipeline.errors import ConfigError

HISTORY_ROUTES = APIRouter(prefix="/v1")


class WaiverRequest(BaseModel):
    """Who closes what, and why."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: Text
    reason: Text
    who: Text
    until: AwareDatetime | None = None


class WithdrawalRequest(BaseModel):
    """Who withdraws a waiver, and why."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    reason: Text
    who: Text


class AckRequest(BaseModel):
    """Who has an incident in hand."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    who: Text


@HISTORY_ROUTES.get("/certificates/{number}")
def certificate(parts: Parts, number: str) -> render.Json:
    """A READY answer with its evidence, and whether it still holds."""
    found = parts.store.certificates.get(number)
    if found is None:
        raise HTTPException(404, f"no certificate {number!r}")
    return render.certificate(found)


@HISTORY_ROUTES.get("/states")
def states(parts: Parts) -> list[render.Json]:
    """What every table is at, those that are retired as well."""
    board = parts.current.board
    lives = [*(view.life for view in board.tables if view.life), *board.retired]
    found = sorted(lives, key=lambda one: one.table)
    return [{"table": one.table, **render.life(one)} for one in found]


@HISTORY_ROUTES.get("/tables/{table:path}/states")
def transitions(parts: Parts, table: str) -> list[render.Json]:
    """What a table was at, newest first; as far back as its last hundred states."""
    return [render.life(one) for one in parts.store.table_states.list(table)]


@HISTORY_ROUTES.get("/verdicts")
def verdicts(
    parts: Parts, table: str | None = None, check: str | None = None, limit: Limit = 100
) -> list[render.Json]:
    """Verdicts that were kept, newest first: each change, and of what lasts one an hour.

    ``looked`` is when the check last ran and ``now`` what it said then, by the last round.
    """
    found = parts.store.verdicts.list(table=table, check=check, limit=limit)
    names = {one.table for one in found}
    views = [view for view in parts.current.board.tables if view.table.name in names]
    newest = {(one.table, one.check): one for view in views for one in view.verdicts}
    return [render.verdict(one, newest.get((one.table, one.check))) for one in found]


@HISTORY_ROUTES.get("/incidents")
def incidents(
    parts: Parts,
    state: Annotated[list[IncidentState], Query()] = [],  # noqa: B006  - FastAPI copies it
    limit: Limit = 100,
) -> list[render.Json]:
    """Incidents, newest first; without a state only open ones."""
    open_ones = [one for one in IncidentState if one is not IncidentState.RESOLVED]
    found = parts.store.incidents.list(state or open_ones, limit=limit)
    return [render.incident(one) for one in found]


@HISTORY_ROUTES.post("/incidents/{number:path}/acknowledgement")
def acknowledge(parts: Parts, number: str, body: AckRequest) -> render.Json:
    """Somebody has it in hand: it is not repeated; 400 if no such incident is open."""
    if not parts.store.incidents.acknowledge(number, body.who, parts.clock()):
        msg = f"no open incident {number!r}; nothing was recorded"
        raise ConfigError(f"{msg}; `sluice status` shows the ids")
    return {"id": number, "acknowledged": body.who}


@HISTORY_ROUTES.get("/waivers")
def waivers(parts: Parts) -> list[render.Json]:
    """What people have closed by name."""
    return [_waiver(one) for one in parts.store.waivers.list()]


@HISTORY_ROUTES.post("/waivers")
def waive(parts: Parts, body: WaiverRequest) -> JSONResponse:
    """Close something by name: 201, or 200 if it was before.

    400 if no name looks like that, 404 if nothing has it now.
    """
    if not waivable(body.id):
        msg = f"{body.id} is no id of anything that can be waived; nothing was recorded"
        raise ConfigError(f"{msg}; `sluice explain TABLE` shows the ids")
    if body.id not in parts.store.waivers.waived() and not parts.borne(body.id):
        msg = f"nothing is named {body.id} now; nothing was recorded"
        raise HTTPException(404, f"{msg}; `sluice explain TABLE` shows the ids")
    now = parts.clock()
    if body.until is not None and body.until <= now:
        raise ConfigError(f"until: {body.until.isoformat()} is over; give a later time")
    waiver = Waiver(body.id, body.reason, body.who, now, body.until)
    added = parts.store.waivers.add(waiver)
    return JSONResponse({**_waiver(waiver), "new": added}, 201 if added else 200)


@HISTORY_ROUTES.delete("/waivers/{id_:path}")
def withdraw_waiver(parts: Parts, id_: str, body: WithdrawalRequest) -> render.Json:
    """End a waiver: what it covered blocks again; 404 if none of that id is open.

    What Sluice has done under it meanwhile, such as letting a batch through, stays done.
    """
    now = parts.clock()
    if not parts.store.waivers.withdraw(id_, who=body.who, why=body.reason, at=now):
        msg = f"no open waiver {id_!r}; nothing was recorded"
        raise HTTPException(404, f"{msg}; GET /v1/waivers lists them")
    return {"id": id_, "withdrawn": render.instant(now)}


def _waiver(one: Waiver) -> render.Json:
    told = {"id": one.id, "reason": one.reason, "who": one.who, "at": render.instant(one.at)}
    if one.until is not None:
        told["until"] = render.instant(one.until)
    if one.withdrawn is not None:
        told |= {"withdrawn": render.instant(one.withdrawn), "withdrawn_by": one.withdrawn_by}
        told["withdrawn_why"] = one.withdrawn_why
    return told
