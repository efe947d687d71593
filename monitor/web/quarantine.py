"""Serves the quarantine: unreadable messages are listed, shown, corrected and resent."""

import base64
import hashlib
import uuid
from collections.abc import Mapping
from typing import Annotated

import structlog
from fastapi import APIRouter, Query
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from monitor.quarantine import QuarantinedMessage
from monitor.store.requests import ResubmissionRecord
from monitor.web import answers, render
from monitor.web.answers import NOT_FOUND, declare_answer
from monitor.web.deps import ApiParts, Limit, Parts, Text
from pipeline.apply.account import main_and_error
from pipeline.changelog.reader import ErrorRow
from pipeline.errors import ConfigError, UnknownNameError

QUARANTINE_ROUTES = APIRouter(prefix="/v1")
LARGEST = 16 * 2**20  # characters of a corrected message
Letters = Annotated[int, Query(ge=0, le=LARGEST)]
Payload = Annotated[str, Field(max_length=LARGEST)]
NOTHING_KEPT = (
    "its bytes were not kept: it was empty, or a standard keeps it out of the lake;"
    " send the correct message with --text or --bytes"
)
log = structlog.get_logger(__name__)


class ResubmissionRequest(BaseModel):
    """Body of a request to resend a message: the correction, why, and who asks.

    Exactly one of three is set: ``text`` (the whole message as readable text), ``value`` (its bytes
    in base64), or ``unchanged`` (the original can be read by now). ``key`` is a text. ``schema_id``
    is the schema in which ``text`` is to be encoded.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: Text
    reason: Text
    who: Text
    text: Payload | None = None
    value: Payload | None = None
    unchanged: bool = False
    key: Payload | None = None
    schema_id: int | None = None


@QUARANTINE_ROUTES.get(
    "/quarantine", responses={200: declare_answer(answers.Quarantine), **NOT_FOUND}
)
def quarantine(
    parts: Parts, table: str | None = None, limit: Limit = 100, *, every: bool = False
) -> JSONResponse:
    """Quarantined messages, newest first, without values; and the count of each table."""
    errors = parts.error_table()
    found, counts = errors.rows(table, limit), errors.count()
    made, still = _newest(parts, [one.change for one in found]), errors.open(found)
    messages = [_row(one, made.get(one.change), open_=still[one.change]) for one in found]
    books = _books(parts, table)
    if table is not None and not (found or books or table in counts):
        parts.require_known(table)
    answered: answers.Quarantine = {
        "changes": [one for one in messages if every or one["state"] == "open"],
        "open": {name: count for name, count in counts.items() if table in (None, name)},
        "tables": books,
    }
    return render.Answer(answered)


@QUARANTINE_ROUTES.get(
    "/quarantine/message", responses={200: declare_answer(answers.QuarantinedMessage), **NOT_FOUND}
)
def message(parts: Parts, id: Text, letters: Letters = 0) -> JSONResponse:  # noqa: A002
    """One message, with the beginning of its text; 404 if the id is unknown."""
    errors = parts.error_table()
    one = errors.message(id)
    if letters:
        log.info("quarantined message shown", change=id, characters=letters)
    made, still = _newest(parts, [id]), errors.open([one.row])
    row = _row(one.row, made.get(id), open_=still[one.row.change])
    return render.Answer(_render_message(one, row, letters))


@QUARANTINE_ROUTES.post(
    "/resubmissions",
    status_code=202,
    responses={202: declare_answer(answers.Resubmission), **NOT_FOUND},
)
def resubmit(parts: Parts, body: ResubmissionRequest) -> JSONResponse:
    """Resend a corrected message: 202; 400 if it cannot be read either."""
    errors, name = parts.error_table(), body.id
    if (body.text is not None) + (body.value is not None) + body.unchanged != 1:
        raise ConfigError("no message to send; set one of text, value and unchanged")
    one = errors.message(name)
    value = one.value if body.value is None else _bytes(body.value)
    if body.unchanged and not one.value:
        raise ConfigError(f"{name}: {NOTHING_KEPT}")
    if body.text is not None:
        value = errors.written(one, body.text, body.schema_id)
    key = None if body.key is None else body.key.encode()
    asked = errors.corrected(one, value, key, uuid.uuid4().hex[:12])
    made = ResubmissionRecord(
        id=asked.id,
        change=asked.change,
        table=one.row.table or "",
        reason=body.reason,
        who=body.who,
        at=parts.clock(),
        original=hashlib.sha256(one.value).hexdigest(),
    )
    return render.Answer(_resubmission(parts.store.resubmissions.add(asked, made)), 202)


@QUARANTINE_ROUTES.get(
    "/resubmissions", responses={200: declare_answer(list[answers.Resubmission])}
)
def resubmissions(parts: Parts, limit: Limit = 100) -> JSONResponse:
    """Corrections of quarantined messages, newest first."""
    found = parts.store.resubmissions.list(limit=limit)
    return render.Answer([_resubmission(one) for one in found])


@QUARANTINE_ROUTES.get(
    "/resubmissions/{number}", responses={200: declare_answer(answers.Resubmission), **NOT_FOUND}
)
def resubmission(parts: Parts, number: str) -> JSONResponse:
    """One correction; 404 if the id is unknown."""
    found = parts.store.resubmissions.get(number)
    if found is None:
        raise UnknownNameError(
            f"unknown resubmission {number!r}; use GET /v1/resubmissions to list them"
        )
    return render.Answer(_resubmission(found))


def _newest(parts: ApiParts, changes: list[str]) -> Mapping[str, ResubmissionRecord]:
    found = parts.store.resubmissions.of(changes)
    return {one.change: one for one in reversed(found)}


def _row(
    one: ErrorRow, made: ResubmissionRecord | None, *, open_: bool
) -> answers.QuarantinedChange:
    landed = made is not None and made.batch is not None
    return {
        "id": one.change,
        "source": one.source,
        "shard": one.shard,
        "table": one.table,
        "batch": one.batch,
        "received": render.render_instant(one.received),
        "why": one.why,
        "bytes": one.size,
        "state": "corrected" if landed else "open" if open_ else "closed",
        "correction": None if made is None else _resubmission(made),
    }


def _render_message(
    one: QuarantinedMessage, row: answers.QuarantinedChange, characters: int
) -> answers.QuarantinedMessage:
    key = one.record.key if one.record is not None else None
    return {
        **row,
        "text": one.text[:characters],
        "letters": len(one.text),
        "unread": one.unread or None,
        "kept": bool(one.value),
        "value": base64.b64encode(one.value[:characters]).decode(),
        "schema_id": one.schema,
        "in_topic": one.record is not None,
        "key": base64.b64decode(key).decode("utf-8", "replace")[:characters] if key else None,
    }


def _resubmission(one: ResubmissionRecord) -> answers.Resubmission:
    return {
        "id": one.id,
        "change": one.change,
        "table": one.table or None,
        "reason": one.reason,
        "who": one.who,
        "at": render.render_instant(one.at),
        "original_sha256": one.original,
        "ended": render.render_instant(one.ended) if one.ended else None,
        "batch": one.batch,
        "why": one.why or None,
    }


def _books(parts: ApiParts, table: str | None) -> list[answers.MainAndError]:
    """Return how many changes are in mirror and quarantine, by table, since the store exists."""
    terms: dict[str, dict[str, int]] = {}
    for (name, term), count in parts.store.accounts.totals().items():
        if table in (None, name):
            terms.setdefault(name, {})[term] = count
    books = {name: main_and_error(own) for name, own in sorted(terms.items())}
    return [
        {"table": n, "read": one.read, "main": one.main, "error": one.error, "lost": one.lost}
        for n, one in books.items()
        if one.error or one.lost or terms[n].get("corrected") or table is not None
    ]


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:  # also raised for characters that are not ASCII
        raise ConfigError(f"value is not base64: {error}") from error
