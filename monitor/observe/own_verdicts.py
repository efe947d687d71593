"""What is wrong that no probe looks for?  Lateness, standstills, and the parts of the way itself.

Each check is ruled on in every round, PASS included: an incident ends only by being seen good.
What many tables suffer from has one name as its cause: a part that is down, a source whose changes
are late before they are any table's own, merging that is behind, a hold of a whole source.  Pure.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from checks.blocks import Pause, overlong
from checks.model import Outcome, Reason, Ruling, Verdict
from checks.readiness import Readiness
from monitor.board import FirstLanding
from pipeline.lags.lag import Lags
from pipeline.lags.retention import Retention
from pipeline.model import Hop, Missing, SnapshotAgain, Stage, Table

GOOD = Ruling(Outcome.PASS, "nothing stands in the way")
STANDSTILLS: Mapping[str, str] = {
    "gap": "gap",
    "quarantine": "quarantine",
    "foreign_write": "foreign_write",
    "unbalanced": "account",
    "no_base": "blocked",
}
"""Reason code -> check; any other reason is a ``hold``."""
OF_THE_MARK = ("gap", "quarantine", "blocked")
"""Those of them that only the change log tells."""
ELSEWHERE = frozenset({"check_failed"})  # a probe's FAIL is an incident of its own
FIRST_LANDING = "first_landing"
SNAPSHOT_AGAIN = "snapshot_again"
ANEW_TOLD = timedelta(
    days=1
)  # so long it is an incident: a short snapshot is over before one fires
MERGING = "merging"
STORE = "store"
KAFKA = "kafka"
OF_BROKERS = ("kafka", "broker", "timed out", "timeout")  # words of a collector without brokers
CHECKS = ("lag", "service", "hold", "pause", "disagreement", *dict.fromkeys(STANDSTILLS.values()))


@dataclass(frozen=True, slots=True)
class Component:
    """A source, collector, job or the Spark process: its name, its check, what ails it if so."""

    name: str
    check: str
    ailment: str = ""


def of_part(part: Component, at: datetime, parts: Sequence[Component] = ()) -> Verdict:
    """One verdict on a part of the way; all that suffers from it shares its cause.

    A collector whose source is down cannot read: while that lasts, it suffers from it too.  What
    fails because store or brokers do shares their cause, and so does a collector that speaks of
    brokers, or answers too late, while they are down.  What else ails it is its own incident.
    """
    if not part.ailment:
        return Verdict(part.name, part.check, Ruling(Outcome.PASS, "works"), at)
    read = source_of(part.name.removeprefix("collector:"))
    needed = {read}
    if part.name.startswith("collector:") and any(w in part.ailment.lower() for w in OF_BROKERS):
        needed.add(KAFKA)
    down = next((one for one in parts if one.name in needed and one.ailment), part)
    for one in parts:
        first = one.ailment.partition(": ")[0]
        if first and one.name in (KAFKA, STORE) and f"{first}: " in part.ailment:
            down = one
    return _blaming(part.name, part.check, down, at)


def source_of(name: str) -> str:
    """What a verdict on a source itself is about."""
    return f"source:{name}"


def of_first_landings(
    sources: Iterable[str],
    landings: Iterable[FirstLanding],
    parts: Sequence[Component],
    at: datetime,
) -> Iterator[Verdict]:
    """Whether what is read for the first time of each source moves on, as far as its parts work."""
    under_way = {one.source: one for one in landings}
    for name in sources:
        own = (source_of(name), f"collector:{name}", "worker")
        down = next((part for part in parts if part.name in own and part.ailment), None)
        ruling = _landing(under_way.get(name), down, at)
        yield Verdict(source_of(name), FIRST_LANDING, ruling, at, cause=source_of(name))


def _landing(one: FirstLanding | None, down: Component | None, at: datetime) -> Ruling:
    if one is None:
        return Ruling(Outcome.PASS, "what was to be read for the first time has landed")
    if one.stuck is None or down is not None:
        return Ruling(Outcome.UNKNOWN, one.line, "not_yet")
    still = f"nothing has moved for {(at - one.stuck).total_seconds() / 60:.0f} min"
    return Ruling(Outcome.FAIL, f"{one.line}; {still}", "stuck")


def of_table(
    table: Table,
    lags: Lags,
    budget: timedelta,
    down: Sequence[Component],
    at: datetime,
    *,
    stage: Stage = Stage.MIRROR,
) -> Iterator[Verdict]:
    """Whether the table is late in *stage*, or suffers from one of the parts that are *down*.

    One whose merges are paused cannot be late but in the change log.
    """
    if down:
        yield _blaming(table.name, "service", down[0], at)
        return
    yield Verdict(table.name, "service", Ruling(Outcome.PASS, "every part works"), at)
    lateness, cause = _lateness(lags, budget, stage), _held_up(table, lags, stage)
    yield Verdict(table.name, "lag", lateness, at, value=_seconds(lags, stage), cause=cause)


def of_pause(table: str, pause: Pause | None, kept: timedelta, at: datetime) -> Verdict:
    """Whether the table is paused for so long that somebody may have forgotten it."""
    return Verdict(table, "pause", overlong(pause, kept, at), at)


def of_standstills(
    table: str,
    reasons: Iterable[Reason],
    at: datetime,
    first: FirstLanding | None = None,
    *,
    landed: bool = True,
) -> Iterator[Verdict]:
    """One verdict per kind of standstill, from the reasons that block the table.

    That it has no base yet is no trouble while it is read for the *first* time, and that moves.
    While nobody knows what has *landed*, what only the change log tells is neither good nor bad.
    """
    kinds: dict[str, list[Reason]] = {"hold": [], **{kind: [] for kind in STANDSTILLS.values()}}
    for reason in reasons:
        if reason.code not in ELSEWHERE:
            kinds[STANDSTILLS.get(reason.code, "hold")].append(reason)
    for kind, found in kinds.items():
        if not landed and kind in OF_THE_MARK:
            continue
        own = [reason for reason in found if not reason.cause]
        cause = found[0].cause if found and not own else ""
        ruling = _standing([*own, *(one for one in found if one.cause)])
        if first and found and kind == STANDSTILLS["no_base"]:
            cause = source_of(first.source)
            ruling = ruling if first.stuck else Ruling(Outcome.UNKNOWN, first.line, "not_yet")
        yield Verdict(table, kind, ruling, at, value=float(len(found)), cause=cause)


def of_disagreement(table: str, answers: Iterable[Readiness], at: datetime) -> Verdict:
    """Whether sum rule and proof have contradicted each other for too long."""
    for answer in answers:
        for reason in answer.reasons:
            if reason.code == "rules_disagree":
                ruling = Ruling(Outcome.FAIL, reason.text, reason.code)
                return Verdict(table, "disagreement", ruling, at)
    return Verdict(table, "disagreement", Ruling(Outcome.PASS, "the two rules agree"), at)


def rule_of(shards: str) -> str:
    """What a verdict on a rule of the config is about."""
    return f"rule:{shards}"


def of_declared(declared: Mapping[str, str], at: datetime, first: str = "") -> Iterator[Verdict]:
    """Whether something is collected for each rule that asks for tables.

    *first* says how far something is read for the first time: what a rule asks for may be of it.
    """
    for shards, why in declared.items():
        ruling = Ruling(Outcome.PASS, "something it asks for is collected")
        if why:
            told = f"{why}; {first}" if first else why
            ruling = Ruling(Outcome.UNKNOWN, told, "not_yet" if first else "not_collected")
        yield Verdict(rule_of(shards), "collected", ruling, at)


def snapshots_of(source: str) -> str:
    """What a verdict on the snapshots that a source's collector takes is about."""
    return f"snapshots:{source}"


