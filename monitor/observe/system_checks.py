"""Decides checks that no probe covers: lateness, holds, components, copies, images, disks.

Every check is decided in every round, PASS included, because an incident ends only when its
check is seen to pass. A problem common to many tables has one cause. Examples are a component
that is down, a source with late changes, a merge backlog, and a hold of a whole source.

A dead-lettered notification counts until it is waived. The waiver covers all that were
dead-lettered before it too.

A copy that is held, late or incomplete affects only its own readers, so the answers for the table
do not depend on it. Its lost rows are a separate check, because only a new load ends them.

A missing image is not reported for a day that ended before its table had a base or before this
service ran. It is reported if an older image shows that images are made. A missed image stays
missed, and the image of the next day ends the incident.

`StalledRound` reports a monitoring round that hangs. It runs in the delivery job, in a separate
thread, and needs neither the round nor its lock.

Totals never decrease, so a sliding window counts only failures of the last minutes. The disks are
those of store, lake and log.
"""

import os
import stat
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path

import structlog

from alerts.model import AlertKind, Cause, Incident, IncidentState
from alerts.outbox import ChannelHealth
from alerts.round import AlertSettings, Round, settle_round
from checks.blocks import Inputs, Pause, rule_pause_length
from checks.ledger import LEDGER
from checks.model import MOST_KEYS, Outcome, Reason, Ruling, Verdict
from checks.readiness import Readiness
from monitor.board import STALE, Board, ChannelView, CopyView, CurrentBoard, DiskView, FirstLanding
from monitor.config.model import DiskSettings
from monitor.store.alerts import Backlog, StoredOutbox
from monitor.store.store import ServiceStore
from pipeline.checkpoint import Checkpoint
from pipeline.clocks import first_fence
from pipeline.errors import UnreachableError
from pipeline.lags.lag import Lags
from pipeline.lags.retention import Retention
from pipeline.lags.samples import Samples
from pipeline.model import Hop, Missing, Order, SnapshotAgain, Stage, Table
from pipeline.sources.positions import locate_position

GOOD = Ruling(Outcome.PASS, "nothing is wrong")
HOLD_CHECKS: Mapping[str, str] = {
    "gap": "gap",
    "quarantine": "quarantine",
    "foreign_write": "foreign_write",
    "unbalanced": "account",
    "no_base": "blocked",
    "residual": LEDGER,
}
"""Reason code -> check; any other reason is a ``hold``."""
OF_THE_CHECKPOINT = ("gap", "quarantine", "blocked")
"""Checks whose reasons only the change log shows."""
ELSEWHERE = frozenset({"check_failed"})  # a probe's FAIL has its own incident
FIRST_LANDING = "first_landing"
SNAPSHOT_AGAIN = "snapshot_again"
LONGEST_SNAPSHOT_AGAIN = timedelta(
    days=1
)  # how long a new snapshot is an incident: a short snapshot may end before one fires
MERGING = "merging"
STORE = "store"
KAFKA = "kafka"
OF_BROKERS = ("kafka", "broker", "timed out", "timeout")  # words in a collector's broker errors
CHECKS = ("lag", "service", "hold", "pause", "disagreement", *dict.fromkeys(HOLD_CHECKS.values()))


@dataclass(frozen=True, slots=True)
class Component:
    """A component such as a source, collector or job: its name, its check and its problem."""

    name: str
    check: str
    problem: str = ""


def of_part(part: Component, at: datetime, parts: Sequence[Component] = ()) -> Verdict:
    """Rule on one component; the failures that it causes share its cause.

    A collector whose source is down has the cause of the source.  A component whose problem quotes
    that of the store or the brokers has their cause. So has a collector whose problem names brokers
    or a timeout while the brokers are down.  Other failures are separate incidents.
    """
    if not part.problem:
        return Verdict(part.name, part.check, Ruling(Outcome.PASS, "works"), at)
    read = source_of(part.name.removeprefix("collector:"))
    needed = {read}
    if part.name.startswith("collector:") and any(w in part.problem.lower() for w in OF_BROKERS):
        needed.add(KAFKA)
    down = next((one for one in parts if one.name in needed and one.problem), part)
    for one in parts:
        first = one.problem.partition(": ")[0]
        if first and one.name in (KAFKA, STORE) and f"{first}: " in part.problem:
            down = one
    return _blaming(part.name, part.check, down, at)


