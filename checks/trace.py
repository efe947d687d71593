"""Decides where a row is: which hop has it, and which hop it has not passed.

`TraceFacts` are the answers of all hops about one key of one shard. `judge_trace` names the first
hop that explains why the mirror differs from the source, in a sentence, and what to do about it.

A hop that did not answer is `Missing`. Source and mirror are read one after the other, so a row
that changes meanwhile may differ in both and be right. So a loss or a difference is reported only
under two conditions: everything committed before the source was read has landed (``covered``), and
no change of the row has landed since (``known_batch``). Until then the row is IN_FLIGHT.

Cannot detect: changes that a standard maps to the same value, and changes of columns that the
collector alters or that are not in the mirror.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from shlex import quote

from pipeline.model import Missing, Op, Order


class TraceState(StrEnum):
    """Where a row is."""

    ABSENT = "ABSENT"
    """No hop has it."""
    NOT_CAPTURED = "NOT_CAPTURED"
    """The source has it, and no change of it has landed."""
    IN_TOPIC = "IN_TOPIC"
    """A record of it has not landed yet."""
    QUARANTINED = "QUARANTINED"
    """A record of it could not be read."""
    LANDED_NOT_MERGED = "LANDED_NOT_MERGED"
    """Its newest change has landed, and the mirror has not merged it."""
    MERGED = "MERGED"
    """The mirror is right: it agrees with the source, or it keeps an archived row."""
    OVERWRITTEN_BY_OLDER = "OVERWRITTEN_BY_OLDER"
    """The mirror has an older change than the newest that is merged."""
    GHOST = "GHOST"
    """The mirror has it, the source does not, and no delete landed that removes it there."""
    LOST_FROM_MIRROR = "LOST_FROM_MIRROR"
    """Its newest change is merged, and the mirror does not have it."""
    DUPLICATE = "DUPLICATE"
    """The mirror has it more than once."""
    DIFFERENT = "DIFFERENT"
    """Both have it, with other values."""
    IN_FLIGHT = "IN_FLIGHT"
    """It may be changing now."""
    UNDECIDED = "UNDECIDED"
    """A hop that is needed did not answer."""


EMPTYING = frozenset({Op.TRUNCATE, Op.SETTLE})
"""Ops that remove all earlier rows of a shard, whether it had the row or not."""
GONE = frozenset({Op.DELETE, *EMPTYING})
"""Ops after which a shard does not have the row."""


@dataclass(frozen=True, slots=True)
class LandedChange:
    """An entry of the change log: a change of the key, or one that emptied its shard.

    ``order`` is None if its message has no position. ``at`` is the time of the source's clock.
    ``live``: it comes from the source log, and not from a snapshot or backfill.
    """

    op: Op
    batch: int
    order: Order | None = None
    at: datetime | None = None
    live: bool = True


@dataclass(frozen=True, slots=True)
class LandedChanges:
    """Entries of the key, newest first; ``whole`` if no entry can be newer than those found.

    ``searched`` says how far the log was searched, for people. The log no longer has the days up
    to batch ``dropped``; -1 if it has all.
    """

    entries: tuple[LandedChange, ...] = ()
    whole: bool = True
    searched: str = ""
    dropped: int = -1


@dataclass(frozen=True, slots=True)
class MirrorFacts:
    """Whether the mirror ``has`` the row, and the batch that the mirror is ``applied`` through.

    ``rows`` is the number of rows that the mirror has with the key; 1 is right.
    ``order`` is the order of the row's change; None for an adopted row. ``archived``: the source
    has archived the row.
    """

    has: bool
    applied: int = -1
    order: Order | None = None
    archived: bool = False
    rows: int = 1


@dataclass(frozen=True, slots=True)
class TraceFacts:
    """The answers of all hops about one key of one shard.

    ``source``: whether the source has the row. ``waiting``: the newest record of the key that has
    not landed, as ``topic:partition:offset``; empty without one. ``refused``: ids of open
    quarantined messages that carry the key. ``differing``: columns in which source and mirror
    differ, if both have the row. ``hidden``: columns that were not compared, because the collector
    alters them; ``unseen``: why no column was compared, empty if some were. ``base``: whether the
    mirror has a complete base of the shard. ``hold``: why the mirror does not merge, empty if it
    does.
    """

    source: bool | Missing
    waiting: str | Missing
    log: LandedChanges | Missing
    refused: tuple[str, ...] | Missing
    mirror: MirrorFacts | Missing
    differing: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    unseen: str = ""
    covered: bool = False
    known_batch: int = -1
    base: bool = True
    hold: str = ""


@dataclass(frozen=True, slots=True)
class TraceVerdict:
    """Where the row is: one sentence that says so, and one that says what to do."""

    state: TraceState
    sentence: str
    advice: str
    columns: tuple[str, ...] = ()

    @property
    def transient(self) -> bool:
        """Whether another look may decide it within seconds."""
        return self.advice == AGAIN


NOTHING_TO_DO = "nothing to do"
REPAIR = "read the row again: sluice repair TABLE --keys KEY --reason ..."
EXPLAIN = "if it stays so, see why: sluice explain TABLE"
AGAIN = "trace the row again in some seconds"
DUPLICATED = (
    "look for another writer of the mirror: sluice explain TABLE; then rebuild the mirror"
    " (guide restore-a-mirror), because a repair leaves both rows"
)
UNSEEN_WRITER = "then find the writer whose changes the source does not log: sluice doctor"


def judge_trace(facts: TraceFacts) -> TraceVerdict:
    """Name the first hop that explains the row."""
    found = (rule(facts) for rule in RULES)
    return next((one for one in found if one is not None), None) or _different(facts)


def _duplicate(facts: TraceFacts) -> TraceVerdict | None:
    """DUPLICATE, independent of the other hops: no merge writes a second row of a key."""
    if not _mirror(facts).has or _mirror(facts).rows < 2:
        return None
    words = f"the mirror has {_mirror(facts).rows} rows with this key"
    return TraceVerdict(TraceState.DUPLICATE, words, DUPLICATED, facts.differing)


def _equal(facts: TraceFacts) -> TraceVerdict | None:
    """MERGED, if source and mirror have the same row and nothing newer is known."""
    mirror = facts.mirror
    if facts.source is not True or isinstance(mirror, Missing) or not mirror.has:
        return None
    if facts.differing or facts.unseen or _waits(facts) or _unmerged(facts) is not None:
        return None
    words = "the mirror has the row as the source has it"
    if facts.hidden:
        words += f", except for columns that the collector alters: {', '.join(facts.hidden)}"
    unread = [name for name, answer in _hops(facts) if isinstance(answer, Missing)]
    words += f"; not answered: {', '.join(unread)}" if unread else ""
    if isinstance(facts.refused, tuple) and facts.refused:
        words += f"; {len(facts.refused)} refused messages carry its key"
        return TraceVerdict(TraceState.MERGED, words, _look_at(facts.refused))
    return TraceVerdict(TraceState.MERGED, words, NOTHING_TO_DO)


def _on_the_way(facts: TraceFacts) -> TraceVerdict | None:
    """The hop that has a newer change than the mirror, from topic to merge."""
    if _waits(facts):
        words = f"record {facts.waiting} of the row has not landed"
        return TraceVerdict(TraceState.IN_TOPIC, words, EXPLAIN)
    if (change := _unmerged(facts)) is not None:
        words = f"its newest change ({_name(change)}) landed in batch {change.batch}"
        words += f", and the mirror is merged through batch {_mirror(facts).applied}"
        words += f"; the mirror is held: {facts.hold}" if facts.hold else ""
        return TraceVerdict(TraceState.LANDED_NOT_MERGED, words, EXPLAIN)
    if isinstance(facts.refused, tuple) and facts.refused:
        words = f"a message with its key could not be read: {facts.refused[0]}"
        return TraceVerdict(TraceState.QUARANTINED, words, _look_at(facts.refused))
    return None


def _unanswered(facts: TraceFacts) -> TraceVerdict | None:
    """UNDECIDED, if the answer of a missing hop could change the verdict."""
    for name, answer in _hops(facts):
        if isinstance(answer, Missing) and not (name == "topic" and facts.covered):
            words, advice = f"{name} did not answer: {answer.why}", "fix that, and trace again"
            return TraceVerdict(TraceState.UNDECIDED, words, advice)
    if isinstance(facts.log, LandedChanges) and not facts.log.whole:
        words = f"the change log was not searched to its beginning: {facts.log.searched}"
        return TraceVerdict(TraceState.UNDECIDED, words, "trace again with a larger --budget")
    return None


def _overwritten(facts: TraceFacts) -> TraceVerdict | None:
    """OVERWRITTEN_BY_OLDER, if the mirror's row is older than a change that it has merged."""
    newest, mirror = _newest(facts), facts.mirror
    if newest is None or newest.order is None or not isinstance(mirror, MirrorFacts):
        return None
    if not mirror.has or mirror.order is None or mirror.archived or newest.order <= mirror.order:
        return None
    words = (
        f"the mirror has the row as of {spell_order(mirror.order)}, and has merged a newer change"
    )
    words += f" ({_name(newest)} at {spell_order(newest.order)}, batch {newest.batch})"
    advice = f"{REPAIR}; then look for another writer of the mirror: sluice explain TABLE"
    state = TraceState.OVERWRITTEN_BY_OLDER
    return TraceVerdict(state, words, advice, facts.differing)