def of_snapshots(source: str, again: SnapshotAgain | None, at: datetime) -> Verdict:
    """Whether its collector has begun anew by itself lately: somebody should know why."""
    ruling = Ruling(Outcome.PASS, "its collector goes on where it stopped")
    if again is not None and not again.asked and at - again.at < ANEW_TOLD:
        told = (
            f"at {again.at.isoformat(timespec='seconds')} the collector of {source} began anew,"
            f" with a snapshot of {again.tables} tables that it had sent before: if nobody let it,"
            " its stored offset was lost, or no longer in the log; what was committed before the"
            " snapshot and not sent by then is in no change log and in no image"
        )
        ruling = Ruling(Outcome.FAIL, told, SNAPSHOT_AGAIN)
    return Verdict(snapshots_of(source), SNAPSHOT_AGAIN, ruling, at)


def retention_of(source: str) -> str:
    """What a verdict on a source's topics and binary log is about."""
    return f"retention:{source}"


def of_retentions(source: str, retentions: Sequence[Retention], at: datetime) -> Verdict:
    """Whether something that was not read yet will soon be deleted by whoever keeps it."""
    known = [(left, one) for one in retentions if (left := one.left(at)) is not None]
    least = min((left for left, _ in known), default=None)
    value = None if least is None else least.total_seconds()
    return Verdict(
        retention_of(source), "headroom", _headroom(retentions, known, at), at, value=value
    )