def source_of(name: str) -> str:
    """Return the subject of verdicts about a source."""
    return f"source:{name}"


def of_first_landings(
    sources: Iterable[str],
    landings: Iterable[FirstLanding],
    parts: Sequence[Component],
    at: datetime,
) -> Iterator[Verdict]:
    """Rule on the first landing of each source: FAIL if it is stuck although its parts work."""
    under_way = {one.source: one for one in landings}
    for name in sources:
        own = (source_of(name), f"collector:{name}", "worker")
        down = next((part for part in parts if part.name in own and part.problem), None)
        ruling = _landing(under_way.get(name), down, at)
        yield Verdict(source_of(name), FIRST_LANDING, ruling, at, cause=source_of(name))


def _landing(one: FirstLanding | None, down: Component | None, at: datetime) -> Ruling:
    if one is None:
        return Ruling(Outcome.PASS, "the first landing is complete")
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
    """Rule whether the table is late in *stage*, or affected by a component that is *down*.

    For a table whose merges are paused, *stage* is the change log.
    """
    if down:
        yield _blaming(table.name, "service", down[0], at)
        return
    yield Verdict(table.name, "service", Ruling(Outcome.PASS, "every part works"), at)
    lateness, cause = _lateness(lags, budget, stage), _held_up(table, lags, stage)
    yield Verdict(table.name, "lag", lateness, at, value=_seconds(lags, stage), cause=cause)


def of_pause(table: str, pause: Pause | None, kept: timedelta, at: datetime) -> Verdict:
    """Rule whether the table is paused for so long that the pause may be forgotten."""
    return Verdict(table, "pause", rule_pause_length(pause, kept, at), at)


def of_holds(
    table: str,
    reasons: Iterable[Reason],
    at: datetime,
    first: FirstLanding | None = None,
    *,
    landed: bool = True,
) -> Iterator[Verdict]:
    """Yield one verdict per kind of hold, from the reasons that block the table.

    A missing base is not a failure during the *first* snapshot, while that makes progress.
    While it is unknown what has *landed*, holds that only the change log shows get no verdict.
    ``hold`` gets no PASS then, because it may be a gap of a harmful setting.
    """
    kinds: dict[str, list[Reason]] = {"hold": [], **{kind: [] for kind in HOLD_CHECKS.values()}}
    for reason in reasons:
        if reason.code not in ELSEWHERE:
            kinds[HOLD_CHECKS.get(reason.code, "hold")].append(reason)
    for kind, found in kinds.items():
        if not landed and (kind in OF_THE_CHECKPOINT or (kind == "hold" and not found)):
            continue
        own = [reason for reason in found if not reason.cause]
        cause = found[0].cause if found and not own else ""
        ruling = _standing([*own, *(one for one in found if one.cause)])
        if first and found and kind == HOLD_CHECKS["no_base"]:
            cause = source_of(first.source)
            ruling = ruling if first.stuck else Ruling(Outcome.UNKNOWN, first.line, "not_yet")
        yield Verdict(table, kind, ruling, at, value=float(len(found)), cause=cause)


def of_disagreement(table: str, answers: Iterable[Readiness], at: datetime) -> Verdict:
    """Rule whether sum rule and proof have contradicted each other for too long."""
    for answer in answers:
        for reason in answer.reasons:
            if reason.code == "rules_disagree":
                ruling = Ruling(Outcome.FAIL, reason.text, reason.code)
                return Verdict(table, "disagreement", ruling, at)
    return Verdict(table, "disagreement", Ruling(Outcome.PASS, "the two rules agree"), at)


