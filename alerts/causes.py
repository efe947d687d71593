"""What is each verdict about?  Verdicts that blame one cause become one finding.

A member leaves a cause only by being seen good: a verdict that blames something else, or knows
nothing, is no evidence that the first trouble is over.  UNKNOWN verdicts are findings too, of a
kind of their own: for that kind any knowledge is good, and a FAIL ends it.  An UNKNOWN that nobody
can help opens nothing, and ends what another kind of not knowing has opened.  Pure.
"""

from collections.abc import Iterable, Mapping, Sequence

from alerts.model import AlertKind, Cause, CauseFinding, Incident, Member
from checks.model import Outcome, Ruling, Verdict

KINDS: Mapping[str, AlertKind] = {
    "lag": AlertKind.LATE,
    "freshness": AlertKind.LATE,
    "heartbeat": AlertKind.LATE,
    "readiness": AlertKind.LATE,
    "volatility": AlertKind.SUSPECT,
    "expectations": AlertKind.SUSPECT,
    "disagreement": AlertKind.SUSPECT,
    "snapshot": AlertKind.SUSPECT,
    "gap": AlertKind.BLOCKED,
    "hold": AlertKind.BLOCKED,
    "blocked": AlertKind.BLOCKED,
    "quarantine": AlertKind.BLOCKED,
    "foreign_write": AlertKind.BLOCKED,
    "account": AlertKind.BLOCKED,
    "job": AlertKind.SERVICE,
    "tick": AlertKind.SERVICE,
    "worker": AlertKind.SERVICE,
    "channel": AlertKind.SERVICE,
    "clock": AlertKind.SERVICE,
    "disk": AlertKind.SERVICE,
    "headroom": AlertKind.SERVICE,
    "collected": AlertKind.SERVICE,
    "service": AlertKind.SERVICE,
}
"""What a FAIL of a check means; a check that is not listed compares both ends: LOST."""

BEYOND_HELP = frozenset({"unsupported", "no_history", "not_yet"})
"""Codes of UNKNOWN that no person can change: not for this table, not before time has passed."""

_NOTHING = Ruling(Outcome.UNKNOWN, "no verdict")


def findings(
    verdicts: Sequence[Verdict], incidents: Iterable[Incident]
) -> tuple[CauseFinding, ...]:
    """Fold one round's *verdicts* by cause, given the *incidents* that are open.

    One finding per cause that is blamed now, or of whose members at least one has spoken.  Of
    several verdicts on one member the last counts.
    """
    spoken = {Member(verdict.table, verdict.check): verdict for verdict in verdicts}
    standing = {incident.cause: incident for incident in incidents}
    blamed = [cause for verdict in spoken.values() if (cause := blame(verdict))]
    touched = [
        cause for cause, incident in standing.items() if spoken.keys() & set(incident.members)
    ]
    causes = dict.fromkeys(blamed + touched)
    return tuple(_weigh(cause, spoken, standing.get(cause)) for cause in causes)


def blame(verdict: Verdict) -> Cause | None:
    """Name what *verdict* holds against the world; None for a PASS, or if nobody can help it."""
    if verdict.ruling.outcome is Outcome.PASS or _beyond_help(verdict):
        return None
    unknown = verdict.ruling.outcome is Outcome.UNKNOWN
    kind = AlertKind.UNKNOWN if unknown else KINDS.get(verdict.check, AlertKind.LOST)
    if verdict.cause:
        return Cause(kind, "", verdict.cause)
    return Cause(kind, verdict.check, verdict.table)


def _weigh(
    cause: Cause, spoken: Mapping[Member, Verdict], incident: Incident | None
) -> CauseFinding:
    guilty = sorted(member for member, verdict in spoken.items() if blame(verdict) == cause)
    known = set(incident.members) if incident else set()
    good = {member for member in known & spoken.keys() if _good(cause.kind, spoken[member])}
    failing = ({*incident.failing} if incident else set()) - good | set(guilty)
    witness = next(iter(guilty), next(iter(sorted(known & spoken.keys())), None))
    return CauseFinding(
        cause=cause,
        outcome=_outcome(guilty=bool(guilty), failing=bool(failing), good=bool(good)),
        ruling=spoken[witness].ruling if witness else _NOTHING,
        failing=tuple(sorted(failing)),
        run=spoken[witness].run if witness else "",
    )


def _good(kind: AlertKind, verdict: Verdict) -> bool:
    if kind is AlertKind.UNKNOWN:
        return verdict.ruling.outcome is not Outcome.UNKNOWN or _beyond_help(verdict)
    return verdict.ruling.outcome is Outcome.PASS


def _beyond_help(verdict: Verdict) -> bool:
    return verdict.ruling.outcome is Outcome.UNKNOWN and verdict.ruling.code in BEYOND_HELP


def _outcome(*, guilty: bool, failing: bool, good: bool) -> Outcome:
    if guilty:
        return Outcome.FAIL
    return Outcome.PASS if good and not failing else Outcome.UNKNOWN