def _not_compared(facts: TraceFacts) -> TraceVerdict | None:
    """UNDECIDED, if both have the row, and no column of it could be compared."""
    if facts.source is not True or not _mirror(facts).has or not facts.unseen:
        return None
    words = f"source and mirror have the row, and no value was compared: {facts.unseen}"
    return TraceVerdict(TraceState.UNDECIDED, words, "check the collector: sluice doctor")


def _in_flight(facts: TraceFacts) -> TraceVerdict | None:
    """IN_FLIGHT, while a loss cannot be proven."""
    if facts.source is False and not _mirror(facts).has:
        return None  # nothing is claimed
    newest = _newest(facts)
    if not facts.base:
        words = "the snapshot of its shard is not complete in the mirror"
        return TraceVerdict(TraceState.IN_FLIGHT, words, EXPLAIN)
    if not facts.covered:
        words = "not everything that the source had committed when it was read has landed"
        return TraceVerdict(TraceState.IN_FLIGHT, words, AGAIN)
    if newest is not None and newest.batch > facts.known_batch:
        words = f"a change of the row landed in batch {newest.batch}, while it was traced"
        return TraceVerdict(TraceState.IN_FLIGHT, words, AGAIN)
    return None


def _not_in_mirror(facts: TraceFacts) -> TraceVerdict | None:
    """The source has the row, and the mirror does not."""
    if facts.source is not True or _mirror(facts).has:
        return None
    newest = _newest(facts)
    if newest is not None and newest.op not in GONE:
        words = "its newest change is merged, and the mirror does not have the row"
        return TraceVerdict(TraceState.LOST_FROM_MIRROR, words, REPAIR)
    words = "the source has the row, and no change of it is in the change log"
    if isinstance(facts.log, LandedChanges) and facts.log.dropped >= 0:
        words += f", which begins after batch {facts.log.dropped}"
    if newest is not None and _was_known(facts):
        words = f"the source has the row, and its newest landed change is a {_name(newest)}"
    return TraceVerdict(TraceState.NOT_CAPTURED, words, f"{REPAIR}; {UNSEEN_WRITER}")


