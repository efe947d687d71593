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
    """Kind of an alert, and its page in ``docs/runbooks``; late and lost are never mixed."""

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
    """States of an incident; only a resolved incident is over."""

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
    """What the operator configured for one finding.

    ``hold``: how long it must fail before the first notice.  ``keep``: how long it must pass before
    the incident ends.  ``repeat``: time until the next notice; None sends only one.  ``muted``: no
    notice is sent now, but receivers of earlier notices are notified of the end.
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
    """The cause of an incident: one member, or a cause that several verdicts blame.

    For a common cause, ``check`` is empty and ``subject`` is its text.  Otherwise ``subject`` is
    the table.
    """

    kind: AlertKind
    check: str
    subject: str

    @property
    def fingerprint(self) -> str:
        """An id that is the same for this cause in every episode and every process."""
        return _digest(self.kind, self.check, self.subject)


@dataclass(frozen=True, slots=True)
class CauseFinding:
    """The result of one round for one cause; ``failing`` are members that have not passed yet."""

    cause: Cause
    outcome: Outcome
    ruling: Ruling
    failing: tuple[Member, ...]
    run: str = ""


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """A person acknowledged an incident: no repeats until the loss grows or the episode ends."""

    who: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Incident:
    """One episode of one cause.

    ``opened`` is the time of its first FAIL, ``turned`` the time at which it entered its state, and
    ``seen`` the time of the last FAIL or PASS.
    ``members`` are all members it ever had, ``failing`` those that still fail.
    ``ruling`` is that of the newest FAIL; if several checks name rows of one loss, that of the FAIL
    with which the loss last grew.
    ``notices`` counts the notices; ``notified`` is the time of the last one, None before the first.
    ``before``: severities and owners of earlier notices that it no longer has, newest last.
    ``told``: receivers of its notices as (kind, name): severities, owners and channels.
    ``unheard``: time since which it has a receiver without a notice; None if all had one.
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
        """Id of this episode; it does not change."""
        return _digest(self.cause.fingerprint, self.opened.isoformat())

    @property
    def tables(self) -> tuple[str, ...]:
        """Tables of all its members, sorted, each once."""
        return tuple(sorted({member.table for member in self.members}))


@dataclass(frozen=True, slots=True)
class Notice:
    """One notification about an incident, with the state of the incident at that time."""

    event: Event
    incident: Incident
    at: datetime

    @property
    def fingerprint(self) -> str:
        """Id of the notice: the outbox takes each id once per channel."""
        return _digest(self.incident.id, self.event, str(self.incident.notices))


@dataclass(frozen=True, slots=True)
class Message:
    """The text of a notice, independent of the channel, which formats it.  Has no row values.

    ``id`` lets a receiver drop a repetition.  ``incident`` and ``cause`` let it group notices of
    one episode, and episodes of one cause.  ``ended`` is set only for the event ``cleared``.
    ``before`` has earlier severities and owners, for receivers that identify an alert by them.
    ``acknowledged`` is who acknowledged the incident.
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


@lru_cache(maxsize=50_000)  # each verdict needs those of all open incidents several times
def _digest(*parts: str) -> str:
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=8).hexdigest()


@dataclass(frozen=True, slots=True)
class Silence:
    """No notice is sent about matching members, from ``start`` until (excluded) ``end``.

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
