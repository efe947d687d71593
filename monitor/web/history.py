"""Serves past decisions, the lineage of columns, and the partitions that got rows.

Decisions are certificates, verdicts, table states, incidents and waivers. Lineage accepts the table
name of either side. Arrivals exist only for sources whose rows come in partitions.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict

from alerts.model import Incident, IncidentState
from checks.blocks import is_closed_for_good, is_waivable
from checks.run import probe_names as probes
from monitor.display_text import similar_names
from monitor.store.alerts import Waiver
from monitor.web import answers, render
from monitor.web.answers import NOT_FOUND, declare_answer
from monitor.web.deps import ApiParts, Limit, Parts, Text, end_after
from pipeline.apply.lineage import ColumnLink
from pipeline.errors import ConfigError, UnknownNameError, UnreachableError
from pipeline.model import Shard
from pipeline.sources.source import PartitionArrivals

MOST_LOOKED_AT = 1_000  # newest verdicts that are searched for names of checks
_BOOTSTRAP = "sluice bootstrap TABLE --reason ..."
HISTORY_ROUTES = APIRouter(prefix="/v1")


class WaiverRequest(BaseModel):
    """Body of a request to waive an id; ``until`` is an instant or a duration."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: Text
    reason: Text
    who: Text
    until: Text | None = None


class WithdrawalRequest(BaseModel):
    """Body of a request to withdraw a waiver: who and why."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    reason: Text
    who: Text


class AckRequest(BaseModel):
    """Body of a request to acknowledge an incident: who."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    who: Text


@HISTORY_ROUTES.get(
    "/certificates/{number}", responses={200: declare_answer(answers.Certificate), **NOT_FOUND}
)
def certificate(parts: Parts, number: str) -> JSONResponse:
    """A READY answer with its evidence, and whether it still holds."""
    found = parts.store.certificates.get(number)
    if found is None:
        raise UnknownNameError(
            f"unknown certificate {number!r}; READY answers of the gate have the ids"
        )
    return render.Answer(render.render_certificate(found))


@HISTORY_ROUTES.get("/states", responses={200: declare_answer(list[answers.TableStateSince])})
def states(parts: Parts) -> JSONResponse:
    """The state of every table, retired tables included."""
    board = parts.current.board
    table_states = [*(view.life for view in board.tables if view.life), *board.retired]
    found = sorted(table_states, key=lambda one: one.table)
    rendered: list[answers.TableStateSince] = [
        {"table": one.table, **render.render_state(one)} for one in found
    ]
    return render.Answer(rendered)


@HISTORY_ROUTES.get(
    "/tables/{table:path}/states",
    responses={200: declare_answer(list[answers.StateSince]), **NOT_FOUND},
)
def transitions(parts: Parts, table: str) -> JSONResponse:
    """The last hundred states of a table, newest first."""
    found = parts.store.table_states.list(table)
    if not found:
        parts.require_known(table)
    return render.Answer([render.render_state(one) for one in found])


@HISTORY_ROUTES.get(
    "/verdicts", responses={200: declare_answer(list[answers.Verdict]), **NOT_FOUND}
)
def verdicts(
    parts: Parts, table: str | None = None, check: str | None = None, limit: Limit = 100
) -> JSONResponse:
    """Stored verdicts, newest first: each change, and one per hour without a change.

    ``looked`` is when the check last ran, and ``now`` is its last result.
    """
    found = parts.store.verdicts.list(table=table, check=check, limit=limit)
    if not found:
        _require_named(parts, table, check)
    names = {one.table for one in found}
    views = [view for view in parts.current.board.tables if view.table.name in names]
    newest = {(one.table, one.check): one for view in views for one in view.verdicts}
    rendered = [render.render_verdict(one, newest.get((one.table, one.check))) for one in found]
    return render.Answer(rendered)


@HISTORY_ROUTES.get(
    "/checks", responses={200: declare_answer(list[answers.WaitingCheck]), **NOT_FOUND}
)
def waiting_checks(parts: Parts, table: Text) -> JSONResponse:
    """Checks whose last run on a table gave no verdict, with the reason.

    They have nothing to compare, nothing new, or nothing yet.
    """
    parts.require_known(table)
    found: list[answers.WaitingCheck] = [
        {"check": check, "why": why} for check, why in sorted(parts.waits(table).items())
    ]
    return render.Answer(found)


def _require_named(parts: ApiParts, table: str | None, check: str | None) -> None:
    """Refuse names without a verdict, unless a table or a probe without one yet has the name."""
    if table is not None:
        parts.require_known(table)
    if check is None or "." in check or parts.store.verdicts.list(check=check, limit=1):
        return  # a custom probe is a module, so its name has a dot
    kept = {one.check for one in parts.store.verdicts.list(limit=MOST_LOOKED_AT)}
    known = kept.union(probes())
    if check not in known:
        raise UnknownNameError(
            f"unknown check {check!r}; known: {similar_names(check, sorted(known))}"
        )


