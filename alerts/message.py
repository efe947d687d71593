"""Composes the message of a notice from tables, checks, keys and ranges.

A message never holds row values. Text keys may be e-mail addresses, so they are hidden unless
`text_keys` is set. A key is a JSON array of strings, as in the change log. Of these, source, shard
and the integers of integer columns are shown. If the types of the columns are not known, all
strings are hidden.
"""

import json
import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from shlex import quote

from alerts.model import AlertKind, Cause, Event, Incident, Message, Notice
from checks.model import MOST_KEYS
from pipeline.formats.json_text import INTEGER

HIDDEN = "\u2026"
_SOURCE_AND_SHARD = 2  # they come before the key, unless keys are unique across shards
_ARRAY = re.compile(r'\[(?:[^\[\]"]|"(?:[^"\\]|\\.)*")*\]')


def hide_text_keys(
    text: str, integer_parts: Sequence[bool] = (), keys: Collection[str] = ()
) -> str:
    """Return *text* with strings inside a JSON array replaced by an ellipsis.

    Of an array that one of *keys* contains, source, shard and integers are kept. *integer_parts*
    is, for each key column, whether it holds integers.
    """
    named = {array for key in keys for array in _ARRAY.findall(key)} if integer_parts else set()

    def hide(found: re.Match[str]) -> str:
        return _without_strings(found[0], integer_parts if found[0] in named else ())

    return _ARRAY.sub(hide, text)


def _without_strings(array: str, integer_parts: Sequence[bool]) -> str:
    try:
        key = json.loads(array)
    except ValueError:
        return array  # a range such as [100, 120), or other text in brackets
    if not any(isinstance(part, str) for part in key):
        return array
    before = len(key) - len(integer_parts)
    known = integer_parts and before in (0, _SOURCE_AND_SHARD)
    integers = [*(None,) * before, *integer_parts] if known else [False] * len(key)
    shown = [_hide_part(part, integer) for part, integer in zip(key, integers, strict=True)]
    return json.dumps(shown, ensure_ascii=False)


def _hide_part(part: object, integer: bool | None) -> object:
    """Return *part*, or an ellipsis; *integer* is None for source and shard."""
    if not isinstance(part, str) or integer is None:
        return part
    return part if integer and INTEGER.fullmatch(part) else HIDDEN


_SUBJECT_CHARACTERS = 200
_TABLES_IN_SUBJECT = 3
_TABLES_IN_BODY = 50
_OPENING = {Event.FIRED: "", Event.REPEATED: "still ", Event.CLEARED: "resolved: "}


def compose_message(
    notice: Notice, runbooks: str = "docs/runbooks", *, text_keys: bool = False
) -> Message:
    """Return the message of *notice*; *runbooks* is the folder or address of its runbook link.

    Text keys are hidden unless *text_keys* is set; the page and `sluice explain` show them.
    """
    if not text_keys:
        notice = _without_text_keys(notice)
    incident = notice.incident
    cause = incident.cause
    runbook = runbook_page(incident, runbooks)
    return Message(
        id=notice.fingerprint,
        incident=incident.id,
        cause=cause.fingerprint,
        event=notice.event,
        kind=cause.kind,
        severity=incident.severity,
        check=cause.check,
        about=cause.subject,
        tables=incident.tables,
        subject=_subject(notice),
        body=_body(notice, runbook),
        owner=incident.owner,
        runbook=runbook,
        at=notice.at,
        opened=incident.opened,
        ended=notice.at if notice.event is Event.CLEARED else None,
        before=incident.before,
        acknowledged=incident.acknowledged.who if incident.acknowledged else "",
    )


def _without_text_keys(notice: Notice) -> Notice:
    ruling = notice.incident.ruling
    hide = partial(hide_text_keys, integer_parts=ruling.integer_parts, keys=ruling.keys)
    redacted = replace(ruling, reason=hide(ruling.reason), keys=tuple(map(hide, ruling.keys)))
    return replace(notice, incident=replace(notice.incident, ruling=redacted))


