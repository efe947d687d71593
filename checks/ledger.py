"""Compares what went into a hop with what came out of it, by minute, table and op.  Pure.

The hop MERGE leads from the change log into the mirror: landing counts the rows that it writes,
and each merge counts the rows that it reads. A merge is compared with exactly the batches that it
covers. So positions decide whether a row is missing or only on its way, never a clock.

The hop COLLECTION leads from the source's transactions into the change log, where the collector
announces how many events a transaction has. The check that compares these counts them by minute,
once for each transaction, and speaks for the hop: a residual of it opens no second incident.

The hop LANDING leads from the topics into the change log: the consumer counts what it returns, and
landing what becomes of it, as in :mod:`pipeline.landing.topic_counts`. Each committed batch is
compared in its own report.

The hop of a copy leads from the mirror into that copy: a merge counts the rows that it changes, in
its own commit, and the copy those that it takes over, as it follows that commit. Versions of the
mirror decide what is compared. A load of the whole copy makes good what it lacked before. What a
copy misses belongs to its place, also if it is renamed.

What came out may have left no row in the mirror. It was explained then: superseded, redelivered,
quarantined, archived and so on, as in :mod:`pipeline.apply.account`.

A residual is made good by proof alone: every shard has a new base that was requested after it was
found and that the mirror holds, or each row of the table was compared with its source after that.
Which rows are missing is not known, so a repair of some rows proves nothing.

Cannot decide: batches whose counts were never recorded, merges that read batches again, and
batches of too many minutes. They are UNKNOWN, and no residual is said of them. Cannot see: records
that the consumer did not return, and rows without a topic (see :mod:`pipeline.minute_counts`).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from hashlib import sha256

from checks.named_rows import describe_count
from pipeline.copies.copy import CopiedVersion
from pipeline.minute_counts import NO_MINUTE, MinuteCounts, add_counts, add_named
from pipeline.model import Hop, Op
from pipeline.reports import TopicCounts

Counts = Mapping[str, int]
"""Op or term -> rows."""
NO_COUNTS: Counts = {}
EXTRA = " extra"
"""Ends the name of an op whose rows came out of one merge too often, and of another too seldom."""
LANDING_HOP = "landing"
"""The hop from the topics into the change log, of the landing that reads them."""
LEDGER_HOPS: tuple[str, ...] = (Hop.COLLECTION, LANDING_HOP, Hop.MERGE)
"""Hops of each table that have a ledger, in the order in which a change passes them."""
_COPY = f"{Hop.COPY}:"
EVENTS = "events"
"""What the hop COLLECTION counts in place of ops, because transactions announce no ops."""
COUNTING_CHECK = "completeness"
"""The check that counts the hop COLLECTION; its FAIL pages, and its PASS proves the hop whole."""
MOST_MINUTES_SHOWN = 5
_SECONDS = 60


def copy_hop(copy: str) -> str:
    """Return the hop that leads from the mirror into the *copy* of this name."""
    return f"{_COPY}{copy}"


def place_hop(place: str) -> str:
    """Return the hop that leads into the copy at this *place*; no name of a copy makes the same."""
    return copy_hop(f"@{sha256(place.encode()).hexdigest()[:16]}")


def is_copy_hop(hop: str) -> bool:
    """Whether *hop* leads into a copy."""
    return hop.startswith(_COPY)


def describe_missing(hop: str, number: int) -> str:
    """How much is missing or too many at *hop*, in words: each hop has its own units."""
    if hop == Hop.COLLECTION:
        return "1 event" if number == 1 else f"{number} events"
    if hop == LANDING_HOP:
        return "1 message or row" if number == 1 else f"{number} messages or rows"
    return describe_count(number)


class LedgerState(StrEnum):
    """What is known of one minute at one hop."""

    BALANCED = "balanced"
    RESIDUAL = "residual"
    IN_FLIGHT = "in_flight"
    UNKNOWN = "unknown"
    MADE_GOOD = "made_good"


@dataclass(frozen=True, slots=True)
class LandedBatch:
    """Rows of one table that a batch landed at ``at``; ``counts`` None: they were not counted."""

    batch: int
    at: datetime
    counts: MinuteCounts | None


@dataclass(frozen=True, slots=True)
class MergedBatches:
    """Rows of one table that a merge read in batches ``(since, batch]``; None: not counted.

    ``explained`` says what became of them, by minute and term.
    """

    since: int
    batch: int
    at: datetime
    counts: MinuteCounts | None
    explained: MinuteCounts | None = None


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One minute of one table at one hop; ``minute`` is in whole minutes since 1970 UTC.

    ``went_in`` and ``came_out`` hold what was compared, by op; ``in_flight`` what has not reached
    the next hop. ``unknown`` if there may be more that could not be compared. ``batch`` is the
    newest batch of what was compared, -1 without any.  ``made_good`` holds, by op, what was missing
    and is proven to be in the mirror since, ``proof`` by what.  ``found`` is when rows were last
    found to be missing or too many; None if they never were. It only grows, even
    if the clock steps back, so that a waiver of what was found before covers nothing later.
    """

    minute: int
    went_in: Counts = field(default_factory=dict)
    came_out: Counts = field(default_factory=dict)
    explained: Counts = field(default_factory=dict)
    in_flight: Counts = field(default_factory=dict)
    unknown: bool = False
    batch: int = -1
    made_good: Counts = field(default_factory=dict)
    proof: str = ""
    found: datetime | None = None

    @property
    def missing(self) -> Counts:
        """Op -> rows that went in and did not come out; negative: more came out than went in.

        Without those that were made good.
        """
        ops = sorted({*self.went_in, *self.came_out, *self.made_good})
        came = add_named(self.came_out, self.made_good)
        lost = {op: self.went_in.get(op, 0) - came.get(op, 0) for op in ops}
        return {op: rows for op, rows in lost.items() if rows}

    @property
    def state(self) -> LedgerState:
        """The gravest that is true of a part of it."""
        if self.missing:
            return LedgerState.RESIDUAL
        if self.unknown:
            return LedgerState.UNKNOWN
        if self.in_flight:
            return LedgerState.IN_FLIGHT
        return LedgerState.MADE_GOOD if self.made_good else LedgerState.BALANCED

    @property
    def residual(self) -> int | None:
        """Rows that are missing or too many, both counted; None if that is not known yet.

        Never 0 where a part was not counted, or has not reached the next hop.
        """
        wrong = sum(map(abs, self.missing.values()))
        return None if not wrong and (self.unknown or self.in_flight) else wrong

    def with_more(self, other: "LedgerEntry") -> "LedgerEntry":
        """Both, of the same minute; *other* was compared later.

        Rows that one of them has too many make up for no missing rows of the other: they are
        counted under a name of their own.
        """
        here, there = self.missing, other.missing
        extra = {
            op: -min(here[op], there[op]) for op in {*here} & {*there} if here[op] * there[op] < 0
        }
        apart = {f"{op}{EXTRA}": rows for op, rows in extra.items()}
        apart |= {op: -rows for op, rows in extra.items()}
        return LedgerEntry(
            self.minute,
            add_named(self.went_in, other.went_in),
            add_named(add_named(self.came_out, other.came_out), apart),
            add_named(self.explained, other.explained),
            add_named(self.in_flight, other.in_flight),
            self.unknown or other.unknown,
            max(self.batch, other.batch),
            add_named(self.made_good, other.made_good),
            self.proof or other.proof,
            _find_last(self.found, other.found),
        )

    def with_proof(self, proof: str) -> "LedgerEntry":
        """All that is missing is made good, by *proof*."""
        return replace(self, made_good=add_named(self.made_good, self.missing), proof=proof)


