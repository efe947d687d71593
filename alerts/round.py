"""From one round's verdicts to changed incidents and letters, without clock or store.  Pure."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from alerts.causes import findings
from alerts.lifecycle import advance, end
from alerts.model import Event, Incident, IncidentState, Member, Message, Notice
from alerts.routing import Route, policy
from alerts.silence import Silence
from alerts.text import compose
from checks.model import Outcome, Ruling, Verdict

_UNWATCHED = Ruling(Outcome.UNKNOWN, "no longer watched", "unwatched")


@dataclass(frozen=True, slots=True)
class Round:
    """What must be stored together: each change is lost or kept with its letters.

    ``changed`` holds incidents as they stand now; ``dropped`` those that never fired and are no
    more.  ``letters`` pairs a channel's name with a message for it.
    """

    changed: tuple[Incident, ...] = ()
    dropped: tuple[Incident, ...] = ()
    notices: tuple[Notice, ...] = ()
    letters: tuple[tuple[str, Message], ...] = ()


@dataclass(frozen=True, slots=True)
class AlertSettings:
    """What the operator has settled about alerts; ``runbooks`` may be a full address.

    ``text_keys``: whether alerts may name keys that are texts, such as e-mail addresses.
    """

    routes: tuple[Route, ...] = ()
    runbooks: str = "docs/runbooks"
    text_keys: bool = False

    def compose(self, notice: Notice) -> Message:
        """Put *notice* into words."""
        return compose(notice, self.runbooks, text_keys=self.text_keys)


def settle(
    settings: AlertSettings,
    incidents: Sequence[Incident],
    verdicts: Sequence[Verdict],
    silences: Iterable[Silence],
    now: datetime,
    *,
    starting: Collection[str] = frozenset(),
) -> Round:
    """Advance every open incident that *verdicts* touch, and open those they call for.

    *starting* are tables that are read for the first time: what is not known yet is no trouble.
    """
    silences = tuple(silences)
    standing = {incident.cause: incident for incident in incidents}
    changed: list[Incident] = []
    dropped: list[Incident] = []
    notices: list[Notice] = []
    for finding in findings(verdicts, incidents, starting):
        before = standing.get(finding.cause)
        after, told = advance(before, finding, policy(settings.routes, finding, silences, now), now)
        notices += told
        if after is None:
            dropped += [before] if before else []
        elif after != before:
            changed.append(after)
    return _round(settings, changed, dropped, notices)


def withdraw(
    settings: AlertSettings, incidents: Iterable[Incident], watched: Iterable[Member], now: datetime
) -> Round:
    """Close incidents that only members no longer watched keep open: no verdict will ever do it.

    Members that are no longer watched leave the others.
    """
    kept = frozenset(watched)
    changed: list[Incident] = []
    notices: list[Notice] = []
    for incident in incidents:
        failing = tuple(member for member in incident.failing if member in kept)
        orphan = not kept & frozenset(incident.members)
        if orphan or (incident.failing and not failing):
            after, told = end(replace(incident, ruling=_UNWATCHED), now)
            changed += [after] if after else []
            notices += told
        elif failing != incident.failing:
            changed.append(replace(incident, failing=failing))
    return _round(settings, changed, [], notices)


def reminders(
    settings: AlertSettings, incidents: Iterable[Incident], now: datetime
) -> tuple[tuple[str, Message], ...]:
    """All that people were told and that is not over, for channels that forget."""
    return tuple(
        (channel, settings.compose(Notice(Event.REPEATED, incident, now)))
        for incident in incidents
        if incident.notified is not None and incident.state is not IncidentState.RESOLVED
        for channel in incident.channels
    )


def _round(
    settings: AlertSettings, changed: list[Incident], dropped: list[Incident], notices: list[Notice]
) -> Round:
    letters = [
        (channel, settings.compose(notice))
        for notice in notices
        for channel in notice.incident.channels
    ]
    return Round(tuple(changed), tuple(dropped), tuple(notices), tuple(letters))