def rule_of(shards: str) -> str:
    """Return the subject of verdicts about a rule of the config."""
    return f"rule:{shards}"


def of_declared(declared: Mapping[str, str], at: datetime, first: str = "") -> Iterator[Verdict]:
    """Rule for each rule under `tables` whether a table that it matches is collected.

    *first* describes the progress of a first landing, which may still bring such a table.
    """
    for shards, why in declared.items():
        ruling = Ruling(Outcome.PASS, "a table that it names is collected")
        if why:
            reason = f"{why}; {first}" if first else why
            ruling = Ruling(Outcome.UNKNOWN, reason, "not_yet" if first else "not_collected")
        yield Verdict(rule_of(shards), "collected", ruling, at)


def snapshots_of(source: str) -> str:
    """Return the subject of verdicts about the snapshots of a source's collector."""
    return f"snapshots:{source}"


def of_snapshots(source: str, again: SnapshotAgain | None, at: datetime) -> Verdict:
    """Rule whether its collector recently took a new snapshot that was not requested."""
    ruling = Ruling(Outcome.PASS, "its collector goes on where it stopped")
    if again is not None and not again.asked and at - again.at < LONGEST_SNAPSHOT_AGAIN:
        reason = (
            f"at {again.at.isoformat(timespec='seconds')} the collector of {source} took a new"
            f" snapshot of {again.tables} tables that it had sent before, so unsent earlier changes"
            " are in no change log and in no image; unless it was asked to, check its stored offset"
            " and how long the source retains its log"
        )
        ruling = Ruling(Outcome.FAIL, reason, SNAPSHOT_AGAIN)
    return Verdict(snapshots_of(source), SNAPSHOT_AGAIN, ruling, at)


def retention_of(source: str) -> str:
    """Return the subject of verdicts about the retention of a source's topics and log."""
    return f"retention:{source}"


def of_retentions(source: str, retentions: Sequence[Retention], at: datetime) -> Verdict:
    """Rule whether retention will soon delete unread changes."""
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
        hours = left.total_seconds() / 3600
        text = f"{kind} {name}{more}: retention deletes unread changes in {hours:.1f} h"
        return Ruling(Outcome.FAIL, f"{text}; raise the retention first", "headroom")
    for one in retentions:
        if one.unknown:
            why = one.kept.why if isinstance(one.kept, Missing) else "what is read is not known"
            return Ruling(Outcome.UNKNOWN, f"{one.kind} {one.name}: {why}", "not_yet")
    return Ruling(Outcome.PASS, "no unread change is deleted soon")


def _blaming(name: str, check: str, part: Component, at: datetime) -> Verdict:
    reason = part.problem.removeprefix(f"{part.name}: ")  # a source begins with its own name
    ruling = Ruling(Outcome.FAIL, f"{part.name}: {reason}", "down")
    return Verdict(name, check, ruling, at, cause=part.name)


def _lateness(lags: Lags, budget: timedelta, stage: Stage) -> Ruling:
    total = lags.total(stage)
    if isinstance(total, Missing):
        return Ruling(Outcome.UNKNOWN, f"lag is unknown: {total.why}", "lag_unknown")
    way = " to the change log" if stage is Stage.LANDED else ""
    reason = f"lag{way} {total.total_seconds():.0f} s, budget {budget.total_seconds():.0f} s"
    if total > budget:
        slow = lags.slowest(stage)
        where = f"; the longest hop is {slow.hop}" if slow else ""
        return Ruling(Outcome.FAIL, f"{reason}{where}", "late")
    return Ruling(Outcome.PASS, reason)


