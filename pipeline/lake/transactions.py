"""What did each transaction promise to a table, and what of it has landed?

BEGIN and END stand at no place of the source's log, and their ids come again when that is reset.
So an END is of the epochs of what landed in its batch, or since its BEGIN, and it is compared with
rows of those only.  Rows of a shard whose base is above the transaction are not missed: the base
has what became of them.  It is above where it is above a landed row of the transaction; or, if none
has landed, above all of END's batch, and began so much later that what is newer had landed.
"""

import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.lake.log_memory import BatchSpan, Ended, LogMemory, Spans, TransactionEnd, TxKey
from pipeline.lake.log_rows import LOOK_BACK, PLACE, PLACES, ROWS, TX, placed
from pipeline.lake.pinned import PinnedTable
from pipeline.lake.query import among, literal
from pipeline.lake.resumed import SentEvent, resumed
from pipeline.model import Op, Origin, Shard, Table
from pipeline.readings import ShardBase, Transaction

ENDS_AT_ONCE = 500
SENT = (*ROWS, Op.HEARTBEAT)
EPOCH, LOG, POS, _ = PLACE
DISTINCT = 'count(DISTINCT struct(t."order", op))'
EVER = (0, sys.maxsize)
Begins = Mapping[TxKey, Sequence[tuple[int, int]]]
"""Batch and offset of each BEGIN, rising."""
Landed = Mapping[tuple[int, str], int]
"""Distinct changes of one transaction, by epoch and shard."""


@dataclass(frozen=True, slots=True)
class SentTransaction:
    """An END with the first and last epoch it may be of, and how often it was begun in those."""

    key: TxKey
    end: TransactionEnd
    epochs: tuple[int, int]
    begun: int

    def promised(self, table: Table) -> dict[str, int]:
        """Events by shard, of the *table*'s."""
        names = {shard.name for shard in table.shards if shard.source == self.key[0]}
        return {shard: n for shard, n in self.end.counts.items() if shard in names}

    def compared(
        self, promised: Mapping[str, int], landed: Landed, above: Iterable[str] = ()
    ) -> Transaction:
        """Promise and landing without the shards of which a base is *above* it.

        Of several epochs that it may be of it is the one that fits, or else the newest.
        """
        wanted = sum(n for shard, n in promised.items() if shard not in above)
        found = Counter[int]()
        for (epoch, shard), n in landed.items():
            if self.epochs[0] <= epoch <= self.epochs[1] and shard not in above:
                found[epoch] += n
        fits = wanted in found.values()
        newest = found[max(found)] if found else 0
        return Transaction(self.key[1], wanted, wanted if fits else newest, self.end.batch)


