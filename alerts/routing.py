"""Decides receivers, severity and timing of an alert, by table name, check and kind.  Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from typing import TypeVar

from alerts.model import AlertKind, AlertPolicy, CauseFinding, Member, Severity, Silence

T = TypeVar("T")
CHANNEL = "channel:"  # prefix of a channel's name where it takes the place of a table

DEFAULTS: Mapping[AlertKind, AlertPolicy] = {
    AlertKind.LATE: AlertPolicy(
        hold=timedelta(minutes=5), keep=timedelta(minutes=2), repeat=timedelta(hours=4)
    ),
    AlertKind.LOST: AlertPolicy(repeat=timedelta(hours=4), severity=Severity.CRITICAL),
    AlertKind.SUSPECT: AlertPolicy(
        hold=timedelta(minutes=10), keep=timedelta(minutes=5), repeat=timedelta(hours=24)
    ),
    AlertKind.BLOCKED: AlertPolicy(
        hold=timedelta(minutes=1), repeat=timedelta(hours=4), severity=Severity.CRITICAL
    ),
    AlertKind.UNKNOWN: AlertPolicy(
        hold=timedelta(minutes=15), repeat=timedelta(hours=24), severity=Severity.INFO
    ),
    AlertKind.SERVICE: AlertPolicy(
        hold=timedelta(minutes=2),
        keep=timedelta(minutes=1),
        repeat=timedelta(hours=4),
        severity=Severity.CRITICAL,
    ),
}
"""A loss is proven as of a position, so it is sent at once; a lag may end on its own."""


@dataclass(frozen=True, slots=True)
class Route:
    """One rule: which findings it matches (globs; empty means all), and which values it sets.

    A field that is None sets nothing.
    """

    tables: str = "*"
    """A pattern of the names of tables, or of parts such as `source:shop`."""
    checks: tuple[str, ...] = ()
    """Patterns of the names of checks."""
    kinds: tuple[AlertKind, ...] = ()
    """Kinds of alerts."""
    owner: str | None = None
    """Who is responsible; notifications name them."""
    severity: Severity | None = None
    """How severe such an incident is."""
    channels: tuple[str, ...] | None = None
    """Names of channels that are notified."""
    hold: timedelta | None = None
    """How long a finding must last before it is notified."""
    keep: timedelta | None = None
    """How long a finding must be absent before the incident is resolved."""
    repeat: timedelta | None = None
    """How often an incident that still fires is notified again."""

    def matches(self, member: Member, kind: AlertKind) -> bool:
        """Whether the rule applies to an alert of this *kind* about *member*."""
        if self.kinds and kind not in self.kinds:
            return False
        if self.checks and not any(fnmatchcase(member.check, glob) for glob in self.checks):
            return False
        return fnmatchcase(member.table, self.tables)


def alert_policy(
    routes: Sequence[Route],
    finding: CauseFinding,
    silences: Iterable[Silence] = (),
    now: datetime | None = None,
) -> AlertPolicy:
    """Combine the values that the routes set for each failing member.

    The first matching route that sets a field decides it, else the default of the kind.  With
    several members, it uses the gravest severity, the shortest ``hold`` and ``repeat``, the longest
    ``keep``, and all owners and channels.  It is muted only if every member is silenced at *now*.
    """
    members = finding.failing or (Member(finding.cause.subject, finding.cause.check),)
    each = [_decide(routes, member, finding.cause.kind) for member in members]
    return AlertPolicy(
        hold=min(one.hold for one in each),
        keep=max(one.keep for one in each),
        repeat=min((one.repeat for one in each if one.repeat is not None), default=None),
        severity=min((one.severity for one in each), key=list(Severity).index),
        owner=", ".join(dict.fromkeys(one.owner for one in each if one.owner)),
        channels=tuple(dict.fromkeys(name for one in each for name in one.channels)),
        muted=now is not None and _silenced(members, tuple(silences), now),
    )


def _decide(routes: Sequence[Route], member: Member, kind: AlertKind) -> AlertPolicy:
    fit = [route for route in routes if route.matches(member, kind)]
    default = DEFAULTS[kind]
    return AlertPolicy(
        hold=_first((route.hold for route in fit), default.hold),
        keep=_first((route.keep for route in fit), default.keep),
        repeat=_first((route.repeat for route in fit), default.repeat),
        severity=_first((route.severity for route in fit), default.severity),
        owner=_first((route.owner for route in fit), ""),
        channels=_route_around(member, _first((route.channels for route in fit), ("log",)), routes),
    )


def _route_around(
    member: Member, chosen: tuple[str, ...], routes: Iterable[Route]
) -> tuple[str, ...]:
    """Leave out a channel that the alert is about, because it cannot report its own failure.

    If no chosen channel is left, use all other channels.
    """
    failed = member.table.removeprefix(CHANNEL)
    if failed == member.table or failed not in chosen:
        return chosen
    others = tuple(name for name in chosen if name != failed)
    every = dict.fromkeys(name for route in routes for name in route.channels or ())
    return others or tuple(name for name in every if name != failed) or ("log",)


def _first(stated: Iterable[T | None], default: T) -> T:
    return next((value for value in stated if value is not None), default)


def _silenced(members: Iterable[Member], silences: Sequence[Silence], now: datetime) -> bool:
    return all(any(silence.covers(member, now) for silence in silences) for member in members)
