"""Tables whose merges stand still because somebody wants it: paused, looked at, resumed."""

from fastapi import APIRouter
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict

from checks.blocks import Pause
from monitor.nearest import alike
from monitor.store.pauses import PauseRecord
from monitor.web import answers, render
from monitor.web.answers import NOT_FOUND, answer
from monitor.web.bounds import Limit, TableNames, Text, end_after
from monitor.web.parts import Parts
from pipeline.errors import ConfigError

PAUSE_ROUTES = APIRouter(prefix="/v1")


class PauseRequest(BaseModel):
    """Who pauses which tables, why, and ``until`` when: an instant, or for how long."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    tables: TableNames
    reason: Text
    who: Text
    until: Text | None = None


class ResumeRequest(BaseModel):
    """Who lets which tables go on."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    tables: TableNames
    who: Text


@PAUSE_ROUTES.get("/pauses", responses={200: answer(list[answers.Pause])})
def pauses(parts: Parts, limit: Limit = 100) -> JSONResponse:
    """What was paused, newest first."""
    found = parts.store.pauses.list(parts.clock(), limit=limit)
    return render.Answer([_told(one) for one in found])


@PAUSE_ROUTES.post("/pauses", status_code=201, responses={201: answer(answers.Pauses), **NOT_FOUND})
def pause(parts: Parts, body: PauseRequest) -> JSONResponse:
    """Merge nothing into tables until they are resumed: 201; 404 if there is no such table."""
    now = parts.clock()
    until = None if body.until is None else end_after(body.until, now)
    for name in body.tables:
        parts.table(name)
    made = [
        parts.store.pauses.begin(Pause(name, body.reason, body.who, now, until))
        for name in dict.fromkeys(body.tables)
    ]
    began: answers.Pauses = {"pauses": [_told(PauseRecord(one, now)) for one in made]}
    return render.Answer(began, 201)


@PAUSE_ROUTES.post("/pauses/ended", responses={200: answer(answers.Pauses), **NOT_FOUND})
def resume(parts: Parts, body: ResumeRequest) -> JSONResponse:
    """Let tables go on; 400 if one of them is not paused, 404 without such a table."""
    now = parts.clock()
    standing = parts.store.pauses.standing(now)
    for name in body.tables:
        if name not in standing:
            parts.table(name)
            paused = alike(name, sorted(standing)) if standing else "none"
            raise ConfigError(f"{name} is not paused; nothing was recorded; paused: {paused}")
    for name in body.tables:
        parts.store.pauses.resume(name, body.who, now)
    ended = [PauseRecord(standing[name], now, now, body.who) for name in dict.fromkeys(body.tables)]
    made: answers.Pauses = {"pauses": [_told(one) for one in ended]}
    return render.Answer(made)


def _told(one: PauseRecord) -> answers.Pause:
    pause = one.pause
    return {
        "table": pause.table,
        "reason": pause.reason,
        "who": pause.who,
        "since": render.instant(pause.since),
        "at": render.instant(one.at),
        "until": render.instant(pause.until) if pause.until else None,
        "ended": render.instant(one.ended) if one.ended else None,
        "ended_by": one.ended_by or None,
    }
