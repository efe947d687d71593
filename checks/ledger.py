"""Compares what went into a hop with what came out of it, by minute, table and op.  Pure.

The hop MERGE leads from the change log into the mirror: landing counts the rows that it writes,
and each merge counts the rows that it reads. A merge is compared with exactly the batches that it
covers. So positions, and never a clock, decide whether a row is missing or still in flight.

The hop COLLECTION leads from the source's transactions into the change log, for collectors that
announce how many events a transaction has. The check `completeness` counts these by minute, once
per transaction. Its FAIL reports the hop, so a residual of the hop opens no second incident.

The hop LANDING leads from the topics into the change log. The consumer counts the records that it
returns, and landing counts their outcomes, as in :mod:`pipeline.landing.topic_counts`. Each
committed batch is compared in its own report.

The hop of a copy leads from the mirror into that copy. A merge counts the rows that it changes, in
its own commit. The copy counts the rows that it takes over from that commit. Versions of the mirror
decide what is compared. A load of the whole copy makes good what was missing before. The ledger
identifies a copy by its place, so its residuals survive a rename.

A row that came out may have left no row in the mirror. It is explained then: superseded,
redelivered, quarantined, archived and so on, as in :mod:`pipeline.apply.account`.

A residual is made good only by proof. Either every shard has a new base that was requested after
the residual was found and that the mirror holds. Or each row of the table was compared with its
source after that. It is not known which rows are missing, so a repair of some rows proves nothing.

Cannot decide: batches whose counts were never recorded, merges that read batches again, and
batches of too many minutes. They are UNKNOWN and have no residual. Cannot detect: records that the
consumer did not return, and rows without a topic (see :mod:`pipeline.minute_counts`).
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
"""Suffix of an op for which one merge has too many rows, and another too few."""
LANDING_HOP = "landing"
"""The hop from the topics into the change log."""
LEDGER_HOPS: tuple[str, ...] = (Hop.COLLECTION, LANDING_HOP, Hop.MERGE)
"""Hops of each table that have a ledger, in the order in which a change passes them."""
_COPY = f"{Hop.COPY}:"
EVENTS = "events"
"""What the hop COLLECTION counts in place of ops, because transactions announce no ops."""
COUNTING_CHECK = "completeness"
"""The check that counts the hop COLLECTION; its FAIL pages, and its PASS proves the hop whole."""
MOST_MINUTES_SHOWN = 5
_SECONDS = 60


NOT_BY_SOURCE = "not counted by this source"
"""How the note of a hop begins that its source can never count."""


def copy_hop(copy: str) -> str:
    """Return the hop that leads from the mirror into the *copy* of this name."""
    return f"{_COPY}{copy}"


def place_hop(place: str) -> str:
    """Return the hop that leads into the copy at *place*; it differs from every `copy_hop`."""
    return copy_hop(f"@{sha256(place.encode()).hexdigest()[:16]}")


def is_copy_hop(hop: str) -> bool:
    """Whether *hop* leads into a copy."""
    return hop.startswith(_COPY)


def describe_missing(hop: str, number: int) -> str:
    """Return *number* with the unit of *hop* as text: events, messages or rows."""
    if hop == Hop.COLLECTION:
        return "1 event" if number == 1 else f"{number} events"
    if hop == LANDING_HOP:
        return "1 message or row" if number == 1 else f"{number} messages or rows"
    return describe_count(number)


class LedgerState(StrEnum):
    """State of one minute at one hop."""

    BALANCED = "balanced"
    RESIDUAL = "residual"
    IN_FLIGHT = "in_flight"
    UNKNOWN = "unknown"
    MADE_GOOD = "made_good"


@dataclass(frozen=True, slots=True)
class LandedBatch:
    """Rows of one table that a batch landed at ``at``; ``counts`` is None if not counted."""

    batch: int
    at: datetime
    counts: MinuteCounts | None


@dataclass(frozen=True, slots=True)
class MergedBatches:
    """Rows of one table that a merge read in batches ``(since, batch]``.

    ``counts`` is None if they were not counted. ``explained`` counts their outcomes, by minute and
    term.
    """

    since: int
    batch: int
    at: datetime
    counts: MinuteCounts | None
    explained: MinuteCounts | None = None


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One minute of one table at one hop; ``minute`` is in whole minutes since 1970 UTC.

    ``went_in`` and ``came_out`` count the compared rows by op. ``in_flight`` counts the rows that
    have not reached the next hop. ``unknown``: there may be more rows, which could not be compared.
    ``batch`` is the newest compared batch, -1 without one.
    ``made_good`` counts, by op, the missing rows that are proven to be in the mirror by now;
    ``proof`` says by what.
    ``found`` is when rows were last found missing or too many; None if they never were. It only
    grows, even if the clock steps back. So a waiver of an earlier finding covers no later one.
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
        """Op -> rows that went in and did not come out; negative if more came out than went in.

        Rows that were made good are not included.
        """
        ops = sorted({*self.went_in, *self.came_out, *self.made_good})
        came = add_named(self.came_out, self.made_good)
        lost = {op: self.went_in.get(op, 0) - came.get(op, 0) for op in ops}
        return {op: rows for op, rows in lost.items() if rows}

    @property
    def state(self) -> LedgerState:
        """The gravest state of any part of the minute."""
        if self.missing:
            return LedgerState.RESIDUAL
        if self.unknown:
            return LedgerState.UNKNOWN
        if self.in_flight:
            return LedgerState.IN_FLIGHT
        return LedgerState.MADE_GOOD if self.made_good else LedgerState.BALANCED

    @property
    def residual(self) -> int | None:
        """Number of rows that are missing plus rows that are too many; None if not known yet.

        Never 0 if a part was not counted or has not reached the next hop.
        """
        wrong = sum(map(abs, self.missing.values()))
        return None if not wrong and (self.unknown or self.in_flight) else wrong

    def with_more(self, other: "LedgerEntry") -> "LedgerEntry":
        """Add *other*, an entry of the same minute that was compared later.

        Surplus rows of one entry do not cancel missing rows of the other. They are counted under
        the op with the suffix ``EXTRA``.
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
        """Return the entry with all missing rows made good by *proof*."""
        return replace(self, made_good=add_named(self.made_good, self.missing), proof=proof)