def _not_at_source(facts: TraceFacts) -> TraceVerdict | None:
    """The source does not have the row."""
    mirror, newest = _mirror(facts), _newest(facts)
    if facts.source is not False:
        return None
    if mirror.has and mirror.archived:
        words = "the row went to an archive, and the mirror keeps it"
        return TraceVerdict(TraceState.MERGED, words, NOTHING_TO_DO)
    if mirror.has and newest is not None and newest.op in GONE and mirror.order is None:
        words = f"the mirror has the row, the source does not, and its {_name(newest)} is merged"
        advice = f"{REPAIR}; then look for another writer of the mirror: sluice explain TABLE"
        return TraceVerdict(TraceState.GHOST, words, advice)
    if mirror.has:
        words = "the mirror has the row, the source does not, and no delete landed"
        return TraceVerdict(TraceState.GHOST, words, f"{REPAIR}; {UNSEEN_WRITER}")
    if newest is not None and newest.op in GONE and _was_known(facts):
        words = f"the row is gone at the source and in the mirror, because of its {_name(newest)}"
        return TraceVerdict(TraceState.MERGED, words, NOTHING_TO_DO)
    words = "neither source nor mirror has the row"
    return TraceVerdict(TraceState.ABSENT, words, "check the spelling of the key")


def _different(facts: TraceFacts) -> TraceVerdict:
    newest, latest = _newest(facts), _latest(facts)
    named = ", ".join(facts.differing)
    if newest is not None and latest is not None and latest != newest:
        words = f"the mirror has the change of {newest.at}, and the one of {latest.at} has a lower"
        words += f" order; differing: {named}"
        advice = f"{REPAIR}; then make its senders write in one order"
        state = TraceState.OVERWRITTEN_BY_OLDER
        return TraceVerdict(state, words, advice, facts.differing)
    words = f"the mirror has other values than the source: {named}"
    advice = f"{REPAIR}; {UNSEEN_WRITER}"
    return TraceVerdict(TraceState.DIFFERENT, words, advice, facts.differing)


