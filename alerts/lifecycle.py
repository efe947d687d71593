"""Decides when a finding becomes a notice, and when its incident ends.

UNKNOWN neither fires nor clears an incident.  Time counts from the first FAIL (or PASS) that has
not been contradicted since; an UNKNOWN in between neither stops nor restarts it.  Pure.
"""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime

from alerts.model import (
    AlertKind,
    AlertPolicy,
    CauseFinding,
    Event,
    Incident,
    IncidentState,
    Notice,
    Severity,
)
from checks.model import Outcome, Ruling
from checks.named_rows import NamedRows, are_within
from pipeline.clocks import has_passed

MOST_BEFORE = 20  # older ones were ended by many earlier notices
_CHANNEL = "channel"
Step = tuple[Incident | None, tuple[Notice, ...]]


def advance_incident(
    incident: Incident | None, finding: CauseFinding, policy: AlertPolicy, now: datetime
) -> Step:
    """Advance one incident by one finding; None, given or returned, means that nothing is wrong.

    A resolved incident is returned once, to be stored; the next FAIL begins a new episode.
    """
    if incident is not None and incident.state is IncidentState.RESOLVED:
        incident = None
    match finding.outcome:
        case Outcome.FAIL:
            return _tell(_worsen(incident, finding, policy, now), policy, now)
        case Outcome.PASS:
            return _ease(incident, finding, policy, now)
        case Outcome.UNKNOWN:
            return incident and replace(incident, failing=finding.failing), ()


def _worsen(
    incident: Incident | None, finding: CauseFinding, policy: AlertPolicy, now: datetime
) -> Incident:
    """Apply a FAIL: open the incident, fire it after *hold*, or end its recovery."""
    if incident is None:
        incident = _open(finding, policy, now)
    due = has_passed(incident.opened, policy.hold, now)
    pending = incident.state is IncidentState.PENDING and not due
    grown = _has_grown(incident, finding)
    joined = not grown and _is_joined(incident, finding)
    state = IncidentState.PENDING if pending else IncidentState.FIRING
    worse = replace(
        incident,
        state=state,
        turned=incident.turned if state is incident.state else now,
        seen=now,
        ruling=_keep_ruling(incident, finding) if joined else finding.ruling,
        members=tuple(sorted({*incident.members, *finding.failing})),
        failing=finding.failing,
        severity=policy.severity,
        owner=policy.owner,
        channels=policy.channels,
        run=finding.run,
        before=_earlier_notices(incident, policy),
    )
    heard = {*_find_recipients(worse)} <= {*worse.told} and not _has_growth_unheard(incident)
    if grown:
        heard = heard and incident.acknowledged is None and not _is_news(incident, finding)
        worse = replace(worse, worse=now, acknowledged=None)
    return replace(worse, unheard=None if heard else worse.unheard or now)


def _keep_ruling(incident: Incident, finding: CauseFinding) -> Ruling:
    """Return the ruling of the incident, with the differing columns known by now."""
    known = finding.ruling.differing or incident.ruling.differing
    return replace(incident.ruling, differing=known)


def _has_growth_unheard(incident: Incident) -> bool:
    """Whether the loss has grown since its last notice, and waits for a new one."""
    if incident.unheard is None or incident.worse is None:
        return False
    return incident.worse > (incident.notified or incident.opened)


def _has_grown(incident: Incident, finding: CauseFinding) -> bool:
    """Whether a loss of one table names rows that it did not name before."""
    known, new = incident.ruling, finding.ruling
    if not _names_rows(incident, finding):
        return False
    return new.more > known.more or not are_within(new.keys, known.keys)


def _is_news(incident: Incident, finding: CauseFinding) -> bool:
    """Whether a growing loss is sent again: another check joins, or no row was named before."""
    joins = not {*finding.failing} <= {*incident.members}
    return joins or not NamedRows.of(incident.ruling.keys).have_overlap(finding.ruling.keys)