@dataclass(frozen=True, slots=True)
class Residual:
    """Rows that went into *hop* and did not come out, of one merge that was compared ``at``.

    ``missing`` is `LedgerEntry.missing` by minute, ascending. ``batch`` is the newest batch that
    was compared in these minutes. ``whole`` is False if more minutes may belong to it that were not
    read; then it cannot be waived.
    """

    hop: str
    at: datetime
    missing: Mapping[int, Counts]
    batch: int = -1
    whole: bool = True

    @property
    def key(self) -> str:
        """The part of a waiver id after check and table; unique for each residual of the table."""
        return f"{self.hop}@{int(self.at.timestamp() * 1_000)}"

    @property
    def rows(self) -> int:
        """Number of rows that are missing or too many; at the hop LANDING also messages."""
        return sum(abs(rows) for ops in self.missing.values() for rows in ops.values())

    @property
    def text(self) -> str:
        """One line with rows, ops and minutes; further minutes are only counted."""
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
    """Residuals of a table that are not proven to be made good, oldest first.

    ``more`` counts rows of further minutes, which no residual here lists. ``unreadable`` counts
    those of minutes that the store cannot read, so nothing can prove them.
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
        """Return the same losses, shown as losses of *hop*."""
        return replace(self, residuals=tuple(replace(one, hop=hop) for one in self.residuals))


NO_LOSSES = TableLosses()


def group_residuals(hop: str, entries: Iterable[LedgerEntry]) -> tuple[Residual, ...]:
    """Group *entries* with missing rows by the time they were found, oldest first."""
    found: dict[datetime, dict[int, Counts]] = {}
    newest: dict[datetime, int] = {}
    for one in sorted(entries, key=lambda one: one.minute):
        if one.missing and one.found is not None:
            found.setdefault(one.found, {})[one.minute] = one.missing
            newest[one.found] = max(newest.get(one.found, -1), one.batch)
    return tuple(Residual(hop, at, found[at], newest[at]) for at in sorted(found))


@dataclass(frozen=True, slots=True)
class NewBase:
    """A base that was requested at ``asked``.

    ``complete``: shard -> batch in which its base became complete. ``began``: shard -> first batch
    after the base read its position in the log, if that is known.
    """

    id: str
    asked: datetime
    complete: Mapping[str, int]
    began: Mapping[str, int] = field(default_factory=dict)

    def holds_above(self, batch: int, mirror: "MirrorFacts") -> bool:
        """Whether *mirror* holds the base, and each shard was read after *batch* had landed."""
        done = [self.complete.get(shard, -1) for shard in mirror.shards]
        began = [
            self.began.get(shard, done) for shard, done in zip(mirror.shards, done, strict=True)
        ]
        return bool(done) and min(*done, *began) > batch and max(done) <= mirror.batch


@dataclass(frozen=True, slots=True)
class MirrorFacts:
    """What is known of a mirror: its ``shards``, the ``batch`` it holds, and new ``bases``.

    ``compared``: every column of every row was compared with the source then or later. It is None
    if some were not, or if a row is known to differ. ``looked`` is the batch up to which that
    comparison has read the change log and the mirror.
    """

    shards: tuple[str, ...]
    batch: int
    bases: tuple[NewBase, ...] = ()
    compared: datetime | None = None
    looked: int = -1


LEDGER = "ledger"
"""The check whose FAIL is a residual that is not proven to be made good."""


def find_proof(residual: Residual, mirror: MirrorFacts) -> str:
    """Return what proves that *residual* is made good; empty if nothing does.

    The missing rows had landed before the residual was found. So a read of the source that began
    later has them. "Later" requires both a later time and a later batch: a clock may step back.
    """
    for base in mirror.bases:
        if base.asked > residual.at and base.holds_above(residual.batch, mirror):
            return f"new base {base.id}"
    oldest = mirror.compared
    if oldest is not None and oldest > residual.at and mirror.looked >= residual.batch:
        return f"each row was compared since {oldest:%Y-%m-%d %H:%M:%S} UTC"
    return ""


def _find_last(before: datetime | None, at: datetime | None) -> datetime | None:
    """Return the later time of two findings, *before* and then *at*; equal: in one report.

    If the clock stepped back between them, the result is up to a minute after *before*, by the
    seconds of *at*. So two minutes that were found together, and later in two reports, get two
    keys.
    """
    if before is None or at is None or at >= before:
        return before if at is None else at
    return before + timedelta(seconds=at.second, microseconds=at.microsecond + 1_000)


def _spell_minute(minute: int) -> str:
    return f"{datetime.fromtimestamp(minute * _SECONDS, UTC):%Y-%m-%d %H:%M}"


@dataclass(frozen=True, slots=True)
class Recorded:
    """Batches ``[first, last]`` whose landed rows were all recorded; empty if last < first."""

    first: int = 0
    last: int = -1

    def with_batch(self, batch: int) -> "Recorded":
        """Add *batch*; a batch that does not follow the last one starts a new range."""
        return replace(self, last=batch) if batch == self.last + 1 else Recorded(batch, batch)


def settle_merge(
    merged: MergedBatches, landed: Sequence[LandedBatch], recorded: Recorded, settled: int
) -> tuple[LedgerEntry, ...]:
    """Compare one merge with the batches that it covers; one entry per minute, ascending.

    *landed* are the batches in ``(settled, merged.batch]`` with rows of the table. *settled* is the
    batch through which the table was compared before, -1 before the first.
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
    """Compare one commit that a copy has followed, *at* now, with the rows that the copy took over.

    *settled* is the version through which the copy was compared before. Versions between *settled*
    and *done* were not reported, so they are unknown. If the copy follows the commit *again*, its
    rows were counted before. Then only rows that are missing now, or too many, count.
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
    """Whether a *load* of a copy makes good everything that is missing in *one*.

    A load that does not sweep only adds rows. So it proves nothing for missing deletes, or for rows
    that came too often.
    """
    return load.swept or all(op != Op.DELETE and rows > 0 for op, rows in one.missing.items())


def settle_landing(counts: TopicCounts, batch: int, landed: datetime, at: datetime) -> LedgerEntry:
    """Compare the messages that a table's topics brought in a *batch* with their outcomes.

    The entry belongs to the minute of *landed*, the time at which the batch landed. *at* is the
    time of the comparison.
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
    """Return entries of batches that no merge has reached yet."""
    return add_entries(
        LedgerEntry(minute, in_flight=counts, unknown=one.counts is None)
        for one in landed
        for minute, counts in _dated(one.counts or {NO_MINUTE: {}}, one.at).items()
    )


def leave_unknown(batches: Iterable[LandedBatch]) -> tuple[LedgerEntry, ...]:
    """Return entries of batches that are not compared with a merge: their minutes are unknown."""
    return add_entries(
        LedgerEntry(minute, unknown=True, batch=one.batch)
        for one in batches
        for minute in _dated(one.counts or {NO_MINUTE: {}}, one.at)
    )


def add_entries(entries: Iterable[LedgerEntry]) -> tuple[LedgerEntry, ...]:
    """Add up entries of the same minute, in the order in which they were compared; ascending.

    Starts with the last entry, so that entries of one report are added before those of others.
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
