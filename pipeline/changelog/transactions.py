"""Compares what each source transaction announced for a table with what has landed.

BEGIN and END have no order in the source log, and their ids recur after the log is reset. So an END
belongs to the epochs of what landed in its batch, or since its BEGIN. It is compared with rows of
those epochs only; and with those of later ones if no transaction of its id began after it.

Rows of a shard whose base is above the transaction are not missing: the base has their result. A
base is above if it is above a landed row of the transaction. If none has landed, it must be above
all of the END's batch, and must have begun so much later that newer rows had landed.

A collector that is killed inside a transaction sends it again. The new run numbers events from 1,
at or before the first event that is not known to be stored. Its END counts the new run only.
`find_resumed_numbers` finds the event at which the new run began. An empty result means that there
were not two runs, or that it is undecidable.

Debezium's Postgres connector numbers events as before when it sends them again, and its END counts
all of them. So its transactions need no BEGIN: each began with its event 1, and counts as begun
once. `keeps_numbers` recognizes these transactions.

Batches never change, so `LogMemory` keeps what was read of them, for readers that open newer and
newer versions. It forgets everything if the log ends earlier than before, or is another log.
"""

import json
import sys
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import accumulate, takewhile
from typing import Any, TypeVar

from pipeline.delta.reader import SnapshotReader, among_sql, quote_literal
from pipeline.model import ORDER_PARTS, Op, Origin, Shard, Table
from pipeline.readings import LogKey, ShardBase, Transaction

MOST_ENDS = 50_000  # transactions, some 0.5 kB each
MOST_SPANS = 5_000  # batches
T = TypeVar("T")
MOST_KEYS = 100_000  # changed rows that were read ahead, some 0.2 kB each
MOST_TEXT = 20_000_000  # characters of these keys
Row = Mapping[str, Any]
TxKey = tuple[str, str]
"""Source and id of a transaction."""
FindIncarnation = Callable[[int], int | None]
"""Returns the number of the incarnation of the log that landed a batch; None if not known."""


def unknown_incarnation(_batch: int) -> int | None:
    """Return None, for a log whose incarnations are unknown."""
    return None


@dataclass(frozen=True, slots=True)
class BatchSpan:
    """The lowest epoch and the highest position of a source's live changes in a batch.

    ``high`` is an epoch, a log and a position: the first parts of an order.
    """

    low: int
    high: tuple[int, ...]


Spans = Mapping[str, BatchSpan]
"""Spans of one batch by source; a source without a live change in it is absent."""


@dataclass(frozen=True, slots=True)
class TransactionEnd:
    """One END: number of events in all and by ``database.table``, its batch and its offset.

    ``at`` is when it was written. ``span`` is that of its batch and source; None if nothing but
    transaction markers landed.
    """

    total: int
    counts: Mapping[str, int]
    batch: int
    span: BatchSpan | None = None
    offset: int = sys.maxsize
    at: datetime | None = None

    @property
    def epochs(self) -> tuple[int, int] | None:
        """Return the first and the last epoch it may belong to; None for any epoch."""
        return None if self.span is None else (self.span.low, self.span.high[0])


Ended = tuple[TxKey, TransactionEnd]


@dataclass(frozen=True, slots=True)
class KnownTouch:
    """The newest change of a key in batches up to ``until``.

    ``landed`` is a batch that is not after the one of its record. If the log does not have the
    record, ``row`` is a later change of the key, or None.
    """

    key: LogKey
    landed: int
    row: Row | None
    until: int


@dataclass(frozen=True, slots=True)
class KnownEmptied:
    """The rows that emptied a table's shards in batches above ``after`` and up to ``until``."""

    rows: Sequence[Row]
    after: int
    until: int


KeyName = tuple[str, str, str]
"""Source, shard and key."""