def _headroom(
    retentions: Sequence[Retention], known: Sequence[tuple[timedelta, Retention]], at: datetime
) -> Ruling:
    tight = sorted((left, one.kind, one.name) for left, one in known if one.tight(at))
    if tight:
        left, kind, name = tight[0]
        more = f" (and {len(tight) - 1} more)" if len(tight) > 1 else ""
        text = f"{kind} {name}: in {left.total_seconds() / 3600:.1f} h unread changes are deleted"
        return Ruling(Outcome.FAIL, f"{text}{more}", "headroom")
    for one in retentions:
        if one.unknown:
            why = one.kept.why if isinstance(one.kept, Missing) else "what is read is not known"
            return Ruling(Outcome.UNKNOWN, f"{one.kind} {one.name}: {why}", "not_yet")
    return Ruling(Outcome.PASS, "nothing unread is deleted soon")


def _blaming(name: str, check: str, part: Component, at: datetime) -> Verdict:
    told = part.ailment.removeprefix(f"{part.name}: ")  # a source begins with its own name
    ruling = Ruling(Outcome.FAIL, f"{part.name}: {told}", "down")
    return Verdict(name, check, ruling, at, cause=part.name)


def _lateness(lags: Lags, budget: timedelta, stage: Stage) -> Ruling:
    total = lags.total(stage)
    if isinstance(total, Missing):
        return Ruling(Outcome.UNKNOWN, f"lag is unknown: {total.why}", "lag_unknown")
    way = " to the change log" if stage is Stage.LANDED else ""
    told = f"lag{way} {total.total_seconds():.0f} s, budget {budget.total_seconds():.0f} s"
    if total > budget:
        slow = lags.slowest(stage)
        where = f"; the longest hop is {slow.hop}" if slow else ""
        return Ruling(Outcome.FAIL, f"{told}{where}", "late")
    return Ruling(Outcome.PASS, told)


def _held_up(table: Table, lags: Lags, stage: Stage) -> str:
    """The part of the way at which all tables beside it are held up: its source, or merging."""
    slow = lags.slowest(stage)
    if slow is None:
        return ""
    if slow.hop is Hop.MERGE:
        return MERGING
    if isinstance(slow.lag, Missing):
        words = slow.lag.why
        named = (name for name in table.sources if words.endswith(f"(source {name})"))
        return f"source:{next(named, table.sources[0])}"
    ends = {
        name: lags.kept[name, slow.hop].at
        for name in table.sources
        if (name, slow.hop) in lags.kept
    }
    return f"source:{min(ends, key=lambda name: ends[name], default=table.sources[0])}"


def _seconds(lags: Lags, stage: Stage) -> float | None:
    total = lags.total(stage)
    return None if isinstance(total, Missing) else total.total_seconds()


def _standing(reasons: Sequence[Reason]) -> Ruling:
    if not reasons:
        return GOOD
    more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
    ids = tuple(reason.id for reason in reasons if reason.id)[:20]
    return Ruling(Outcome.FAIL, f"{reasons[0].text}{more}", reasons[0].code, ids)