@dataclass(frozen=True, slots=True)
class Residual:
    """Rows that went into *hop* and did not come out, of one merge that was compared ``at``.

    ``missing`` is by minute, ascending, and op, as an entry has it. No row of it is of a batch
    above ``batch``, the newest that was compared in these minutes. It is not ``whole`` if it may
    have more minutes, which were not read: so it cannot be waived.
    """

    hop: str
    at: datetime
    missing: Mapping[int, Counts]
    batch: int = -1
    whole: bool = True

    @property
    def key(self) -> str:
        """What a waiver names beside check and table; another residual has another."""
        return f"{self.hop}@{int(self.at.timestamp() * 1_000)}"

    @property
    def rows(self) -> int:
        """Rows, at the hop LANDING messages too, that are missing or too many."""
        return sum(abs(rows) for ops in self.missing.values() for rows in ops.values())

    @property
    def text(self) -> str:
        """One line: rows, ops and minutes; after the first minutes only their number."""
        ops: Counts = {}
        for own in self.missing.values():
            ops = add_named(ops, own)
        shown = ", ".join(map(_spell_minute, [*self.missing][:MOST_MINUTES_SHOWN]))
        rest = len(self.missing) - MOST_MINUTES_SHOWN
        more = f" and {rest} more" if rest > 0 else ""
        rows = ", ".join(f"{op}: {rows}" for op, rows in sorted(ops.items()) if rows)
        total = describe_missing(self.hop, self.rows)
        return f"{total} ({rows}) at hop {self.hop}, of {shown}{more} UTC"