@HISTORY_ROUTES.get("/incidents", responses={200: declare_answer(list[answers.Incident])})
def incidents(
    parts: Parts,
    state: Annotated[list[IncidentState], Query()] = [],  # noqa: B006  - FastAPI copies it
    limit: Limit = 100,
) -> JSONResponse:
    """Incidents, newest first; without a state only open ones."""
    open_ones = [one for one in IncidentState if one is not IncidentState.RESOLVED]
    found = _list_incidents(parts, state or open_ones, limit)
    repairs = parts.current.board.repairs
    return render.Answer([render.render_incident(one, repairs) for one in found])


@HISTORY_ROUTES.get(
    "/incidents/{number}", responses={200: declare_answer(answers.WholeIncident), **NOT_FOUND}
)
def incident(parts: Parts, number: str) -> JSONResponse:
    """One incident, open or ended, with all keys that it keeps, and their columns."""
    found = _unstored(parts).get(number) or parts.store.incidents.get(number)
    if found is None:
        raise UnknownNameError(f"no incident {number!r}; run `sluice status` to list the ids")
    return render.Answer(render.render_whole_incident(found, parts.current.board.repairs))


@HISTORY_ROUTES.post(
    "/incidents/{number:path}/acknowledgement",
    responses={200: declare_answer(answers.Acknowledgement), **NOT_FOUND},
)
def acknowledge(parts: Parts, number: str, body: AckRequest) -> JSONResponse:
    """Acknowledge an incident: 400 if it has ended, 404 if it is unknown."""
    problem, unstored = parts.store.database.problem, _unstored(parts)
    if not parts.store.incidents.acknowledge(number, body.who, parts.clock()):
        if number in unstored:
            raise UnreachableError(problem)
        kind = UnknownNameError if parts.store.incidents.get(number) is None else ConfigError
        msg = f"no open incident {number!r}"
        raise kind(f"{msg}; run `sluice status` to list the ids")
    made: answers.Acknowledgement = {"id": number, "acknowledged": body.who}
    return render.Answer(made)


def _list_incidents(parts: ApiParts, states: Sequence[IncidentState], limit: int) -> list[Incident]:
    """Return incidents in any of *states*, newest first, including those not stored yet."""
    stored = {one.id: one for one in parts.store.incidents.list(states, limit=limit)}
    every = {**stored, **_unstored(parts)}.values()
    found = [one for one in every if one.state in states]
    return sorted(found, key=lambda one: (-one.opened.timestamp(), one.id))[:limit]


def _unstored(parts: ApiParts) -> Mapping[str, Incident]:
    """Return open incidents by id that the service keeps while its store accepts no writes."""
    if not parts.store.database.problem:
        return {}
    return {one.id: one for one in parts.current.board.incidents}


@HISTORY_ROUTES.get("/waivers", responses={200: declare_answer(list[answers.Waiver])})
def waivers(parts: Parts) -> JSONResponse:
    """Waivers, newest first."""
    return render.Answer([_waiver(one) for one in parts.store.waivers.list()])


@HISTORY_ROUTES.post(
    "/waivers",
    status_code=201,
    responses={
        201: declare_answer(answers.RecordedWaiver, "The waiver is recorded"),
        200: declare_answer(
            answers.RecordedWaiver, "The same waiver was open before; nothing was recorded"
        ),
        **NOT_FOUND,
    },
)
def waive(parts: Parts, body: WaiverRequest) -> JSONResponse:
    """Waive an id: 201, or 200 if the same waiver was open before.

    400 if the id is malformed, 404 if nothing has this id now.
    """
    if not is_waivable(body.id):
        msg = f"{body.id!r} is not the id of a gap, hold, quarantined change or key"
        raise ConfigError(f"{msg}; run `sluice explain TABLE` to list the ids")
    if body.id not in parts.store.waivers.waived() and not parts.borne(body.id):
        msg = f"nothing has the id {body.id!r} now"
        raise UnknownNameError(f"{msg}; run `sluice explain TABLE` to list the ids")
    now = parts.clock()
    until = None if body.until is None else end_after(body.until, now)
    if until is not None and is_closed_for_good(body.id):
        msg = f"until: the next batch closes {body.id} for ever, so its waiver cannot end"
        raise ConfigError(f"{msg}; waive it without until, or run `{_BOOTSTRAP}`")
    waiver = Waiver(body.id, body.reason, body.who, now, until)
    added = parts.store.waivers.add(waiver)
    made: answers.RecordedWaiver = {**_waiver(waiver), "new": added}
    return render.Answer(made, 201 if added else 200)