def _held_up(table: Table, lags: Lags, stage: Stage) -> str:
    """Return the part that delays the table and probably others: its source, or merging."""
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
    ids = tuple(reason.id for reason in reasons if reason.id)
    text, rest = f"{reasons[0].text}{more}", len(ids[MOST_KEYS:])
    return Ruling(Outcome.FAIL, text, reasons[0].code, ids[:MOST_KEYS], rest)


PATIENCE = timedelta(minutes=5)  # a rate limit or a digest may delay a message by 1 to 2 minutes


def given_up_id(channel: str, number: int | str) -> str:
    """Return the waiver id of the dead-lettered messages of *channel* up to *number*."""
    return f"dead_letters:{channel}:{number}"


def view_channels(
    outbox: StoredOutbox, names: Iterable[str], waived: frozenset[str], now: datetime
) -> tuple[ChannelView, ...]:
    """Return every channel of *names*, and those with queued or dead-lettered messages."""
    undone = {name for name, state in outbox.counts() if state != "delivered"}
    return tuple(_view(outbox, name, waived, now) for name in sorted({*names, *undone}))


def _view(outbox: StoredOutbox, name: str, waived: frozenset[str], now: datetime) -> ChannelView:
    standing, backlog = outbox.health(name), outbox.backlog(name, _seen(name, waived))
    problems = "; ".join(_problems(name, standing, backlog, now))
    return ChannelView(name, backlog.waiting, backlog.dead, standing.failures, problems)


def _seen(name: str, waived: frozenset[str]) -> int:
    prefix = given_up_id(name, "")
    ends = [one.removeprefix(prefix) for one in waived if one.startswith(prefix)]
    return max((int(end) for end in ends if end.isdecimal()), default=0)


def _problems(name: str, standing: ChannelHealth, backlog: Backlog, now: datetime) -> Iterator[str]:
    if standing.failures:
        yield f"deliveries that failed in a row: {standing.failures}, the last: {standing.why}"
    elif backlog.since is not None and now - backlog.since > PATIENCE:
        yield f"a notification is queued since {backlog.since.isoformat(timespec='seconds')}"
    if backlog.dead:
        waiver = given_up_id(name, backlog.last)
        yield (
            f"dead-lettered notifications: {backlog.dead}, the last: {backlog.why}; read"
            f" them, then waive {waiver}"
        )


COPY = "copy"  # the check that copies follow their mirror
COPY_LEDGER = "copy_ledger"  # the check that copies took over each row that merges changed
OF_COPIES = (COPY, COPY_LEDGER)


def of_copies(
    table: str, copies: Sequence[CopyView], budget: timedelta, at: datetime
) -> Iterator[Verdict]:
    """Rule whether copies follow their mirror, and whether one lost rows; nothing without copies.

    A copy that does not answer is UNKNOWN here, because it is also a failed component.
    """
    if copies:
        followed = _join_rulings([_ruling(one, budget) for one in copies])
        yield Verdict(table, COPY, followed, at)
        lost = [
            replace(loss, text=f"copy {one.name}: {loss.text}")
            for one in copies
            for loss in one.losses
        ]
        yield Verdict(table, COPY_LEDGER, _standing(lost), at)


def _join_rulings(rulings: Sequence[Ruling]) -> Ruling:
    """Join the rulings of all copies: the gravest one, with the number of other FAILs."""
    order = (Outcome.FAIL, Outcome.UNKNOWN, Outcome.PASS)
    worst = min(rulings, key=lambda one: order.index(one.outcome))
    rest = sum(one.outcome is Outcome.FAIL for one in rulings) - 1
    return replace(worst, reason=f"{worst.reason} (and {rest} more)") if rest > 0 else worst