def _hops(facts: TraceFacts) -> Iterator[tuple[str, object]]:
    yield "source", facts.source
    yield "topic", facts.waiting
    yield "change log", facts.log
    yield "quarantine", facts.refused
    yield "mirror", facts.mirror


def _waits(facts: TraceFacts) -> bool:
    return isinstance(facts.waiting, str) and bool(facts.waiting)


def _mirror(facts: TraceFacts) -> MirrorFacts:
    return facts.mirror if isinstance(facts.mirror, MirrorFacts) else MirrorFacts(has=False)


def _newest(facts: TraceFacts) -> LandedChange | None:
    entries = facts.log.entries if isinstance(facts.log, LandedChanges) else ()
    return entries[0] if entries else None


def _was_known(facts: TraceFacts) -> bool:
    """Whether a change of the row has landed, and not only one that emptied its shard."""
    entries = facts.log.entries if isinstance(facts.log, LandedChanges) else ()
    return any(one.op not in EMPTYING for one in entries)


def _latest(facts: TraceFacts) -> LandedChange | None:
    """The live change with the latest time; of equal times the newest change.

    None if the newest change is not live or has no time.
    """
    entries = facts.log.entries if isinstance(facts.log, LandedChanges) else ()
    timed = [one for one in entries if one.live and one.at is not None]
    newest = entries[0] if entries else None
    if newest is None or newest.at is None or not newest.live:
        return None
    return max(timed, key=lambda one: (one.at or newest.at, one == newest), default=None)


def _unmerged(facts: TraceFacts) -> LandedChange | None:
    """The newest change, if the mirror has neither merged nor passed it."""
    newest, mirror = _newest(facts), facts.mirror
    if newest is None or not isinstance(mirror, MirrorFacts) or newest.batch <= mirror.applied:
        return None
    if newest.op in EMPTYING and not mirror.has:
        return None  # it takes nothing
    passed = mirror.has and mirror.order is not None and newest.order is not None
    if passed and mirror.order is not None and newest.order is not None:
        return None if mirror.order >= newest.order else newest
    return newest


def _name(change: LandedChange) -> str:
    return change.op.name.lower()


def _look_at(refused: tuple[str, ...]) -> str:
    return f"correct and resend it: sluice quarantine show {quote(refused[0])}"


def spell_order(order: Order) -> str:
    """Render as ``epoch/log/pos/row``."""
    return "/".join(map(str, order.parts))


RULES: tuple[Callable[[TraceFacts], TraceVerdict | None], ...] = (
    _duplicate,
    _equal,
    _on_the_way,
    _unanswered,
    _overwritten,
    _not_compared,
    _in_flight,
    _not_in_mirror,
    _not_at_source,
)
"""The first rule that returns a verdict decides."""