@dataclass(frozen=True, slots=True)
class TableLosses:
    """Residuals of a table that nothing has proven to be made good, oldest first.

    ``more`` are rows that no residual here has, of too many minutes; ``unreadable`` are of minutes
    that the store cannot read, so nothing proves them.
    """

    residuals: tuple[Residual, ...] = ()
    more: int = 0
    unreadable: int = 0

    def __add__(self, other: "TableLosses") -> "TableLosses":
        """Both together."""
        return TableLosses(
            (*self.residuals, *other.residuals),
            self.more + other.more,
            self.unreadable + other.unreadable,
        )

    def at_hop(self, hop: str) -> "TableLosses":
        """The same, shown as losses of *hop*."""
        return replace(self, residuals=tuple(replace(one, hop=hop) for one in self.residuals))


NO_LOSSES = TableLosses()


def group_residuals(hop: str, entries: Iterable[LedgerEntry]) -> tuple[Residual, ...]:
    """Residuals of *entries* by when they were found, oldest first; others are left out."""
    found: dict[datetime, dict[int, Counts]] = {}
    newest: dict[datetime, int] = {}
    for one in sorted(entries, key=lambda one: one.minute):
        if one.missing and one.found is not None:
            found.setdefault(one.found, {})[one.minute] = one.missing
            newest[one.found] = max(newest.get(one.found, -1), one.batch)
    return tuple(Residual(hop, at, found[at], newest[at]) for at in sorted(found))


@dataclass(frozen=True, slots=True)
class NewBase:
    """A base that was requested at ``asked``; shard -> batch in which it became complete.

    ``began``: shard -> first batch after the base read its place in the log, where that is known.
    """

    id: str
    asked: datetime
    complete: Mapping[str, int]
    began: Mapping[str, int] = field(default_factory=dict)

    def holds_above(self, batch: int, mirror: "MirrorFacts") -> bool:
        """Whether *mirror* holds it, and each shard of it was read after *batch* had landed."""
        done = [self.complete.get(shard, -1) for shard in mirror.shards]
        began = [
            self.began.get(shard, done) for shard, done in zip(mirror.shards, done, strict=True)
        ]
        return bool(done) and min(*done, *began) > batch and max(done) <= mirror.batch


@dataclass(frozen=True, slots=True)
class MirrorFacts:
    """What is known of a mirror: its ``shards``, the ``batch`` it holds, and new ``bases``.

    ``compared`` is when the row that was compared longest ago was compared with its source, where
    all columns of all rows are; None while that is not so, or a row is known to differ. ``looked``
    is the batch up to which that comparison knows the change log, and the mirror it compared.
    """

    shards: tuple[str, ...]
    batch: int
    bases: tuple[NewBase, ...] = ()
    compared: datetime | None = None
    looked: int = -1


LEDGER = "ledger"
"""The check, whose FAIL is a residual that nothing has proven to be made good."""


def find_proof(residual: Residual, mirror: MirrorFacts) -> str:
    """What proves that *residual* is made good; empty if nothing does.

    A row of it had landed before it was found. So a read of the source that began later has it.
    Two conditions say what is later, because a clock may step back: the time, and the batch.
    """
    for base in mirror.bases:
        if base.asked > residual.at and base.holds_above(residual.batch, mirror):
            return f"new base {base.id}"
    oldest = mirror.compared
    if oldest is not None and oldest > residual.at and mirror.looked >= residual.batch:
        return f"each row was compared since {oldest:%Y-%m-%d %H:%M:%S} UTC"
    return ""


def _find_last(before: datetime | None, at: datetime | None) -> datetime | None:
    """When rows were last found that were found *before*, then *at*; equal: in one report.

    If the clock stepped back between, it is up to a minute after *before*, by the seconds of *at*.
    So two minutes that were found together, and again in two reports, have two keys.
    """
    if before is None or at is None or at >= before:
        return before if at is None else at
    return before + timedelta(seconds=at.second, microseconds=at.microsecond + 1_000)


def _spell_minute(minute: int) -> str:
    return f"{datetime.fromtimestamp(minute * _SECONDS, UTC):%Y-%m-%d %H:%M}"


@dataclass(frozen=True, slots=True)
class Recorded:
    """Batches ``[first, last]`` whose landed rows were all recorded; none if last < first."""

    first: int = 0
    last: int = -1

    def with_batch(self, batch: int) -> "Recorded":
        """Add *batch*; one that does not follow the last is the first again."""
        return replace(self, last=batch) if batch == self.last + 1 else Recorded(batch, batch)


