"""Groups verdicts by cause: verdicts that blame the same cause become one finding.

A member leaves a cause only by a good verdict. A verdict that blames another cause, or is UNKNOWN,
does not prove that the first problem is over.  UNKNOWN verdicts are findings too, of a separate
kind: for that kind any decided verdict is good, even a FAIL.  An UNKNOWN that no person can resolve
opens nothing, and ends a finding of another kind of UNKNOWN.

Consequences of a table's state open no incident. While an incident says why a table is held, or
while the table is first loaded, its lateness and its UNKNOWN verdicts are shown and open nothing.
While a mirror has a foreign write, differing rows follow from it. Rows that still differ afterwards
are a separate loss.  A loss that shares a row with an open loss of the same table joins it,
whichever check finds it.  A separate loss does not name rows that another open loss has named
before.  Any other loss, a gap or a suspicion never counts as a consequence.  Pure.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from alerts.model import AlertKind, Cause, CauseFinding, Incident, IncidentState, Member
from checks.model import (
    MOST_NAMED,
    FailKind,
    Outcome,
    RowColumns,
    Ruling,
    Verdict,
)
from checks.named_rows import NamedRows, subtract_rows

KINDS: Mapping[str, AlertKind] = {
    "lag": AlertKind.LATE,
    "image": AlertKind.LATE,
    "copy": AlertKind.LATE,
    "copy_ledger": AlertKind.LOST,
    "disagreement": AlertKind.SUSPECT,
    "snapshot_again": AlertKind.SUSPECT,
    "gap": AlertKind.BLOCKED,
    "hold": AlertKind.BLOCKED,
    "first_landing": AlertKind.BLOCKED,
    "blocked": AlertKind.BLOCKED,
    "quarantine": AlertKind.BLOCKED,
    "foreign_write": AlertKind.BLOCKED,
    "account": AlertKind.BLOCKED,
    "ledger": AlertKind.LOST,
    "job": AlertKind.SERVICE,
    "worker": AlertKind.SERVICE,
    "channel": AlertKind.SERVICE,
    "clock": AlertKind.SERVICE,
    "headroom": AlertKind.SERVICE,
    "pause": AlertKind.SERVICE,
    "service": AlertKind.SERVICE,
    "stalled": AlertKind.SERVICE,
    "storm": AlertKind.SERVICE,
    "store": AlertKind.SERVICE,
    "disk": AlertKind.SERVICE,
}
"""What a FAIL means, for checks that are not probes; a probe defines it in its class."""

BEYOND_HELP = frozenset({"unsupported", "no_history", "not_yet"})
"""UNKNOWN codes that open nothing: the check does not suit the table, or needs more time."""

OF_PROBES = {FailKind.LOST: AlertKind.LOST, FailKind.SUSPECT: AlertKind.SUSPECT}
_STANDING_STILL = (AlertKind.SERVICE, AlertKind.BLOCKED)
_FOLLOWING = (AlertKind.LATE, AlertKind.UNKNOWN)
_OF_ROWS = frozenset({"range_counts", "values", "max_id", "offset_keys", "day_counts"})
_FOREIGN = "foreign_write"
MOST_SHOWN = 3
"""Most keys that a sentence names."""


def fold_findings(
    verdicts: Sequence[Verdict],
    incidents: Iterable[Incident],
    starting: Collection[str] = frozenset(),
) -> tuple[CauseFinding, ...]:
    """Group the *verdicts* of one round by cause, given the open *incidents*.

    Returns one finding per cause that is blamed now, or that has a member with a verdict.  If a
    member has several verdicts, the last one counts.  *starting* are tables in their first load.
    """
    spoken = {Member(verdict.table, verdict.check): verdict for verdict in verdicts}
    standing = {incident.cause: incident for incident in incidents}
    follows = _consequences(spoken.values(), standing, starting)
    late = _open_lateness(standing.values())
    found = {
        member: _keep_lateness(cause, member, standing, late)
        for member, verdict in spoken.items()
        if (cause := find_cause(verdict)) and not follows(verdict)
    }
    blamed = _join_losses(found, spoken, standing)
    touched = [
        cause for cause, incident in standing.items() if spoken.keys() & set(incident.members)
    ]
    causes = dict.fromkeys((*blamed.values(), *touched))
    guilty: dict[Cause, list[Member]] = {cause: [] for cause in causes}
    for member, cause in blamed.items():
        guilty[cause].append(member)
    losses = _losses_by_table(standing)
    return tuple(
        _narrow_loss(
            _weigh(cause, spoken, sorted(guilty[cause]), standing.get(cause), follows),
            standing,
            losses.get(cause.subject, ()),
        )
        for cause in causes
    )


def find_cause(verdict: Verdict) -> Cause | None:
    """Return the cause that *verdict* blames; None for a PASS, or if nothing can be done."""
    if verdict.ruling.outcome is Outcome.PASS or _beyond_help(verdict):
        return None
    if verdict.cause:
        return Cause(_kind(verdict), "", verdict.cause)
    return Cause(_kind(verdict), verdict.check, verdict.table)


def _kind(verdict: Verdict) -> AlertKind:
    if verdict.ruling.outcome is Outcome.UNKNOWN:
        return AlertKind.UNKNOWN
    if verdict.kind is not None:
        return OF_PROBES[verdict.kind]
    return KINDS.get(verdict.check, AlertKind.LOST)


def _consequences(
    verdicts: Collection[Verdict], standing: Mapping[Cause, Incident], starting: Collection[str]
) -> Callable[[Verdict], bool]:
    """Return a function: whether a verdict follows from another problem of its table or cause."""
    now = [(verdict.table, cause) for verdict in verdicts if (cause := find_cause(verdict))]
    known = [one for cause, one in standing.items() if cause.kind in _STANDING_STILL]
    still = {table for table, cause in now if cause.kind in _STANDING_STILL}
    still |= {member.table for one in known for member in one.failing}
    parts = {cause.subject for _, cause in now if cause.kind in _STANDING_STILL}
    parts |= {one.cause.subject for one in known}
    lost = {
        m for cause, one in standing.items() if cause.kind is AlertKind.LOST for m in one.members
    }
    written = {table for table, cause in now if cause.check == _FOREIGN}
    written |= {m.table for one in known if one.cause.check == _FOREIGN for m in one.failing}

    def follows(verdict: Verdict) -> bool:
        if verdict.ruling.outcome is Outcome.FAIL and verdict.check in _OF_ROWS:
            return verdict.table in written and Member(verdict.table, verdict.check) not in lost
        if _kind(verdict) not in _FOLLOWING:
            return False
        return verdict.table in still or verdict.table in starting or verdict.cause in parts

    return follows


def _open_lateness(incidents: Iterable[Incident]) -> dict[Member, Cause]:
    """Return, by member, the cause of the first of *incidents* in which it is late."""
    found = dict[Member, Cause]()
    for one in incidents:
        if one.cause.kind is AlertKind.LATE:
            for member in one.failing:
                found.setdefault(member, one.cause)
    return found


def _keep_lateness(
    cause: Cause, member: Member, standing: Mapping[Cause, Incident], late: Mapping[Member, Cause]
) -> Cause:
    """Return the open lateness of *member* instead of a new one.

    While a table catches up, the hop that delays it changes.
    """
    if cause.kind is not AlertKind.LATE or cause in standing:
        return cause
    return late.get(member, cause)


def _join_losses(
    blamed: Mapping[Member, Cause],
    spoken: Mapping[Member, Verdict],
    standing: Mapping[Cause, Incident],
) -> dict[Member, Cause]:
    """Give losses of a table that share a row one cause: the open one, else the first.

    A loss that has an incident stays in it, and so does one whose check is failing in an incident.
    """
    tables = {cause.subject for cause in blamed.values() if _is_loss(cause)}
    rows = {
        cause: one.ruling.keys
        for cause, one in standing.items()
        if _is_loss(cause) and cause.subject in tables
    }
    for member, cause in blamed.items():
        if cause in rows:
            rows[cause] += spoken[member].ruling.keys
    by_table = _losses_by_table(rows)
    found = dict[Member, Cause]()
    for member, cause in blamed.items():
        keys, known = spoken[member].ruling.keys, cause
        if _is_loss(cause) and cause not in rows:
            own = by_table.setdefault(cause.subject, [])
            mine = (one for one in own if one in standing and member in standing[one].failing)
            shared = (one for one in own if NamedRows.of(rows[one]).have_overlap(keys))
            known = next(mine, None) or next(shared, cause)
            if known not in rows:
                own.append(known)
            rows[known] = (*rows.get(known, ()), *keys)
        found[member] = known
    return found


def _losses_by_table(causes: Iterable[Cause]) -> dict[str, list[Cause]]:
    found = dict[str, list[Cause]]()
    for cause in causes:
        if _is_loss(cause):
            found.setdefault(cause.subject, []).append(cause)
    return found


def _narrow_loss(
    finding: CauseFinding, standing: Mapping[Cause, Incident], losses: Sequence[Cause]
) -> CauseFinding:
    """Remove rows that another open loss of the table named and that this one has not named."""
    cause, ruling = finding.cause, finding.ruling
    incident = standing.get(cause)
    if incident is None or not _is_loss(cause):
        return finding
    others = (standing[one] for one in losses if one != cause)
    keys = [key for one in others for key in one.ruling.keys]
    left = subtract_rows(ruling.keys, subtract_rows(keys, incident.ruling.keys))
    if not left or left == ruling.keys:
        return finding
    if set(left) == {*incident.ruling.keys} and ruling.more == incident.ruling.more:
        return replace(finding, ruling=incident.ruling)
    shown = ", ".join(left[:MOST_SHOWN]) + (", ..." if left[MOST_SHOWN:] else "")
    reason = f"{ruling.reason}; of these, other open incidents do not name {shown}"
    columns = tuple(_columns_of(left, ruling.differing))
    return replace(finding, ruling=replace(ruling, keys=left, reason=reason, differing=columns))


def _columns_of(keys: tuple[str, ...], differing: Iterable[RowColumns]) -> Iterator[RowColumns]:
    """Yield the part of *differing* that concerns rows of *keys*."""
    for one in differing:
        if own := subtract_rows(one.keys, subtract_rows(one.keys, keys)):
            yield replace(one, keys=own)


def _is_loss(cause: Cause) -> bool:
    return cause.kind is AlertKind.LOST


def _weigh(
    cause: Cause,
    spoken: Mapping[Member, Verdict],
    guilty: Sequence[Member],
    incident: Incident | None,
    follows: Callable[[Verdict], bool],
) -> CauseFinding:
    known = set(incident.members) if incident else set()
    pending = incident is not None and incident.state is IncidentState.PENDING

    def good(verdict: Verdict) -> bool:
        if follows(verdict) and (pending or cause.kind is AlertKind.UNKNOWN):
            return True
        return _good(cause.kind, verdict)

    passed = {member for member in known & spoken.keys() if good(spoken[member])}
    if any(member.table == cause.subject for member in passed) and not cause.check:
        passed = known  # the part itself works, so members that still fail have another cause
    failing = ({*incident.failing} if incident else set()) - passed | set(guilty)
    witness = next(iter(guilty or sorted(known & spoken.keys())))
    ruling = spoken[witness].ruling
    if cause.kind is AlertKind.LOST and guilty:
        ruling = _joined_rulings([spoken[member].ruling for member in guilty])
    return CauseFinding(
        cause=cause,
        outcome=_outcome(guilty=bool(guilty), failing=bool(failing), good=bool(passed)),
        ruling=ruling,
        failing=tuple(sorted(failing)),
        run=spoken[witness].run,
    )


def _joined_rulings(rulings: Sequence[Ruling]) -> Ruling:
    """Return the ruling that names most rows, with the keys of all rulings."""
    widest, named = max(rulings, key=lambda one: (one.more, len(one.keys))), dict[str, None]()
    known = NamedRows.of(widest.keys)
    for key in (key for one in rulings if one is not widest for key in one.keys):
        if not known.holds(key):
            named[key] = None
    keys = (*widest.keys, *named)
    columns = tuple(dict.fromkeys(one for ruling in rulings for one in ruling.differing))
    more = widest.more + len(keys[MOST_NAMED:])
    return replace(widest, keys=keys[:MOST_NAMED], more=more, differing=columns)


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
