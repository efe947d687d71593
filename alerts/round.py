"""Turns the verdicts of one round into changed incidents and messages.  Pure."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from alerts.causes import fold_findings
from alerts.lifecycle import advance_incident, end_incident
from alerts.message import compose_message
from alerts.model import (
    AlertKind,
    AlertPolicy,
    Cause,
    CauseFinding,
    Event,
    Incident,
    IncidentState,
    Member,
    Message,
    Notice,
    Severity,
    Silence,
)
from alerts.routing import Route, alert_policy
from checks.model import Outcome, Ruling, Verdict

STORM = "storm"
_SUMMARIZED = (STORM, "")  # marks an incident that only the summary counts
_WINDOW = timedelta(minutes=10)
_STORM_REPEAT = timedelta(hours=4)
_GRAVITY = list(Severity)
_UNWATCHED = Ruling(Outcome.UNKNOWN, "no longer watched", "unwatched")


@dataclass(frozen=True, slots=True)
class Round:
    """What must be stored in one transaction, so that no change is stored without its messages.

    ``changed`` has incidents in their new state; ``dropped`` has pending ones that ended without
    firing.  Each message is paired with the name of its channel.
    """

    changed: tuple[Incident, ...] = ()
    dropped: tuple[Incident, ...] = ()
    notices: tuple[Notice, ...] = ()
    messages: tuple[tuple[str, Message], ...] = ()


@dataclass(frozen=True, slots=True)
class AlertSettings:
    """The operator's settings of alerts; ``runbooks`` may be a full address.

    ``text_keys``: whether alerts may name keys that are texts, such as e-mail addresses.
    ``storm_limit``: how many new incidents get their own notice in ten minutes, gravest first; one
    additional incident counts the others.
    """

    routes: tuple[Route, ...] = ()
    """Rules for receivers and timing; the first matching rule that sets a value decides it."""
    runbooks: str = "docs/runbooks"
    """Folder or address that links to runbooks begin with."""
    text_keys: bool = False
    storm_limit: int = 10


def settle_round(
    settings: AlertSettings,
    incidents: Sequence[Incident],
    verdicts: Sequence[Verdict],
    silences: Iterable[Silence],
    now: datetime,
    *,
    starting: Collection[str] = frozenset(),
) -> Round:
    """Advance every open incident that *verdicts* concern, and open new ones.

    *starting* are tables in their first load: their UNKNOWN verdicts open nothing.
    """
    silences = tuple(silences)
    standing = {incident.cause: incident for incident in incidents}
    changed: list[Incident] = []
    dropped: list[Incident] = []
    notices: list[Notice] = []
    for finding in fold_findings(verdicts, incidents, starting):
        before = standing.get(finding.cause)
        after, added = advance_incident(
            before, finding, alert_policy(settings.routes, finding, silences, now), now
        )
        notices += added
        if after is None:
            dropped += [before] if before else []
        elif after != before:
            changed.append(after)
    changed, notices = _limit_notices(settings, incidents, (changed, dropped), notices, now)
    return _round(settings, changed, dropped, notices)


def withdraw_members(
    settings: AlertSettings, incidents: Iterable[Incident], watched: Iterable[Member], now: datetime
) -> Round:
    """Close incidents that only unwatched members keep open, because no verdict can close them.

    Unwatched members are removed from all other incidents.
    """
    kept = frozenset(watched)
    changed: list[Incident] = []
    notices: list[Notice] = []
    for incident in incidents:
        if incident.cause.check == STORM:
            continue  # no verdict is about it
        failing = tuple(member for member in incident.failing if member in kept)
        orphan = not kept & frozenset(incident.members)
        if orphan or (incident.failing and not failing):
            after, added = end_incident(replace(incident, ruling=_UNWATCHED), now)
            changed += [after] if after else []
            notices += () if _summarized(incident) else added
        elif failing != incident.failing:
            changed.append(replace(incident, failing=failing))
    return _round(settings, changed, [], notices)


def make_reminders(
    settings: AlertSettings, incidents: Iterable[Incident], now: datetime
) -> tuple[tuple[str, Message], ...]:
    """Return messages about all firing incidents, for channels that do not keep alerts."""
    return tuple(
        (channel, compose_message(notice, settings.runbooks, text_keys=settings.text_keys))
        for incident in incidents
        if incident.notified is not None
        and incident.state is not IncidentState.RESOLVED
        and not _summarized(incident)
        for notice in (Notice(Event.REPEATED, incident, now),)
        for channel in incident.channels
    )


def _round(
    settings: AlertSettings, changed: list[Incident], dropped: list[Incident], notices: list[Notice]
) -> Round:
    messages = [
        (channel, compose_message(notice, settings.runbooks, text_keys=settings.text_keys))
        for notice in notices
        for channel in notice.incident.channels
    ]
    return Round(tuple(changed), tuple(dropped), tuple(notices), tuple(messages))


def _limit_notices(
    settings: AlertSettings,
    incidents: Sequence[Incident],
    moved: tuple[Sequence[Incident], Sequence[Incident]],
    notices: Sequence[Notice],
    now: datetime,
) -> tuple[list[Incident], list[Notice]]:
    """Keep single notices for the gravest incidents, and count the others in a summary.

    The limit applies to each set of channels. Milder incidents never delay graver ones.  Incidents
    without their own notice are stored, listed and resolved like all others.
    """
    changed, dropped = moved
    after = {one.id: one for one in (*incidents, *changed)}
    for one in dropped:
        after.pop(one.id, None)
    kept, new = list[Notice](), list[Notice]()
    for notice in notices:
        if notice.event is Event.FIRED or _summarized(notice.incident):
            if notice.event is not Event.CLEARED:
                new.append(notice)
        else:
            kept.append(notice)
    new.sort(key=lambda one: _gravity(one.incident))
    candidates = {one.incident.id for one in new}
    notified = [
        one for one in after.values() if one.id not in candidates and _was_just_notified(one, now)
    ]
    for notice in new:
        one = notice.incident
        others = set(one.told) - {_SUMMARIZED}
        as_grave = [o for o in notified if o.channels == one.channels and _rank(o) <= _rank(one)]
        if len(as_grave) < settings.storm_limit:
            one = replace(one, told=tuple(sorted(others)))
            kept.append(replace(notice, incident=one))
            notified.append(one)
        else:
            one = replace(one, told=tuple(sorted({*others, _SUMMARIZED})))
        after[one.id] = one
    summaries, telling = _summaries(after.values(), now)
    after |= {one.id: one for one in summaries}
    before = {one.id: one for one in incidents}
    return [o for o in after.values() if o != before.get(o.id)], [*kept, *telling]


def _summaries(incidents: Iterable[Incident], now: datetime) -> tuple[list[Incident], list[Notice]]:
    open_now = [one for one in incidents if one.state is not IncidentState.RESOLVED]
    hidden: dict[tuple[str, ...], list[Incident]] = {}
    for one in open_now:
        if one.cause.check == STORM:
            hidden.setdefault(one.channels, [])
        elif _summarized(one):
            hidden.setdefault(one.channels, []).append(one)
    changed, notices = list[Incident](), list[Notice]()
    for channels, those in hidden.items():
        cause = Cause(AlertKind.SERVICE, STORM, f"incidents for {', '.join(channels)}")
        before = next((one for one in open_now if one.cause == cause), None)
        after, added = _summary(before, cause, those, channels, now)
        changed += [after] if after is not None and after != before else []
        notices += added
    return changed, notices


def _summary(
    before: Incident | None,
    cause: Cause,
    those: Sequence[Incident],
    channels: tuple[str, ...],
    now: datetime,
) -> tuple[Incident | None, tuple[Notice, ...]]:
    """Advance the summary incident: a notice at first, when the count has doubled, and at the end.

    It is also repeated every `_STORM_REPEAT`.
    """
    last = max((int(n) for what, n in before.told if what == STORM), default=0) if before else 0
    what = "1 more incident is" if len(those) == 1 else f"{len(those):,} more incidents are"
    text = f'{what} open; run "sluice status" to list them'
    outcome = Outcome.FAIL if those else Outcome.PASS
    failing = (Member(cause.subject, STORM),) if those else ()
    finding = CauseFinding(cause, outcome, Ruling(outcome, text, STORM), failing)
    gravest = min((one.severity for one in those), key=_GRAVITY.index, default=Severity.WARNING)
    doubled = len(those) >= 2 * last > 0
    repeat = timedelta() if doubled else _STORM_REPEAT
    after, notices = advance_incident(
        before, finding, AlertPolicy(severity=gravest, repeat=repeat, channels=channels), now
    )
    if after is not None and notices:
        words = {one for one in after.told if one[0] != STORM}
        after = replace(after, told=tuple(sorted({*words, (STORM, str(len(those)))})))
    return after, notices


def _summarized(incident: Incident) -> bool:
    return _SUMMARIZED in incident.told


def _was_just_notified(incident: Incident, now: datetime) -> bool:
    """Whether it had its own notice within the window, so that it counts towards the limit."""
    if incident.notified is None or incident.cause.check == STORM or _summarized(incident):
        return False
    return now - incident.notified < _WINDOW


def _rank(incident: Incident) -> int:
    return _GRAVITY.index(incident.severity)


def _gravity(incident: Incident) -> tuple[int, int, datetime, str]:
    grave = (AlertKind.LOST, AlertKind.BLOCKED, AlertKind.SERVICE, AlertKind.LATE)
    kind = incident.cause.kind
    known = grave.index(kind) if kind in grave else len(grave)
    return _rank(incident), known, incident.opened, incident.id