def runbook_page(incident: Incident, runbooks: str) -> str:
    """Return the runbook section of the check; for a common cause, that of the failed part."""
    cause, members = incident.cause, incident.members
    own = {member.check for member in members if member.table == cause.subject}
    checks = own or {member.check for member in members}
    check = cause.check or (next(iter(checks)) if len(checks) == 1 else "")
    return f"{runbooks.rstrip('/')}/{cause.kind}.md" + (f"#{check}" if check else "")


def _subject(notice: Notice) -> str:
    """`LOST shop.orders range_counts: 2 rows short in ids [100, 120)`, on one line."""
    incident = notice.incident
    check = f" {incident.cause.check}" if incident.cause.check else ""
    what = incident.ruling.reason
    if not incident.cause.check and incident.cause.subject not in what:
        what = f"{incident.cause.subject}: {what}"
    text = f"{_OPENING[notice.event]}{_word(incident)} {_names(incident)}{check}: {what}"
    line = " ".join(text.split())
    return line if len(line) <= _SUBJECT_CHARACTERS else line[: _SUBJECT_CHARACTERS - 1] + "…"


def _word(incident: Incident) -> str:
    """Return the kind in capitals, but `EXTRA` for a loss whose rows only the mirror has."""
    return "EXTRA" if _is_extra(incident) else incident.cause.kind.upper()


def _is_extra(incident: Incident) -> bool:
    return incident.cause.kind is AlertKind.LOST and incident.ruling.code in EXTRA_CODES


def _names(incident: Incident) -> str:
    tables = incident.tables
    if len(tables) <= _TABLES_IN_SUBJECT:
        return ", ".join(tables)
    return f"{len(tables)} tables"


def _body(notice: Notice, runbook: str) -> str:
    incident = notice.incident
    cause = incident.cause
    facts = {
        "what": incident.ruling.reason,
        "code": incident.ruling.code,
        "keys": _join_keys(incident),
        "cause": "" if cause.check else cause.subject,
        "check": cause.check or ", ".join(sorted({member.check for member in incident.members})),
        "tables": _join_some(incident.tables),
        "since": _moment(incident.opened),
        "until": _moment(notice.at) if notice.event is Event.CLEARED else "",
        "owner": incident.owner or "none; set `owner` in alerts.routes",
        "meaning": _explain_kind(cause),
        "what now": runbook,
        "incident": incident.id,
        "run": incident.run,
    }
    return "\n".join(f"{name}: {value}" for name, value in facts.items() if value)


def _explain_kind(cause: Cause) -> str:
    own = _OF_LEDGERS.get(cause.check) if cause.kind is AlertKind.LOST else None
    return own or _MEANING[cause.kind]


def _join_keys(incident: Incident) -> str:
    """Return the first keys, and how to list the others."""
    keys = incident.ruling.keys
    shown, rest = ", ".join(keys[:MOST_KEYS]), len(keys[MOST_KEYS:])
    listed = f"; run `sluice status --incident {quote(incident.id)}` to list all"
    return f"{shown} and {rest} more{listed}" if rest else shown


def _join_some(tables: tuple[str, ...]) -> str:
    rest = len(tables) - _TABLES_IN_BODY
    return ", ".join(tables[:_TABLES_IN_BODY]) + (f" and {rest} more" if rest > 0 else "")


def _moment(instant: datetime) -> str:
    return instant.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


EXTRA_CODES = ("extra_rows", "extra_events", "mirror_ahead")
"""Codes of a FAIL in which the lake has something that the source does not have."""
_MEANING = {
    AlertKind.LATE: "changes arrive late; nothing is known to be missing",
    AlertKind.LOST: "source and mirror differ at one position; repair the rows",
    AlertKind.SUSPECT: "the rate or values are unusual; check the table",
    AlertKind.BLOCKED: "merging is stopped; fix or waive the cause below",
    AlertKind.UNKNOWN: "a fact is missing, so the table can be proven neither right nor wrong",
    AlertKind.SERVICE: "Sluice itself has a problem; its other verdicts may be old",
}
_OF_LEDGERS = {
    "ledger": "rows were lost or doubled on their way into the mirror; take a new base",
    "copy_ledger": "a copy differs from its mirror, which is not affected; load the copy again",
}
"""Check -> its meaning; these checks count rows without naming them, so no repair ends them."""