@dataclass(frozen=True, slots=True)
class TransactionReader:
    """Reads what *lane* landed of transactions."""

    pinned: PinnedTable
    lane: str
    memory: LogMemory

    def of(
        self, table: Table, batches: range, bases: Mapping[str, ShardBase]
    ) -> tuple[Transaction, ...]:
        """Those of *table* whose END is in one of *batches*; none that is all below *bases*."""
        ends = self._ends(table, batches)
        found: list[Transaction] = []
        for start in range(0, len(ends), ENDS_AT_ONCE):
            some = ends[start : start + ENDS_AT_ONCE]
            found += self._stated(table, some, batches.start - LOOK_BACK, bases)
        return tuple(sorted(found, key=lambda tx: (tx.end_batch, tx.id)))

    def _ends(self, table: Table, batches: range) -> list[Ended]:
        """Each batch's ENDs are read for the first table that asks, for all."""
        shards = [(shard.source, shard.name) for shard in table.shards]
        return self.memory.ends(shards, batches, self._ended)

    def _ended(self, batches: range) -> Iterator[Ended]:
        spans, first, last = self._spans(batches), batches.start, batches.stop - 1
        found = self.pinned.select(
            f'SELECT source, {TX} AS id, "after" AS payload, batch, t."offset" AS at FROM t WHERE'  # noqa: S608
            f" lane = {literal(self.lane)} AND batch > {first - 1} AND batch <= {last}"
            f" AND op = {literal(Op.END)}{self._own()}"
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
            f" FROM t WHERE lane = {literal(self.lane)}"
            f" AND batch >= {batches[0]} AND batch <= {batches[-1]} AND {among('batch', batches)}"
            f" AND {among('op', SENT)} AND origin = {int(Origin.LIVE)}"
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
        return f" AND {among('source', sources)}" if sources else ""

    def _stated(
        self, table: Table, ends: Sequence[Ended], since: int, bases: Mapping[str, ShardBase]
    ) -> Iterator[Transaction]:
        ids = sorted({name for (_, name), _ in ends})
        rows = f"lane = {literal(self.lane)} AND {among(TX, ids)}"
        near = f"{rows} AND batch > {since}"
        begins = self._begins(near)
        if all(_before(begins, *one) for one in ends):
            rows = near
        else:  # one began so long ago that all must be looked at
            begins = self._begins(rows)
        landed = self._landed(
            f'{rows} AND {among("op", ROWS)} AND t."table" = {literal(table.name)}'
        )
        unequal = []
        for key, end in ends:
            sent = self._sent(key, end, begins)
            told = sent.compared(sent.promised(table), landed.get(key, {}))
            if sent.begun == 1 and told.landed == told.promised:
                yield told
            else:
                unequal.append(sent)
        yield from self._unequal(table, unequal, rows, landed, bases)

    def _unequal(
        self,
        table: Table,
        unequal: Sequence[SentTransaction],
        rows: str,
        landed: Mapping[TxKey, Landed],
        bases: Mapping[str, ShardBase],
    ) -> Iterator[Transaction]:
        """State those that bases may explain, or that were begun again."""
        places = self._places(rows) if unequal and bases else {}
        for sent in unequal:
            promised, own = sent.promised(table), landed.get(sent.key, {})
            above = _above(sent, promised, places.get(sent.key, ()), bases)
            if above >= promised.keys():
                continue
            if sent.begun > 1:
                yield self._begun_again(rows, sent)
            else:
                yield sent.compared(promised, own, above)

    def _sent(self, key: TxKey, end: TransactionEnd, begins: Begins) -> SentTransaction:
        before, own = _before(begins, key, end), end.span
        if own is None:
            return SentTransaction(key, end, EVER, len(before) or 1)
        known, newest = self._spans([batch for batch, _ in before]), own.high[0]
        spans = [known[batch].get(key[0], own) for batch, _ in before]
        begun = sum(span.high[0] >= own.low for span in spans)
        if begun or not spans:
            return SentTransaction(key, end, (own.low, newest), begun or 1)
        last = [batch for batch, _ in before].count(before[-1][0])
        return SentTransaction(key, end, (spans[-1].low, newest), last)

    def _begun_again(self, rows: str, sent: SentTransaction) -> Transaction:
        """State a transaction over all its tables; where it began again is told in one epoch."""
        (source, name), end, (low, high) = sent.key, sent.end, sent.epochs
        found = self.pinned.select(
            f"SELECT {PLACES}, op, t.tx['total_order'] AS n FROM t"  # noqa: S608
            f" WHERE {rows} AND source = {literal(source)} AND {TX} = {literal(name)}"
            f" AND {among('op', SENT)} AND t.tx['total_order'] IS NOT NULL"
            f" AND {EPOCH} >= {low} AND {EPOCH} <= {high}"
        )
        places = [(*placed(row), int(row["op"] != Op.DELETE)) for row in found]
        events = [SentEvent(place, int(row["n"])) for place, row in zip(places, found, strict=True)]
        epochs = {place[0] for place in places}
        distinct = {(*placed(row), row["op"]) for row in found if row["p0"] == max(epochs)}
        again = resumed(events, sent.begun, end.total) if len(epochs) < 2 else ()
        return Transaction(name, end.total, len(distinct), end.batch, sent.begun, again)

    def _begins(self, rows: str) -> Begins:
        found = self.pinned.select(
            f'SELECT source, {TX} AS id, batch, t."offset" AS at FROM t WHERE {rows}'  # noqa: S608
            f' AND op = {literal(Op.BEGIN)} ORDER BY batch, t."offset"'
        )
        told: dict[TxKey, list[tuple[int, int]]] = {}
        for row in found:
            told.setdefault((row["source"], row["id"]), []).append(
                (int(row["batch"]), int(row["at"] or 0))
            )
        return told

    def _landed(self, rows: str) -> Mapping[TxKey, Landed]:
        found = self.pinned.select(
            f"SELECT source, {TX} AS id, {EPOCH} AS epoch, shard, {DISTINCT} AS n FROM t"  # noqa: S608
            f" WHERE {rows} GROUP BY source, {TX}, {EPOCH}, shard"
        )
        told: dict[TxKey, dict[tuple[int, str], int]] = {}
        for row in found:
            own = told.setdefault((row["source"], row["id"]), {})
            own[int(row["epoch"] or 0), row["shard"]] = int(row["n"])
        return told

    def _places(self, rows: str) -> Mapping[TxKey, Sequence[tuple[int, ...]]]:
        """Highest place in each epoch, of any table."""
        found = self.pinned.select(
            f"SELECT source, {TX} AS id, {EPOCH} AS epoch, max({LOG}) AS log, max({POS}) AS pos"  # noqa: S608
            f' FROM t WHERE {rows} AND {among("op", SENT)} AND t."order" IS NOT NULL'
            f" GROUP BY source, {TX}, {EPOCH}"
        )
        told: dict[TxKey, list[tuple[int, ...]]] = {}
        for row in found:
            told.setdefault((row["source"], row["id"]), []).append(_high(row))
        return told


def _before(begins: Begins, key: TxKey, end: TransactionEnd) -> Sequence[tuple[int, int]]:
    """A run that was begun after END is none of END's: it has, or will have, one of its own."""
    return [one for one in begins.get(key, ()) if one <= (end.batch, end.offset)]


def _above(
    sent: SentTransaction,
    shards: Iterable[str],
    places: Iterable[tuple[int, ...]],
    bases: Mapping[str, ShardBase],
) -> set[str]:
    """Those of *shards* with a base that holds what became of the transaction's rows."""
    known = {shard: bases.get(str(Shard(sent.key[0], shard))) for shard in shards}
    low, high = sent.epochs
    own = max((place for place in places if low <= place[0] <= high), default=None)
    return {shard for shard, base in known.items() if base and _is_above(base, sent.end, own)}


def _is_above(base: ShardBase, end: TransactionEnd, own: tuple[int, ...] | None) -> bool:
    """*own* is where a landed row of the transaction stands."""
    stands = base.order.parts
    if own is not None:
        return stands >= own
    # partitions are not listed at one instant: what is newer than END may land a batch before it
    later = base.since > end.batch + 1
    return later and end.span is not None and stands >= end.span.high


def _high(row: Mapping[str, Any]) -> tuple[int, ...]:
    return (int(row["epoch"]), int(row["log"]), int(row["pos"]))


def _end(row: Mapping[str, Any], span: BatchSpan | None) -> TransactionEnd:
    told = json.loads(row["payload"] or "{}")
    each = told.get("data_collections") or []
    counts = {str(one["data_collection"]): int(one["event_count"]) for one in each}
    total, at = int(told.get("event_count") or 0), int(row["at"] or 0)
    return TransactionEnd(total, counts, int(row["batch"]), span, at)
