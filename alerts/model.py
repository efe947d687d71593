"""Defines incidents, notices, messages and silences as values.

An incident is one episode of one cause. The fingerprint of a cause is the same in every episode
and every process. The id of an incident names one episode.

A silence includes its start and excludes its end. A maintenance window is a silence that starts
in the future.
"""

import hashlib
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import lru_cache

from checks.model import Outcome, Ruling


class AlertKind(StrEnum):
    """The alert's name, and its page under ``docs/runbooks``; late and lost are never mixed."""

    LATE = "late"
    LOST = "lost"
    SUSPECT = "suspect"
    BLOCKED = "blocked"
    UNKNOWN = "unknown"
    SERVICE = "service"


class Severity(StrEnum):
    """How soon a person should look; listed from gravest to mildest."""

    CRITICAL = "critical"
    WARNING = "warning"
    INFO = "info"


class IncidentState(StrEnum):
    """The life of an incident; only the last is over."""

    PENDING = "pending"
    FIRING = "firing"
    RECOVERING = "recovering"
    RESOLVED = "resolved"


class Event(StrEnum):
    """Why a notice is sent."""

    FIRED = "fired"
    REPEATED = "repeated"
    CLEARED = "cleared"


@dataclass(frozen=True, slots=True)
class AlertPolicy:
    """What the operator decided for one finding.

    ``hold``: how long it must fail before the first notice; ``keep``: how long it must pass before
    it is over; ``repeat``: sent again after this long, None for once only.  ``muted``: no notice is
    sent *now*; who was notified before still gets the end of it.
    """

    hold: timedelta = timedelta()
    keep: timedelta = timedelta()
    repeat: timedelta | None = None
    severity: Severity = Severity.WARNING
    owner: str = ""
    channels: tuple[str, ...] = ()
    muted: bool = False


@dataclass(frozen=True, slots=True, order=True)
class Member:
    """One check of one table (or of ``source:NAME``, ``job:NAME``)."""

    table: str
    check: str


@dataclass(frozen=True, slots=True)
class Cause:
    """What an incident is about: one member, or what several verdicts blame in common.

    ``check`` is empty for a common cause; ``subject`` then is its text, else the table.
    """

    kind: AlertKind
    check: str
    subject: str

    @property
    def fingerprint(self) -> str:
        """Same cause, same fingerprint, in every episode and every process."""
        return _digest(self.kind, self.check, self.subject)


@dataclass(frozen=True, slots=True)
class CauseFinding:
    """What one round says about one cause; ``failing`` are its members not yet seen to pass."""

    cause: Cause
    outcome: Outcome
    ruling: Ruling
    failing: tuple[Member, ...]
    run: str = ""


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """A person acknowledged it: repeats stay silent until the loss grows, or the episode ends."""

    who: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Incident:
    """One episode of one cause.

    ``opened`` is its first FAIL, ``turned`` when it entered its state.  ``members`` were part of
    it at any time, ``failing`` are still.  ``ruling`` is that of the newest FAIL.
    ``notices`` counts what was sent; ``notified`` is when last, None if no notice was sent.
    ``before``: severities and owners of earlier notices that it no longer has, newest last.
    It also keeps every severity, owner and channel of its notices, as (kind, name).
    ``unheard``: since when it concerns somebody without a notice; None if everyone had one.
    ``worse``: when it last named rows that it had not named before; ends acknowledgements.
    """

    cause: Cause
    state: IncidentState
    opened: datetime
    turned: datetime
    seen: datetime
    ruling: Ruling
    members: tuple[Member, ...]
    failing: tuple[Member, ...]
    severity: Severity
    owner: str = ""
    channels: tuple[str, ...] = ()
    notices: int = 0
    notified: datetime | None = None
    acknowledged: Acknowledgement | None = None
    run: str = ""
    before: tuple[tuple[Severity, str], ...] = ()
    told: tuple[tuple[str, str], ...] = ()
    unheard: datetime | None = None
    worse: datetime | None = None

    @property
    def id(self) -> str:
        """Names this episode; stable for its life."""
        return _digest(self.cause.fingerprint, self.opened.isoformat())

    @property
    def tables(self) -> tuple[str, ...]:
        """Tables that were part of it, sorted, each once."""
        return tuple(sorted({member.table for member in self.members}))


@dataclass(frozen=True, slots=True)
class Notice:
    """One telling of one incident, as it stood then."""

    event: Event
    incident: Incident
    at: datetime

    @property
    def fingerprint(self) -> str:
        """Same telling, same fingerprint: the outbox takes each once per channel."""
        return _digest(self.incident.id, self.event, str(self.incident.notices))


@dataclass(frozen=True, slots=True)
class Message:
    """A notice in neutral words; each channel gives it its own form.  Holds no row values.

    ``id`` lets a receiver drop a repetition; ``incident`` and ``cause`` let it join tellings of
    one episode, and episodes of one cause.  ``ended`` is set by the event ``cleared`` alone.
    ``before`` is for receivers that know an alert by its severity and owner: those it had.
    ``acknowledged`` names who acknowledged the incident.
    """

    id: str
    incident: str
    cause: str
    event: Event
    kind: AlertKind
    severity: Severity
    check: str
    about: str
    tables: tuple[str, ...]
    subject: str
    body: str
    owner: str
    runbook: str
    at: datetime
    opened: datetime
    ended: datetime | None = None
    before: tuple[tuple[Severity, str], ...] = ()
    acknowledged: str = ""


@lru_cache(maxsize=50_000)  # each verdict asks for those of all open incidents several times
def _digest(*parts: str) -> str:
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=8).hexdigest()


@dataclass(frozen=True, slots=True)
class Silence:
    """No notice is sent about what matches, from ``start`` until (excluded) ``end``.

    A maintenance window is a silence with its start in the future.  Patterns are globs.
    """

    id: str
    start: datetime
    end: datetime
    who: str
    reason: str
    tables: str = "*"
    checks: str = "*"

    def covers(self, member: Member, now: datetime) -> bool:
        """Whether *member* is silenced at *now*."""
        if not self.start <= now < self.end:
            return False
        return fnmatchcase(member.table, self.tables) and fnmatchcase(member.check, self.checks)