@dataclass(frozen=True, slots=True)
class KnownKeys:
    """Keys changed in batches in ``(after, until]``: those that follow ``above``, ascending.

    ``above`` is None for those from the first on. ``whole`` is True if no other keys follow them.
    """

    after: int
    until: int
    above: KeyName | None
    keys: tuple[KeyName, ...]
    whole: bool

    def next(
        self, after: int, until: int, above: KeyName | None, most: int
    ) -> tuple[KeyName, ...] | None:
        """Return at *most* so many keys of the same batches *above* that key; None if unknown."""
        if (self.after, self.until) != (after, until):
            return None
        if self.above is not None and (above is None or above < self.above):
            return None
        first = 0 if above is None else bisect_right(self.keys, above)
        found = self.keys[first : first + most]
        return found if len(found) == most or self.whole else None


@dataclass(eq=False)
class LogMemory:
    """Keeps what was read of batches; for one thread at a time.

    ``sources`` are those whose transactions its readers request. ``until`` is the newest batch of
    the log. ``touches``, ``emptied`` and ``keys`` are by table.
    """

    sources: tuple[str, ...] = ()
    until: int = -1
    touches: dict[str, Mapping[LogKey, KnownTouch]] = field(default_factory=dict)
    emptied: dict[str, KnownEmptied] = field(default_factory=dict)
    keys: dict[str, KnownKeys] = field(default_factory=dict)
    _log: str = ""
    _incarnation: int | None = None
    _ends: dict[int, Mapping[tuple[str, str], Sequence[Ended]]] = field(default_factory=dict)
    _sizes: dict[int, int] = field(default_factory=dict)
    _spans: dict[int, Spans] = field(default_factory=dict)
    _counts: dict[int, int] = field(default_factory=dict)
    _ended: dict[int, frozenset[str]] = field(default_factory=dict)

    def of(self, log: str, until: int, incarnation: FindIncarnation = unknown_incarnation) -> None:
        """Forget everything unless this is the same *log*, grown to *until*.

        A log that was rolled back may have grown as far again, in another incarnation.
        """
        if self._log != log or until < self.until or incarnation(self.until) != self._incarnation:
            self.touches, self.emptied, self._ends, self._sizes = {}, {}, {}, {}
            self._spans, self._counts, self._ended, self.keys = {}, {}, {}, {}
        self._log, self.until, self._incarnation = log, until, incarnation(until)

    def keep_keys(self, table: str, known: KnownKeys) -> None:
        """Keep the keys of *table*, and as many of others as fit; the oldest are dropped first."""
        self.keys.pop(table, None)
        lengths = accumulate(len(key) for *_, key in known.keys)
        fitting = sum(length <= MOST_TEXT for length in lengths)
        if fitting < len(known.keys):
            known = replace(known, keys=known.keys[:fitting], whole=False)
        self.keys[table] = known
        while len(self.keys) > 1 and sum(len(one.keys) for one in self.keys.values()) > MOST_KEYS:
            del self.keys[next(iter(self.keys))]

    def ends(
        self,
        shards: Sequence[tuple[str, str]],
        batches: range,
        read: Callable[[range], Iterator[Ended]],
    ) -> list[Ended]:
        """Return each last END in *batches* of a transaction with an event of *shards*, by epoch.

        *read* returns all ENDs of some batches, in the order of landing. It is called once for each
        batch.
        """
        lacking = [batch for batch in batches if batch not in self._ends]
        if lacking:
            self._take(range(lacking[0], lacking[-1] + 1), read)
        found: dict[tuple[TxKey, tuple[int, int] | None], Ended] = {}
        for batch in batches:
            known = self._ends[batch]
            for shard in shards:
                found.update(((one[0], one[1].epochs), one) for one in known.get(shard, ()))
        self._forget()
        return list(found.values())

    def spans(
        self, batches: Iterable[int], read: Callable[[Sequence[int]], Mapping[int, Spans]]
    ) -> Mapping[int, Spans]:
        """Return the spans of each of *batches*; *read* gets all unknown ones in one call."""
        return _recall(self._spans, batches, read, {})

    def counts(
        self, batches: Iterable[int], read: Callable[[Sequence[int]], Mapping[int, int]]
    ) -> Mapping[int, int]:
        """Return the number of ENDs in each of *batches*; *read* as for `spans`."""
        return _recall(self._counts, batches, read, 0)

    def ended(
        self,
        batches: Iterable[int],
        read: Callable[[Sequence[int]], Mapping[int, frozenset[str]]],
    ) -> Mapping[int, frozenset[str]]:
        """Return the sources with an END in each of *batches*; *read* as for `spans`."""
        return _recall(self._ended, batches, read, frozenset[str]())

    def _take(self, batches: range, read: Callable[[range], Iterator[Ended]]) -> None:
        by_batch: dict[int, dict[tuple[str, str], list[Ended]]] = {batch: {} for batch in batches}
        sizes = dict.fromkeys(batches, 1)
        for one in read(batches):
            key, end = one
            sizes[end.batch] += 1
            for shard in end.counts:
                by_batch[end.batch].setdefault((key[0], shard), []).append(one)
        self._ends |= by_batch
        self._sizes |= sizes

    def _forget(self) -> None:
        """Drop the oldest batches, while there are too many ENDs."""
        held = sum(self._sizes.values()) if len(self._sizes) > 1 else 0
        for batch in sorted(self._sizes):
            if held <= MOST_ENDS:
                return
            held -= self._sizes.pop(batch)
            del self._ends[batch]


