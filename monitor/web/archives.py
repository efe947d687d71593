"""Windows in which rows go to an archive: registered, looked at, and taken back."""

from fastapi import APIRouter
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict

from monitor.store.archives import ArchiveRecord, Withdrawal
from monitor.web import answers, render
from monitor.web.answers import NOT_FOUND, answer
from monitor.web.bounds import Instant, Text, Word
from monitor.web.parts import Parts
from pipeline.archive import ArchiveWindow, RegisteredWindow
from pipeline.errors import ConfigError

ARCHIVE_ROUTES = APIRouter(prefix="/v1")


class WindowRequest(BaseModel):
    """Who says that deletes of a table only move rows to an archive, when, which and why."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    table: Text
    since: Instant
    until: Instant
    reason: Text
    who: Text
    column: Word = ""
    before: Word = ""


class WithdrawalRequest(BaseModel):
    """Which window is taken back, by whom, and why."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: Word
    reason: Text
    who: Text


@ARCHIVE_ROUTES.get("/archives", responses={200: answer(list[answers.Archive])})
def archives(parts: Parts) -> JSONResponse:
    """What was registered, newest first; not what the config says."""
    return render.Answer([_told(one) for one in parts.store.archives.list()])


@ARCHIVE_ROUTES.post(
    "/archives",
    status_code=201,
    responses={201: answer(answers.RecordedArchive), **NOT_FOUND},
)
def keep(parts: Parts, body: WindowRequest) -> JSONResponse:
    """Keep rows that are deleted in a window: 201; 404 if there is no such table."""
    parts.table(body.table)
    told = (body.since, body.until, body.column, body.before, body.reason, body.who)
    window = ArchiveWindow(*told)
    if window.fault:
        raise ConfigError(f"{window.fault}; nothing was recorded")
    now, made = parts.clock(), RegisteredWindow(body.table, window)
    record, new = parts.store.archives.add(made, now)
    return render.Answer({"window": _told(record), "new": new}, 201)


@ARCHIVE_ROUTES.post(
    "/archives/withdrawals",
    status_code=201,
    responses={201: answer(answers.WithdrawnArchive), **NOT_FOUND},
)
def withdraw(parts: Parts, body: WithdrawalRequest) -> JSONResponse:
    """Let a window count no more: 201; 404 if none has this id."""
    word = Withdrawal(body.who, parts.clock(), body.reason)
    return render.Answer({"window": _told(parts.store.archives.withdraw(body.id, word))}, 201)


def _told(one: ArchiveRecord) -> answers.Archive:
    window, taken = one.registered.window, one.withdrawn
    return {
        "id": one.id,
        "table": one.registered.table,
        "since": render.instant(window.since),
        "until": render.instant(window.until),
        "column": window.column or None,
        "before": window.before or None,
        "reason": window.reason,
        "who": window.who,
        "at": render.instant(one.at),
        "withdrawn": {"who": taken.who, "at": render.instant(taken.at), "reason": taken.reason}
        if taken
        else None,
    }