def _ruling(one: CopyView, budget: timedelta) -> Ruling:
    if one.hold is not None:
        return Ruling(Outcome.FAIL, f"copy {one.name}: {one.hold.detail}", one.hold.reason)
    if isinstance(one.hop.lag, Missing):
        return Ruling(Outcome.UNKNOWN, f"copy {one.name}: {one.hop.lag.why}", "not_yet")
    reason = f"copy {one.name} is {one.hop.lag.total_seconds():.0f} s behind its mirror"
    if one.hop.lag > budget:
        return Ruling(Outcome.FAIL, f"{reason}, budget {budget.total_seconds():.0f} s", "late")
    return Ruling(Outcome.PASS, reason)


IMAGE = "image"  # the check


def of_image(
    inputs: Inputs, answer: Readiness, due: timedelta, *, started: datetime, at: datetime
) -> Verdict:
    """Rule on the image of ``answer.cut``, which must exist *due* after the cut.

    *started* is the time at which this service started.
    """
    return Verdict(inputs.table.name, IMAGE, _image_ruling(inputs, answer, due, started, at), at)


def _image_ruling(
    inputs: Inputs, answer: Readiness, due: timedelta, started: datetime, at: datetime
) -> Ruling:
    if answer.ready:
        return Ruling(Outcome.PASS, "the image of yesterday is there")
    if at < answer.cut + due:
        return Ruling(Outcome.UNKNOWN, "the image of yesterday is not due yet", "not_yet")
    if not _expected(inputs, answer.cut, started):
        reason = "no image was made before, and none of yesterday was possible"
        return Ruling(Outcome.UNKNOWN, reason, "not_yet")
    hours = (at - answer.cut).total_seconds() / 3600
    why = next((one.text for one in answer.reasons), "nothing says why")
    reason = f"the image of the day that ended {hours:.1f} h ago is not ready: {why}"
    return Ruling(Outcome.FAIL, reason, "image_missing")


def _expected(inputs: Inputs, cut: datetime, started: datetime) -> bool:
    mirror, checkpoint = inputs.samples.mirror, inputs.samples.checkpoint
    if not isinstance(mirror, Missing) and any(one.cut <= cut for one in mirror.value.images):
        return True
    if started > cut or isinstance(checkpoint, Missing):
        return False
    return _based(inputs.table, cut, inputs.samples, checkpoint.value)


def _based(table: Table, cut: datetime, samples: Samples, checkpoint: Checkpoint) -> bool:
    """Whether each shard had a base by the cut, judged from the newest bases."""
    for shard in table.shards:
        fence = first_fence(samples.source(shard.source).known(), cut)
        base, epoch = checkpoint.bases.get(shard), checkpoint.epochs.get(shard.source)
        if fence is None or base is None or epoch is None:
            return False
        if base >= Order(epoch.number, *locate_position(fence.head.position)):
            return False
    return True


SUBJECT, CHECK = "job:watch", "stalled"
CAUSE = Cause(AlertKind.SERVICE, CHECK, SUBJECT)
log = structlog.get_logger(__name__)