def _recall(
    known: dict[int, T],
    batches: Iterable[int],
    read: Callable[[Sequence[int]], Mapping[int, T]],
    none: T,
) -> Mapping[int, T]:
    """Return what is *known* of *batches*, or what *read* returns; the newest remain known."""
    wanted = set(batches)
    lacking = sorted(wanted - known.keys())
    loaded = read(lacking) if lacking else {}
    known |= {batch: loaded.get(batch, none) for batch in lacking}
    found = {batch: known[batch] for batch in wanted}
    for batch in sorted(known)[:-MOST_SPANS]:
        del known[batch]
    return found


ROWS = (Op.CREATE, Op.UPDATE, Op.DELETE)
COUNTED = (*ROWS, Op.TRUNCATE)  # only in Postgres is TRUNCATE part of a transaction
LOOK_BACK = 50  # batches around an END that are searched first
PLACE = [f"t.\"order\"['{part}']" for part in ORDER_PARTS]
PLACES = ", ".join(f"{part} AS p{i}" for i, part in enumerate(PLACE))
TX = "t.tx['id']"


def read_place(row: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the order of a row that was read with its ``PLACES``."""
    return tuple(int(row[f"p{i}"] or 0) for i in range(len(PLACE)))


@dataclass(frozen=True, slots=True)
class SentEvent:
    """One landed event of a transaction; an event that landed twice gives two of these.

    ``place`` orders events within the transaction: the order, then delete before create, because a
    changed key is sent as both, from one position in the log.
    """

    place: tuple[int, ...]
    total_order: int


def find_resumed_numbers(events: Iterable[SentEvent], begun: int, promised: int) -> tuple[int, ...]:
    """Return the number that the first of two runs gave to the first event of the second run.

    Return an empty tuple if there were not two runs, or if the number is unknown. It is unknown
    after more than two runs, or if the second run starts at the end of the first: then no event has
    two numbers.
    """
    numbers: dict[tuple[int, ...], list[int]] = {}
    for event in events:
        numbers.setdefault(event.place, []).append(event.total_order)
    starts = sorted(place for place, seen in numbers.items() if 1 in seen)
    if begun != 2 or not starts or not promised:
        return ()
    if len(starts) == 1:  # it began again at its first event, or had sent none before
        return (1,)
    return tuple({number for number in numbers[starts[-1]] if number > 1})


ENDS_AT_ONCE = 500
SENT = (*COUNTED, Op.HEARTBEAT)
EPOCH, LOG, POS, _ = PLACE
# Rows of one COPY share a position of Postgres, and differ by number.  See `keeps_numbers`.
NUMBER = f"CASE WHEN {TX} ~ '^[0-9]+$' THEN t.tx['total_order'] END"
# The query engine takes quadratic time for `count(DISTINCT struct(...))`, and not for this.
DISTINCT = f"DISTINCT source, {TX} AS id, {PLACES}, shard, op, {NUMBER} AS number"
EVER = (0, sys.maxsize)
Boundaries = Mapping[TxKey, Sequence[tuple[int, int]]]
"""Batch and offset of each BEGIN, or of each END, rising."""
Landed = Mapping[tuple[int, str], int]
"""Number of distinct changes of one transaction, by epoch and shard."""


def keeps_numbers(name: str) -> bool:
    """Return whether events of the transaction *name* keep their numbers when sent again.

    Debezium's Postgres connector stores how many events it has sent, and continues from there. Its
    names are numbers alone. Those of MySQL (a GTID, or ``file=...,pos=...``) and MariaDB are not.

    MySQL and MariaDB number from 1 again where they continue, so an event 1 does not show that none
    came before it. Nor does it if no BEGIN of the transaction, or of its source, is in sight: the
    BEGIN of the first run may be long ago, and that of the second just out of sight.
    """
    return name.isascii() and name.isdigit()


@dataclass(frozen=True, slots=True)
class FirstEvent:
    """The batch in which event 1 of a transaction landed, and the epoch of its log position."""

    batch: int
    epoch: int

    def precedes(self, end: TransactionEnd) -> bool:
        """Return whether the transaction of END, or an earlier one of its id, began here.

        An event of another log than END's may be of a later transaction. So may one that landed
        after END, unless only its log was read when END landed.
        """
        span = end.span
        if self.batch > end.batch:
            return span is not None and self.epoch == span.low == span.high[0]
        return span is None or self.epoch <= span.low


@dataclass(frozen=True, slots=True)
class Starts:
    """The beginnings of the transactions in some rows.

    ``ends`` are their ENDs. Those that keep their numbers have ``firsts``, the others ``begins``.
    """

    begins: Boundaries
    ends: Boundaries
    firsts: Mapping[TxKey, Sequence[FirstEvent]]

    def shows(self, key: TxKey, end: TransactionEnd) -> bool:
        """Return whether the transaction of END began in these rows."""
        firsts = self.firsts.get(key, ())
        return bool(_before(self.begins, key, end)) or any(first.precedes(end) for first in firsts)

    def find_low(self, key: TxKey, end: TransactionEnd, span: BatchSpan) -> int:
        """Return the first epoch that END may belong to, by its first event.

        Without such an event it is that of *span*. The transaction began in an older epoch if it
        did not begin in *span*, and no END came since.
        """
        before = [first for first in self.firsts.get(key, ()) if first.batch <= end.batch]
        if any(first.epoch >= span.low for first in before):
            return span.low
        if any(at < _place(end) for at in self.ends.get(key, ())):
            return span.low
        return max((first.epoch for first in before), default=span.low)


@dataclass(frozen=True, slots=True)
class SentTransaction:
    """An END, its first and last possible epoch, and how often its transaction began in these."""

    key: TxKey
    end: TransactionEnd
    epochs: tuple[int, int]
    begun: int
    recurs: bool = False
    """Whether a transaction of this id began after the END: rows of later epochs are its rows."""

    def promised(self, table: Table) -> dict[str, int]:
        """Return the announced events of *table*, by shard."""
        names = {shard.name for shard in table.shards if shard.source == self.key[0]}
        return {shard: n for shard, n in self.end.counts.items() if shard in names}

    def compared(
        self, promised: Mapping[str, int], landed: Landed, above: Iterable[str] = ()
    ) -> Transaction:
        """Compare announced with *landed* events, without shards whose base is *above* them.

        If it may belong to several epochs, the one that matches counts, or else the newest.
        """
        wanted = sum(n for shard, n in promised.items() if shard not in above)
        found = Counter[int]()
        for (epoch, shard), n in landed.items():
            if self.epochs[0] <= epoch <= self.epochs[1] and shard not in above:
                found[epoch] += n
        fits = wanted in found.values()
        newest = found[max(found)] if found else 0
        told, end = wanted if fits else newest, self.end
        return Transaction(self.key[1], wanted, told, end.batch, at=end.at)

    def split_over(self, landed: Landed, above: Iterable[str] = ()) -> dict[int, int]:
        """Return what has landed by epoch, if that may be of this transaction; else nothing.

        A new epoch is valid from the ends of partitions that were listed when the new log was first
        seen. So an END may land in the batch before its rows' epoch begins, and rows on both sides
        of such an end are of two epochs.
        """
        if self.recurs:
            return {}
        found = Counter[int]()
        for (epoch, shard), n in landed.items():
            if epoch >= max(1, self.epochs[0]) and shard not in above:  # epoch 0: without an order
                found[epoch] += n
        return dict(found)


@dataclass(frozen=True, slots=True)
class TransactionReader:
    """Reads what *lane* landed of transactions."""

    pinned: SnapshotReader
    lane: str
    memory: LogMemory

    def of(
        self, table: Table, batches: range, bases: Mapping[str, ShardBase]
    ) -> tuple[Transaction, ...]:
        """Return those of *table* with an END in *batches*, except those that are below *bases*."""
        ends = self._ends(table, batches)
        found: list[Transaction] = []
        for start in range(0, len(ends), ENDS_AT_ONCE):
            some = ends[start : start + ENDS_AT_ONCE]
            complete = self._complete_near(table, some)
            found += complete.values()
            left = [one for n, one in enumerate(some) if n not in complete]
            if left:
                found += self._stated(table, left, batches.start - LOOK_BACK, bases)
        return tuple(sorted(found, key=lambda tx: (tx.end_batch, tx.id)))

    def limit(self, after: int, until: int, most: int) -> int:
        """Return the newest batch up to *until* with at *most* so many ENDs above *after*.

        One batch always fits.
        """
        batches = range(after + 1, until + 1)
        counts = self.memory.counts(batches, self._read_counts)
        sums = accumulate(counts[batch] for batch in batches)
        fitting = sum(1 for _ in takewhile(lambda n: n <= most, sums))
        return min(until, after + max(fitting, 1))

    def _read_counts(self, batches: Sequence[int]) -> Mapping[int, int]:
        found = self.pinned.select(
            f"SELECT batch, count(*) AS n FROM t WHERE lane = {quote_literal(self.lane)}"  # noqa: S608
            f" AND batch > {batches[0] - 1} AND batch <= {batches[-1]}"
            f" AND op = {quote_literal(Op.END)}{self._own()} GROUP BY batch"
        )
        return {int(row["batch"]): int(row["n"]) for row in found}

    def _ends(self, table: Table, batches: range) -> list[Ended]:
        """Return the ENDs of *table* in *batches*; each batch is read once, for all tables."""
        shards = [(shard.source, shard.name) for shard in table.shards]
        return self.memory.ends(shards, batches, self._ended)

    def _ended(self, batches: range) -> Iterator[Ended]:
        spans, first, last = self._spans(batches), batches.start, batches.stop - 1
        found = self.pinned.select(
            f'SELECT source, {TX} AS id, "after" AS payload, batch, t."offset" AS at,'  # noqa: S608
            f' t."at" AS ended FROM t WHERE lane = {quote_literal(self.lane)}'
            f" AND batch > {first - 1} AND batch <= {last}"
            f" AND op = {quote_literal(Op.END)}{self._own()}"
            ' ORDER BY batch, topic, t."offset"'
        )
        for row in found:
            span = spans[int(row["batch"])].get(row["source"])
            yield (row["source"], row["id"]), _end(row, span)

    def _spans(self, batches: Iterable[int]) -> Mapping[int, Spans]:
        return self.memory.spans(batches, self._read_spans)

    def _read_spans(self, batches: Sequence[int]) -> Mapping[int, Spans]:
        found = self.pinned.select(
            f"SELECT batch, source, {EPOCH} AS epoch, {LOG} AS log, max({POS}) AS pos"  # noqa: S608
            f" FROM t WHERE lane = {quote_literal(self.lane)}"
            f" AND batch >= {batches[0]} AND batch <= {batches[-1]}"
            f" AND {among_sql('batch', batches)}"
            f" AND {among_sql('op', SENT)} AND origin = {int(Origin.LIVE)}"
            f' AND t."order" IS NOT NULL{self._own()}'
            f" GROUP BY batch, source, {EPOCH}, {LOG}"
        )
        spans: dict[int, dict[str, BatchSpan]] = {}
        for row in found:
            own, source, place = spans.setdefault(int(row["batch"]), {}), row["source"], _high(row)
            known = own.get(source, BatchSpan(place[0], place))
            own[source] = BatchSpan(min(known.low, place[0]), max(known.high, place))
        return spans

    def _own(self) -> str:
        sources = self.memory.sources
        return f" AND {among_sql('source', sources)}" if sources else ""

    def _complete_near(self, table: Table, ends: Sequence[Ended]) -> dict[int, Transaction]:
        """Return the transactions that are complete in batches near *ends*, by index in *ends*.

        Rows may land long after END, so the others are searched in all newer batches. The result is
        empty if the newest batch is near anyway.
        """
        first, last = (choose(end.batch for _, end in ends) for choose in (min, max))
        if last + LOOK_BACK >= self.memory.until:
            return {}
        names = sorted({name for (_, name), _ in ends})
        near = (
            f"{self._rows(names)} AND batch > {first - LOOK_BACK} AND batch <= {last + LOOK_BACK}"
        )
        starts, landed = self._starts(near), self._landed_of(table, near)
        found = {}
        for index, (key, end) in enumerate(ends):
            compared = self._compared(table, self._sent(key, end, starts), landed)
            if compared is not None and starts.shows(key, end):
                found[index] = compared
        return found

    def _stated(
        self, table: Table, ends: Sequence[Ended], since: int, bases: Mapping[str, ShardBase]
    ) -> Iterator[Transaction]:
        rows = self._rows(sorted({name for (_, name), _ in ends}))
        near = f"{rows} AND batch > {since}"
        starts = self._starts(near)
        hidden = [one for one in ends if not starts.shows(*one)]
        if not hidden or self._follow_others(hidden, since):
            rows = near
        else:  # one began long ago, so all batches are searched
            starts = self._starts(rows)
        landed = self._landed_of(table, rows)
        unequal = []
        for key, end in ends:
            sent = self._sent(key, end, starts)
            compared = self._compared(table, sent, landed)
            if compared is None:
                unequal.append(sent)
            else:
                yield compared
        yield from self._unequal(table, unequal, rows, landed, bases, ends=starts.ends)

    def _follow_others(self, ends: Sequence[Ended], since: int) -> bool:
        """Return whether before each of *ends* another one of its source ended, above *since*.

        Postgres sends transactions one after the other, so none of their rows is older than that
        END: their event 1 is lost. Partitions are not listed at one instant, so what was sent after
        that END may have landed a batch before it.
        """
        if not all(keeps_numbers(name) for (_, name), _ in ends):
            return False
        last = max(end.batch for _, end in ends)
        found = self.pinned.select(
            f"SELECT source, min(batch) AS first FROM t WHERE lane = {quote_literal(self.lane)}"  # noqa: S608
            f" AND batch > {since + 1} AND batch < {last} AND op = {quote_literal(Op.END)}"
            f"{self._own()} GROUP BY source"
        )
        first = {row["source"]: int(row["first"]) for row in found}
        return all(first.get(source, end.batch) < end.batch for (source, _), end in ends)

    def _compared(
        self, table: Table, sent: SentTransaction, landed: Mapping[TxKey, Landed]
    ) -> Transaction | None:
        """Return the comparison if it began once and is complete; else None."""
        compared = sent.compared(sent.promised(table), landed.get(sent.key, {}))
        complete = sent.begun == 1 and compared.landed == compared.promised
        return compared if complete else None

    def _rows(self, ids: Sequence[str]) -> str:
        return f"lane = {quote_literal(self.lane)} AND {among_sql(TX, ids)}"

    def _unequal(
        self,
        table: Table,
        unequal: Sequence[SentTransaction],
        rows: str,
        landed: Mapping[TxKey, Landed],
        bases: Mapping[str, ShardBase],
        *,
        ends: Boundaries,
    ) -> Iterator[Transaction]:
        """Yield *unequal* transactions, except those that are all below *bases*.

        The comparison leaves out shards whose base is above, and states restarts.
        """
        places = self._places(rows) if unequal and bases else {}
        for sent in unequal:
            promised, own = sent.promised(table), landed.get(sent.key, {})
            above = _above(sent, promised, places.get(sent.key, ()), bases)
            if above >= promised.keys():
                continue
            if sent.begun > 1:
                yield self._begun_again(rows, sent)
            else:
                compared = sent.compared(promised, own, above)
                split = sent.split_over(own, above)
                if (
                    (compared.landed != compared.promised and split)
                    and not _ended_again(ends, sent)
                    and (len(split) == 1 or self._are_numbered_apart(rows, table, sent, above))
                ):
                    compared = replace(compared, landed=sum(split.values()))
                yield compared

    def _are_numbered_apart(
        self, rows: str, table: Table, sent: SentTransaction, above: Collection[str]
    ) -> bool:
        """Return whether no two epochs share an event number, so all are of one transaction."""
        left = [shard for shard in sent.promised(table) if shard not in above]
        found = self.pinned.select(
            f"SELECT count(DISTINCT number) AS n, count(*) AS by_epoch FROM ("  # noqa: S608
            f"SELECT DISTINCT {EPOCH} AS epoch, t.tx['total_order'] AS number FROM t"
            f" WHERE {rows} AND source = {quote_literal(sent.key[0])}"
            f" AND {TX} = {quote_literal(sent.key[1])} AND {among_sql('op', COUNTED)}"
            f" AND {among_sql('shard', left)} AND {EPOCH} >= {sent.epochs[0]}"
            f" AND t.tx['total_order'] IS NOT NULL)"
        )
        return int(found[0]["n"]) == int(found[0]["by_epoch"]) > 0

    def _sent(self, key: TxKey, end: TransactionEnd, starts: Starts) -> SentTransaction:
        before, own = _before(starts.begins, key, end), end.span
        recurs = len(before) < len(starts.begins.get(key, ()))
        if own is None:
            return SentTransaction(key, end, EVER, len(before) or 1, recurs)
        known, newest = self._spans([batch for batch, _ in before]), own.high[0]
        spans = [known[batch].get(key[0], own) for batch, _ in before]
        begun = sum(span.high[0] >= own.low for span in spans)
        if begun or not spans:
            low = starts.find_low(key, end, own)
            return SentTransaction(key, end, (low, newest), begun or 1, recurs)
        last = [batch for batch, _ in before].count(before[-1][0])
        return SentTransaction(key, end, (spans[-1].low, newest), last, recurs)

    def _begun_again(self, rows: str, sent: SentTransaction) -> Transaction:
        """Return a restarted transaction, over all its tables.

        The restart's event is searched only if all events are of one epoch.
        """
        (source, name), end, (low, high) = sent.key, sent.end, sent.epochs
        found = self.pinned.select(
            f"SELECT {PLACES}, op, t.tx['total_order'] AS n FROM t"  # noqa: S608
            f" WHERE {rows} AND source = {quote_literal(source)} AND {TX} = {quote_literal(name)}"
            f" AND {among_sql('op', SENT)} AND t.tx['total_order'] IS NOT NULL"
            f" AND {EPOCH} >= {low} AND {EPOCH} <= {high}"
        )
        places = [(*read_place(row), int(row["op"] != Op.DELETE)) for row in found]
        events = [SentEvent(place, int(row["n"])) for place, row in zip(places, found, strict=True)]
        epochs = {place[0] for place in places}
        distinct = {(*read_place(row), row["op"]) for row in found if row["p0"] == max(epochs)}
        again = find_resumed_numbers(events, sent.begun, end.total) if len(epochs) < 2 else ()
        return Transaction(name, end.total, len(distinct), end.batch, sent.begun, again, end.at)

    def _starts(self, rows: str) -> Starts:
        """Read BEGINs, ENDs and first events in one query, as each query reads all these rows."""
        first = f"{among_sql('op', SENT)} AND t.tx['total_order'] = 1 AND t.\"order\" IS NOT NULL"
        found = self.pinned.select(
            f'SELECT source, {TX} AS id, op, batch, t."offset" AS at, {EPOCH} AS epoch'  # noqa: S608
            f" FROM t WHERE {rows} AND ({among_sql('op', (Op.BEGIN, Op.END))} OR {first})"
            ' ORDER BY batch, t."offset"'
        )
        marked: dict[str, dict[TxKey, list[tuple[int, int]]]] = {Op.BEGIN: {}, Op.END: {}}
        firsts: dict[TxKey, list[FirstEvent]] = {}
        for row in found:
            key, batch = (row["source"], row["id"]), int(row["batch"])
            kept = keeps_numbers(key[1])
            if row["op"] == Op.END or (row["op"] == Op.BEGIN and not kept):
                marked[row["op"]].setdefault(key, []).append((batch, int(row["at"] or 0)))
            elif row["op"] != Op.BEGIN and kept:
                firsts.setdefault(key, []).append(FirstEvent(batch, int(row["epoch"])))
        return Starts(marked[Op.BEGIN], marked[Op.END], firsts)

    def _landed_of(self, table: Table, rows: str) -> Mapping[TxKey, Landed]:
        found = self.pinned.select(
            f"SELECT source, id, p0 AS epoch, shard, count(*) AS n FROM (SELECT {DISTINCT} FROM t"  # noqa: S608
            f" WHERE {rows} AND {among_sql('op', COUNTED)}"
            f' AND t."table" = {quote_literal(table.name)})'
            f" GROUP BY source, id, p0, shard"
        )
        landed: dict[TxKey, dict[tuple[int, str], int]] = {}
        for row in found:
            own = landed.setdefault((row["source"], row["id"]), {})
            own[int(row["epoch"] or 0), row["shard"]] = int(row["n"])
        return landed

    def _places(self, rows: str) -> Mapping[TxKey, Sequence[tuple[int, ...]]]:
        """Return the highest position of each transaction in each epoch, over all tables."""
        found = self.pinned.select(
            f"SELECT source, {TX} AS id, {EPOCH} AS epoch, max({LOG}) AS log, max({POS}) AS pos"  # noqa: S608
            f' FROM t WHERE {rows} AND {among_sql("op", SENT)} AND t."order" IS NOT NULL'
            f" GROUP BY source, {TX}, {EPOCH}"
        )
        positions: dict[TxKey, list[tuple[int, ...]]] = {}
        for row in found:
            positions.setdefault((row["source"], row["id"]), []).append(_high(row))
        return positions


def _before(begins: Boundaries, key: TxKey, end: TransactionEnd) -> Sequence[tuple[int, int]]:
    """Return the runs that began before END: a later run has an END of its own."""
    return [one for one in begins.get(key, ()) if one <= _place(end)]


def _place(end: TransactionEnd) -> tuple[int, int]:
    return (end.batch, end.offset)


def _ended_again(ends: Boundaries, sent: SentTransaction) -> bool:
    """Return whether a transaction of this id ended after it; its BEGIN need not have landed."""
    own = ends.get(sent.key, ())
    return bool(own) and own[-1] > _place(sent.end)


def _above(
    sent: SentTransaction,
    shards: Iterable[str],
    places: Iterable[tuple[int, ...]],
    bases: Mapping[str, ShardBase],
) -> set[str]:
    """Return those of *shards* whose base includes the result of the transaction."""
    known = {shard: bases.get(str(Shard(sent.key[0], shard))) for shard in shards}
    low, high = sent.epochs
    own = max((place for place in places if low <= place[0] <= high), default=None)
    return {shard for shard, base in known.items() if base and _is_above(base, sent.end, own)}


def _is_above(base: ShardBase, end: TransactionEnd, own: tuple[int, ...] | None) -> bool:
    """Return whether *base* is above; *own* is the highest order of landed rows, if any."""
    stands = base.order.parts
    if own is not None:
        return stands >= own
    # partitions are not listed at one instant: what is newer than END may land a batch before it
    later = base.since > end.batch + 1
    return later and end.span is not None and stands >= end.span.high


def _high(row: Mapping[str, Any]) -> tuple[int, ...]:
    return (int(row["epoch"]), int(row["log"]), int(row["pos"]))


def _end(row: Mapping[str, Any], span: BatchSpan | None) -> TransactionEnd:
    payload = json.loads(row["payload"] or "{}")
    each = payload.get("data_collections") or []
    counts = {str(one["data_collection"]): int(one["event_count"]) for one in each}
    total, at = int(payload.get("event_count") or 0), int(row["at"] or 0)
    return TransactionEnd(total, counts, int(row["batch"]), span, at, row["ended"])