def _is_joined(incident: Incident, finding: CauseFinding) -> bool:
    """Whether several checks name rows of this loss.

    If it has not grown, the ruling of the incident already names all rows.
    """
    several = len({*incident.members, *finding.failing}) > 1
    return several and _names_rows(incident, finding)


def _names_rows(incident: Incident, finding: CauseFinding) -> bool:
    """Whether it is a loss of one table, and the finding names rows."""
    is_loss = incident.cause.kind is AlertKind.LOST and len(incident.tables) == 1
    return is_loss and bool(finding.ruling.keys)


def _earlier_notices(incident: Incident, policy: AlertPolicy) -> tuple[tuple[Severity, str], ...]:
    own = (policy.severity, policy.owner)
    notified = () if incident.notified is None else ((incident.severity, incident.owner),)
    known = dict.fromkeys((*incident.before, *notified))
    return tuple(one for one in known if one != own)[-MOST_BEFORE:]


def _open(finding: CauseFinding, policy: AlertPolicy, now: datetime) -> Incident:
    return Incident(
        cause=finding.cause,
        state=IncidentState.PENDING,
        opened=now,
        turned=now,
        seen=now,
        ruling=finding.ruling,
        members=finding.failing,
        failing=finding.failing,
        severity=policy.severity,
    )


def _ease(
    incident: Incident | None, finding: CauseFinding, policy: AlertPolicy, now: datetime
) -> Step:
    """Apply a PASS: drop a pending incident, start its recovery, or end the episode."""
    if incident is None or incident.state is IncidentState.PENDING:
        return None, ()
    if incident.state is IncidentState.FIRING:
        incident = replace(incident, state=IncidentState.RECOVERING, turned=now)
    unheard = incident.unheard if incident.notified is None else None
    incident = replace(incident, seen=now, failing=(), run=finding.run, unheard=unheard)
    if not has_passed(incident.turned, policy.keep, now):
        return incident, ()
    return end_incident(incident, now)


def end_incident(incident: Incident, now: datetime) -> Step:
    """Close an episode; only receivers of an earlier notice are notified of the end."""
    resolved = replace(incident, state=IncidentState.RESOLVED, turned=now, failing=())
    if resolved.notified is None:
        return resolved, ()
    heard = tuple(name for what, name in incident.told if what == _CHANNEL)
    channels = tuple(dict.fromkeys((*incident.channels, *heard)))
    return _notice(replace(resolved, channels=channels), Event.CLEARED, now)


def _tell(incident: Incident, policy: AlertPolicy, now: datetime) -> Step:
    """Send the first notice of a firing incident, or the next one when *repeat* has passed.

    A notice is due when the incident has had a receiver without a notice for *hold*.  This also
    applies to receivers that a later member or a graver severity adds: a new member may pass soon.
    """
    if policy.muted:
        return incident, ()
    if incident.unheard is not None and has_passed(incident.unheard, policy.hold, now):
        first = incident.notified is None
        return _notice(incident, Event.FIRED if first else Event.REPEATED, now)
    if incident.notified is None or policy.repeat is None or incident.acknowledged is not None:
        return incident, ()
    if not has_passed(incident.notified, policy.repeat, now):
        return incident, ()
    return _notice(incident, Event.REPEATED, now)


def _notice(incident: Incident, event: Event, now: datetime) -> Step:
    notified = replace(
        incident,
        notices=incident.notices + 1,
        notified=now,
        told=tuple(sorted({*incident.told, *_find_recipients(incident)})),
        unheard=None,
    )
    return notified, (Notice(event, notified, now),)


def _find_recipients(incident: Incident) -> Iterator[tuple[str, str]]:
    """Yield the receivers of a notice as (kind, name); a severity includes the milder ones."""
    grave = list(Severity)
    yield from (("severity", one) for one in grave[grave.index(incident.severity) :])
    yield from (("owner", one) for one in incident.owner.split(", ") if one)
    yield from ((_CHANNEL, one) for one in incident.channels)