@dataclass(eq=False)
class StalledRound:
    """Opens an incident while no monitoring round ends.

    The incident is stored like all others, so the next run of the service can clear it.  While the
    store cannot be written, the incident is in memory, and its notifications are sent.
    ``steady`` is a timer in seconds that clock steps do not affect: a step ahead does not look like
    a stall, and a step back does not hide one.
    """

    settings: AlertSettings
    current: CurrentBoard
    store: ServiceStore
    steady: Callable[[], float]
    _since: float = field(init=False)
    _newest: Board = field(init=False)
    _unsaved: dict[str, Incident] = field(default_factory=dict)
    _none_open: bool = False  # the store was read and has no such open incident

    def __post_init__(self) -> None:
        """Start to measure the age of the board now."""
        self._since, self._newest = self.steady(), self.current.board

    def tell(self, now: datetime) -> None:
        """Open the incident if the board has not changed for too long; clear it later."""
        ruling = self._ruling()
        if ruling.outcome is Outcome.PASS and self._none_open and not self._unsaved:
            return
        open_now = self._open()
        verdict = Verdict(SUBJECT, CHECK, ruling, now)
        silences = () if self.store.database.problem else self.store.silences.list(now)
        settled = settle_round(self.settings, open_now, [verdict], silences, now)
        self._none_open = not open_now and settled == Round()
        if settled != Round() or self._unsaved:
            self._record(settled, now)

    def _open(self) -> tuple[Incident, ...]:
        try:
            stored = {one.id: one for one in self.store.incidents.open() if one.cause == CAUSE}
        except UnreachableError as error:
            log.warning("open incidents cannot be read", why=str(error))
            stored = {}
        known = (stored | self._unsaved).values()
        return tuple(one for one in known if one.state is not IncidentState.RESOLVED)

    def _record(self, settled: Round, now: datetime) -> None:
        unsaved = self._unsaved | {one.id: one for one in settled.changed}
        for one in settled.dropped:
            unsaved.pop(one.id, None)

        def along() -> None:
            self.store.incidents.keep(tuple(unsaved.values()), [i.id for i in settled.dropped])

        try:
            self.store.outbox.hold(settled.messages, now)
            self.store.outbox.catch_up(now, along)
            self._unsaved = {}
        except UnreachableError as error:
            log.warning("the incident is kept in memory", why=str(error))
            self._unsaved = unsaved

    def _ruling(self) -> Ruling:
        if self.current.board is not self._newest:
            self._since, self._newest = self.steady(), self.current.board
        age = timedelta(seconds=self.steady() - self._since)
        if age <= STALE:
            return Ruling(Outcome.PASS, "the monitoring round runs")
        reason = (
            f"no monitoring round has ended for {age.total_seconds():.0f} s: every state is unknown"
        )
        return Ruling(Outcome.FAIL, reason, CHECK)


Totals = Mapping[tuple[str, str], int]
MINUTE = timedelta(minutes=1)


@dataclass(eq=False)
class SlidingWindow:
    """Compares totals with those of up to ``window`` ago; keeps one sample per minute."""

    window: timedelta = timedelta(minutes=10)
    _kept: deque[tuple[datetime, Totals]] = field(default_factory=deque)

    def counted(self, totals: Totals, now: datetime) -> Totals:
        """Return what was added to *totals* within the window; empty at first."""
        if not self._kept or now - self._kept[-1][0] >= MINUTE:
            self._kept.append((now, totals))
        while now - self._kept[0][0] > self.window:
            self._kept.popleft()
        then = self._kept[0][1]
        return {key: n - then.get(key, 0) for key, n in totals.items() if n > then.get(key, 0)}


@dataclass(frozen=True, slots=True)
class Disks:
    """Measures ``places`` by name; a place that does not exist yet counts as its parent."""

    places: Mapping[str, Path]
    settings: DiskSettings

    def look(self) -> tuple[DiskView, ...]:
        """Return the space of all disks; a disk that cannot be read is left out.

        A part that writes to such a disk reports the problem.
        """
        return tuple(self._look())

    def _look(self) -> Iterator[DiskView]:
        for name, path in self.places.items():
            there = next((one for one in (path, *path.parents) if one.exists()), None)
            if there is None:
                continue
            with suppress(OSError):
                stats = os.statvfs(there)
                size, free = stats.f_blocks * stats.f_frsize, stats.f_bavail * stats.f_frsize
                yield DiskView(name, str(path), size, free, self.settings.needed(size))


def disk_paths(store: str, lake: str) -> dict[str, Path]:
    """Return where the service writes: the store, a local lake, and the log if it is a file."""
    found = {"store": Path(store).resolve()}
    scheme, separated, rest = lake.partition("://")
    if not separated or scheme == "file":
        found["lake"] = Path(rest if separated else lake).resolve()
    with suppress(OSError, ValueError):
        number = sys.stderr.fileno()
        if stat.S_ISREG(os.fstat(number).st_mode):
            found["log"] = Path(f"/proc/self/fd/{number}").readlink()
    return found