def settle_merge(
    merged: MergedBatches, landed: Sequence[LandedBatch], recorded: Recorded, settled: int
) -> tuple[LedgerEntry, ...]:
    """Compare one merge with the batches that it covers; one entry per minute, ascending.

    *landed* are the table's batches in ``(settled, merged.batch]`` that have rows of it. *settled*
    is the batch through which the table was compared before, -1 before the first.
    """
    covered = [one for one in landed if one.batch > merged.since]
    counts = [one.counts for one in covered if one.counts is not None]
    read = (
        settled <= merged.since
        and recorded.first <= merged.since + 1
        and merged.batch <= recorded.last
    )
    if merged.counts is None or not read or len(counts) < len(covered):
        return leave_unknown([*landed, LandedBatch(merged.batch, merged.at, merged.counts)])
    last = covered[-1].at if covered else merged.at
    went_in = _dated(add_counts(counts), last)
    came_out, terms = _dated(merged.counts, last), _dated(merged.explained or {}, last)
    compared = (
        LedgerEntry(
            minute,
            went_in.get(minute, NO_COUNTS),
            came_out.get(minute, NO_COUNTS),
            terms.get(minute, NO_COUNTS),
            batch=merged.batch,
            found=merged.at if went_in.get(minute, {}) != came_out.get(minute, {}) else None,
        )
        for minute in {*went_in, *came_out}
    )
    before = leave_unknown(one for one in landed if one.batch <= merged.since)
    return add_entries((*before, *compared))


def settle_copied(
    done: CopiedVersion, settled: int, at: datetime, *, again: bool = False
) -> tuple[LedgerEntry, ...]:
    """Compare one commit that a copy has followed, *at* now, with what the copy took over of it.

    *settled* is the version through which the copy was compared before. What it has followed since
    then and before *done* was not reported, so it is unknown. If it follows the commit *again*, its
    rows were counted before: only those that are missing now, or too many, count.
    """
    since, when = done.version - 1, done.at or at
    before = [LandedBatch(since, when, None)] if settled < since else []
    own = [] if done.changed == {} else [LandedBatch(done.version, when, done.changed)]
    merged = MergedBatches(since, done.version, at, done.taken)
    every = Recorded(done.version, done.version)
    found = settle_merge(merged, [*before, *own], every, min(settled, since))
    if not again:
        return found
    return tuple(_without_balanced(one) for one in found if one.missing or one.unknown)


def _without_balanced(one: LedgerEntry) -> LedgerEntry:
    missing = one.missing.items()
    went_in = {op: rows for op, rows in missing if rows > 0}
    return replace(one, went_in=went_in, came_out={op: -rows for op, rows in missing if rows < 0})


def is_loaded(one: LedgerEntry, load: CopiedVersion) -> bool:
    """Whether a *load* of a copy makes good all that is missing of *one*.

    A first load brings rows that did not come. It removes none, so it proves nothing of those that
    ought to have gone, or that came too often.
    """
    return load.swept or all(op != Op.DELETE and rows > 0 for op, rows in one.missing.items())


def settle_landing(counts: TopicCounts, batch: int, landed: datetime, at: datetime) -> LedgerEntry:
    """Compare what the topics of a table brought in a *batch* with what became of it.

    It belongs to the minute in which it *landed*. *at* is when it was compared.
    """
    wrong = counts.went_in != counts.came_out
    return LedgerEntry(
        minute_of(landed),
        counts.went_in,
        counts.came_out,
        counts.explained,
        batch=batch,
        found=at if wrong else None,
    )


def count_in_flight(landed: Iterable[LandedBatch]) -> tuple[LedgerEntry, ...]:
    """Entries of batches that no merge has reached yet."""
    return add_entries(
        LedgerEntry(minute, in_flight=counts, unknown=one.counts is None)
        for one in landed
        for minute, counts in _dated(one.counts or {NO_MINUTE: {}}, one.at).items()
    )


def leave_unknown(batches: Iterable[LandedBatch]) -> tuple[LedgerEntry, ...]:
    """Entries of batches that are compared with no merge: their minutes are unknown."""
    return add_entries(
        LedgerEntry(minute, unknown=True, batch=one.batch)
        for one in batches
        for minute in _dated(one.counts or {NO_MINUTE: {}}, one.at)
    )


def add_entries(entries: Iterable[LedgerEntry]) -> tuple[LedgerEntry, ...]:
    """Add up entries of the same minute, in the order in which they were compared; ascending.

    From the last on, so that those of one report are together before any are added to others.
    """
    found: dict[int, LedgerEntry] = {}
    for one in reversed([*entries]):
        found[one.minute] = one.with_more(found[one.minute]) if one.minute in found else one
    return tuple(found[minute] for minute in sorted(found))


def minute_of(instant: datetime) -> int:
    """Return the minute of *instant*, as an entry counts it."""
    return int(instant.timestamp() // _SECONDS)


def _dated(counts: MinuteCounts, at: datetime) -> dict[int, Counts]:
    """Counts by the number of the minute; rows without a time get the one of *at*."""
    found: dict[int, Counts] = {}
    for key, own in counts.items():
        minute = minute_of(at) if key == NO_MINUTE else int(key)
        found[minute] = add_named(found.get(minute, NO_COUNTS), own)
    return found