@HISTORY_ROUTES.delete(
    "/waivers/{id_:path}", responses={200: declare_answer(answers.WithdrawnWaiver), **NOT_FOUND}
)
def withdraw_waiver(parts: Parts, id_: str, body: WithdrawalRequest) -> JSONResponse:
    """Withdraw a waiver, so that its id blocks again; 404 if none is open for this id.

    Batches that the waiver let through stay landed. 400 if a batch has closed the waived gap,
    because nothing would block again.
    """
    now, waived = parts.clock(), parts.store.waivers.waived()
    if id_ in waived and is_closed_for_good(id_) and not parts.borne(id_):
        msg = f"a batch has closed {id_} since it was waived"
        raise ConfigError(f"{msg}; to restore the lost changes, run `{_BOOTSTRAP}`")
    if not parts.store.waivers.withdraw(id_, who=body.who, why=body.reason, at=now):
        msg = f"no open waiver {id_!r}"
        raise UnknownNameError(f"{msg}; use GET /v1/waivers to list them")
    made: answers.WithdrawnWaiver = {"id": id_, "withdrawn": render.render_instant(now)}
    return render.Answer(made)


def _waiver(one: Waiver) -> answers.Waiver:
    answer: answers.Waiver = {
        "id": one.id,
        "reason": one.reason,
        "who": one.who,
        "at": render.render_instant(one.at),
    }
    if one.until is not None:
        answer["until"] = render.render_instant(one.until)
    if one.withdrawn is not None:
        answer["withdrawn"] = render.render_instant(one.withdrawn)
        answer["withdrawn_by"], answer["withdrawn_why"] = one.withdrawn_by, one.withdrawn_why
    return answer


LINEAGE_ROUTES = APIRouter(prefix="/v1")


@LINEAGE_ROUTES.get(
    "/lineage", responses={200: declare_answer(list[answers.ColumnLink]), **NOT_FOUND}
)
def lineage(parts: Parts, name: Text) -> JSONResponse:
    """Each source column with its column of the mirror; 404 if the name is unknown."""
    return render.Answer([_render_link(one) for one in parts.lineage().of(name)])


def _render_link(one: ColumnLink) -> answers.ColumnLink:
    return {
        "source": one.shard.source,
        "shard": one.shard.name,
        "column": one.column,
        "type": one.type,
        "table": one.table,
        "mirror_column": one.column,
        "mirror_type": one.mirror_type,
        "standard": one.standard,
        "hidden": one.hides,
        "before": list(one.before),
    }


ARRIVAL_ROUTES = APIRouter(prefix="/v1")
Offset = Annotated[int, Query(ge=0)]


@ARRIVAL_ROUTES.get("/arrivals", responses={200: declare_answer(answers.Arrivals), **NOT_FOUND})
def arrivals(
    parts: Parts, source: str, after: Offset = 0, until: Offset | None = None
) -> JSONResponse:
    """Rows per partition from the source's offsets ``[after, until)``.

    Continue at ``until`` of the last answer to get each file once.
    """
    asked = parts.arrivals.get(source)
    if asked is None:
        known = similar_names(source, sorted(parts.arrivals))
        raise UnknownNameError(f"no source {source!r} with partitions; known: {known}")
    end = asked.end()
    until = end if until is None else min(until, end)
    found = asked.between(after, until)
    partitions: list[answers.Partition] = [
        {**_arrival_answer(parts, source, one), "late": one.late} for one in found
    ]
    made: answers.Arrivals = {
        "source": source,
        "after": after,
        "until": max(after, until),
        "partitions": partitions,
    }
    return render.Answer(made)


def late_arrivals(parts: ApiParts, since: datetime | None) -> list[answers.LatePartition]:
    """Return the rows that arrived late *since* then, for each partition; without images."""
    return [
        _arrival_answer(parts, source, one)
        for source, asked in parts.arrivals.items()
        for one in asked.late(since)
    ]


def _arrival_answer(parts: ApiParts, source: str, one: PartitionArrivals) -> answers.LatePartition:
    return {
        "table": _table(parts, Shard(source, one.shard)),
        "shard": one.shard,
        "partition": one.partition,
        "files": one.files,
        "rows": one.rows,
        "first": render.render_instant(one.first),
        "landed": render.render_instant(one.last),
    }


def _table(parts: ApiParts, shard: Shard) -> str | None:
    """Return the table whose mirror has the rows of *shard*; None before any has landed."""
    tables = (view.table for view in parts.current.board.tables)
    return next((one.name for one in tables if shard in one.shards), None)
