"""What has been read of a change log once need not be read again: its batches never change.

For readers that look at one log again and again, each at a newer version than the one before.  A
log that ends earlier than it did, or another in its place, is one of which nothing is known.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pipeline.readings import LogKey

MOST_ENDS = 50_000  # of transactions, some 0.5 kB each
MOST_SPANS = 5_000  # batches
Row = Mapping[str, Any]
TxKey = tuple[str, str]
"""Source and id."""


@dataclass(frozen=True, slots=True)
class BatchSpan:
    """Of a source's live changes in a batch: the lowest epoch, and the highest place.

    ``high`` is an epoch, a log and a position, as an order begins.
    """

    low: int
    high: tuple[int, ...]


Spans = Mapping[str, BatchSpan]
"""Of one batch, by source; without those of which it holds no live change."""


@dataclass(frozen=True, slots=True)
class TransactionEnd:
    """What END says: events in all and by ``database.table``, the batch it is in, and its offset.

    ``span`` is that of its batch and source; None where nothing but transactions landed.
    """

    total: int
    counts: Mapping[str, int]
    batch: int
    span: BatchSpan | None = None
    offset: int = sys.maxsize

    @property
    def epochs(self) -> tuple[int, int] | None:
        """The first and the last epoch it may be of; None if any."""
        return None if self.span is None else (self.span.low, self.span.high[0])


Ended = tuple[TxKey, TransactionEnd]


@dataclass(frozen=True, slots=True)
class KnownTouch:
    """The newest change of a key in batches up to ``until``; ``landed``: where its record is."""

    key: LogKey
    landed: int
    row: Row
    until: int


@dataclass(frozen=True, slots=True)
class KnownEmptied:
    """What emptied a table's shards in batches above ``after`` and up to ``until``."""

    rows: Sequence[Row]
    after: int
    until: int


@dataclass(eq=False)
class LogMemory:
    """For one thread at a time; *sources* are those whose transactions its readers ask for.

    ``until`` is the newest batch of the log; ``touches`` and ``emptied`` are by table.
    """

    sources: tuple[str, ...] = ()
    until: int = -1
    touches: dict[str, Mapping[LogKey, KnownTouch]] = field(default_factory=dict)
    emptied: dict[str, KnownEmptied] = field(default_factory=dict)
    _log: str = ""
    _ends: dict[int, Mapping[tuple[str, str], Sequence[Ended]]] = field(default_factory=dict)
    _sizes: dict[int, int] = field(default_factory=dict)
    _spans: dict[int, Spans] = field(default_factory=dict)

    def of(self, log: str, until: int) -> None:
        """Forget all unless this is the same *log*, and it has come to *until* since."""
        if self._log != log or until < self.until:
            self.touches, self.emptied, self._ends, self._sizes = {}, {}, {}, {}
            self._spans = {}
        self._log, self.until = log, until

    def ends(
        self,
        shards: Sequence[tuple[str, str]],
        batches: range,
        read: Callable[[range], Iterator[Ended]],
    ) -> list[Ended]:
        """Of each transaction with an event of *shards* the last END in *batches*, in each epoch.

        *read* gives all ENDs of some batches, in the order they landed; asked once for each batch.
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
        """Of each of *batches*; *read* is asked for those that are not known, all at once."""
        wanted = set(batches)
        lacking = sorted(wanted - self._spans.keys())
        told = read(lacking) if lacking else {}
        self._spans |= {batch: told.get(batch, {}) for batch in lacking}
        found = {batch: self._spans[batch] for batch in wanted}
        for batch in sorted(self._spans)[:-MOST_SPANS]:
            del self._spans[batch]
        return found

    def _take(self, batches: range, read: Callable[[range], Iterator[Ended]]) -> None:
        told: dict[int, dict[tuple[str, str], list[Ended]]] = {batch: {} for batch in batches}
        sizes = dict.fromkeys(batches, 1)
        for one in read(batches):
            key, end = one
            sizes[end.batch] += 1
            for shard in end.counts:
                told[end.batch].setdefault((key[0], shard), []).append(one)
        self._ends |= told
        self._sizes |= sizes

    def _forget(self) -> None:
        """The oldest go first."""
        held = sum(self._sizes.values()) if len(self._sizes) > 1 else 0
        for batch in sorted(self._sizes):
            if held <= MOST_ENDS:
                return
            held -= self._sizes.pop(batch)
            del self._ends[batch]
