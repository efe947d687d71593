"""Holds what a merge run works from: the checkpoint of a landed batch, and state derived from it.

Without log positions, while rows may be redelivered, a mirror is merged only through the last batch
whose rows can no longer be redelivered. Without such a batch, or before its base is complete, it is
not merged.

The highest applied order of each partition is a cache. Orders that it does not have are looked up
among the landed deletes. It takes the highest LIVE order from the checkpoint of the applied batch,
for the partitions of the mirror's own topics. It keeps changes only, and those of at least the last
1,000 checkpoints: there are as many checkpoints as batches, and a mirror needs few partitions.
"""

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from pipeline.apply.catalog import Catalog
from pipeline.checkpoint import SETTING, Checkpoint, Incarnations
from pipeline.model import Order, SourcePartition, TopicPartition


@dataclass(frozen=True)  # without slots: its properties are cached
class LandedState:
    """The checkpoint of a landed batch, and the schemas up to it; the input of a merge run."""

    checkpoint: Checkpoint
    catalog: Catalog

    def for_tiers(self, tier: Callable[[int], bool]) -> "LandedState":
        """Return the same state without the tables whose *tier* is excluded."""
        tables, shards = self.checkpoint.tables.items(), self.checkpoint.shards
        own = {name: last for name, last in tables if tier(self.catalog.tier(name, shards))}
        return LandedState(replace(self.checkpoint, tables=own), self.catalog)

    @cached_property
    def incarnations(self) -> Incarnations:
        """The incarnations of the change log up to the checkpoint."""
        return Incarnations.of(self.checkpoint.incarnations)

    @cached_property
    def target_batches(self) -> Mapping[str, int]:
        """Table -> the batch that its mirror is to reach: the last one that holds a change of it.

        Without log positions, it is the last batch whose rows can no longer be redelivered. -1
        while there is no such batch, or the base is incomplete. A source that is no longer
        configured sends nothing, so no mirror waits for it.
        """
        if not self.checkpoint.heartbeat_histories:
            return self.checkpoint.tables
        sure: dict[str, int] = {}
        for shard, table in self.checkpoint.shards.items():
            trail = self.checkpoint.heartbeat_histories.get(shard.source)
            if trail is None or not trail.waits or shard.source not in self.catalog.readings:
                continue
            if table is not None:
                known = sure.get(table, self.checkpoint.batch)
                sure[table] = min(known, -1 if trail.sure is None else trail.sure)
        for shard, table in self.checkpoint.shards.items():
            if table in sure and self.checkpoint.complete.get(shard, -1) > sure[table]:
                sure[table] = -1  # no change counts below the base, and none is safe above
        return {
            name: min(last, sure.get(name, last)) for name, last in self.checkpoint.tables.items()
        }

    @cached_property
    def gaps(self) -> Mapping[str, Sequence[str]]:
        """``source/shard`` -> ids of its open gaps, without those of settings that only delay."""
        return self._gaps(SETTING, "")

    @cached_property
    def holding(self) -> Mapping[str, Sequence[str]]:
        """Like `gaps`, without those of any setting, which do not hold merges."""
        return self._gaps("")

    def _gaps(self, *kinds: str) -> Mapping[str, Sequence[str]]:
        found: dict[str, list[str]] = {}
        for gap in self.checkpoint.gaps.values():
            for name in gap.shards if gap.doubt in kinds else ():
                found.setdefault(name, []).append(gap.id)
        return found


_REMEMBERED = 1_000  # checkpoints


@dataclass(frozen=True, slots=True, eq=False)
class _Steps:
    """The highest orders of one partition and the batches from which they apply, both ascending."""

    batches: list[int] = field(default_factory=list)
    orders: list[Order] = field(default_factory=list)

    def at(self, batch: int) -> Order | None:
        """The highest order as of *batch*; None before the first."""
        place = bisect_right(self.batches, batch)
        return self.orders[place - 1] if place else None

    def since(self, batch: int) -> "_Steps":
        """A copy with the steps that *batch* and later ones need; another thread may read this."""
        first = max(0, bisect_right(self.batches, batch) - 1)
        return _Steps(self.batches[first:], self.orders[first:])


@dataclass(eq=False)
class HighestOrders:
    """Caches the highest applied orders of mirrors that this process merges.

    Checkpoints come from one thread, ascending. Each table is used by one other thread at a time.
    """

    _tables: dict[str, tuple[int, Mapping[TopicPartition, Order]]] = field(default_factory=dict)
    _newest: Mapping[SourcePartition, Order] = field(default_factory=dict)
    _landed: dict[int, None] = field(default_factory=dict)
    _topics: dict[str, dict[TopicPartition, _Steps]] = field(default_factory=dict)

    def note_landed(self, batch: int, high: Mapping[SourcePartition, Order]) -> None:
        """Store the highest orders of the checkpoint of *batch*."""
        before, oldest = self._newest, batch - _REMEMBERED
        for one, order in high.items():
            known = before.get(one)
            if known is order or known == order:
                continue
            at = one.at
            own = self._topics.get(at.topic, {})
            steps = own.get(at) or _Steps()
            if len(steps.batches) >= 2 * _REMEMBERED:
                steps = steps.since(oldest)
            steps.orders.append(order)  # first: a reader that finds the batch finds its order
            steps.batches.append(batch)
            if own.get(at) is not steps:
                self._topics[at.topic] = {**own, at: steps}
        self._newest = high
        self._landed[batch] = None
        self._landed.pop(oldest, None)

    def note_applied(self, table: str, batch: int, topics: frozenset[str]) -> None:
        """Record that *table* is applied through *batch*, which had changes of it in *topics*."""
        found: dict[TopicPartition, Order] = {}
        for topic in topics | self.topics(table) if batch in self._landed else ():
            for at, steps in self._topics.get(topic, {}).items():
                order = steps.at(batch)
                if order is not None:
                    found[at] = order
        self._tables[table] = (batch, found)

    def find_orders(self, table: str, batch: int) -> Mapping[TopicPartition, Order] | None:
        """Partition -> highest order applied through *batch*, as far as known.

        None if the orders of *batch* are unknown; those of another batch cannot be used.
        """
        known = self._tables.get(table)
        return None if known is None or known[0] != batch else known[1]

    def topics(self, table: str) -> frozenset[str]:
        """Topics with known changes of *table*."""
        _, high = self._tables.get(table, (-1, {}))
        return frozenset(at.topic for at in high)
