"""Holds what a merge run works from: the checkpoint of a landed batch, and what follows from it.

Without log positions, and while rows may be redelivered, a mirror is merged only through the
last batch whose rows cannot be. Without such a batch, or before its base is complete, it is not
merged.

The highest applied order of each partition is a cache. What it does not know is looked up among
the landed deletes. It takes the highest LIVE order from the checkpoint of the applied batch,
for the partitions of the mirror's own topics. It keeps changes only, and those of at least the
last 1,000 checkpoints: there are as many checkpoints as batches, and a mirror needs few
partitions.
"""

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from pipeline.apply.catalog import Catalog
from pipeline.checkpoint import SETTING, Checkpoint, Incarnations
from pipeline.model import Order, SourcePartition, TopicPartition


@dataclass(frozen=True)  # without slots: a pass asks for its lives once for each mirror
class LandedState:
    """What a pass goes by: the checkpoint of a landed batch, and the schemas up to it."""

    checkpoint: Checkpoint
    catalog: Catalog

    def for_tiers(self, tier: Callable[[int], bool]) -> "LandedState":
        """The same, as if no table of another *tier* had ever landed."""
        tables, shards = self.checkpoint.tables.items(), self.checkpoint.shards
        own = {name: last for name, last in tables if tier(self.catalog.tier(name, shards))}
        return LandedState(replace(self.checkpoint, tables=own), self.catalog)

    @cached_property
    def incarnations(self) -> Incarnations:
        """The incarnations of the change log up to the checkpoint."""
        return Incarnations.of(self.checkpoint.incarnations)

    @cached_property
    def target_batches(self) -> Mapping[str, int]:
        """Table -> the batch that its mirror is to come to: the last one that holds a change of it.

        Where changes have no positions in the log, an older one only as long as what came since may
        be sent again; -1 where the table waits until that is over, or until a base is whole.  A
        source that is no longer configured sends nothing, so no mirror waits for it.
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
                sure[table] = -1  # below its base nothing counts, and above it nothing does yet
        return {
            name: min(last, sure.get(name, last)) for name, last in self.checkpoint.tables.items()
        }

    @cached_property
    def gaps(self) -> Mapping[str, Sequence[str]]:
        """``source/shard`` -> ids of the open gaps that concern it."""
        return self._gaps(SETTING, "")

    @cached_property
    def holding(self) -> Mapping[str, Sequence[str]]:
        """The same without those that a setting makes: of what still comes, all is merged."""
        return self._gaps("")

    def _gaps(self, *kinds: str) -> Mapping[str, Sequence[str]]:
        found: dict[str, list[str]] = {}
        for gap in self.checkpoint.gaps.values():
            for name in gap.shards if gap.doubt in kinds else ():
                found.setdefault(name, []).append(gap.id)
        return found


_REMEMBERED = 1_000  # marks


@dataclass(frozen=True, slots=True, eq=False)
class _Steps:
    """The highest order of one partition from each of some batches on, both rising."""

    batches: list[int] = field(default_factory=list)
    orders: list[Order] = field(default_factory=list)

    def at(self, batch: int) -> Order | None:
        """As of *batch*; None before the first."""
        place = bisect_right(self.batches, batch)
        return self.orders[place - 1] if place else None

    def since(self, batch: int) -> "_Steps":
        """What *batch* and later ones need: another object, for somebody may be reading this."""
        first = max(0, bisect_right(self.batches, batch) - 1)
        return _Steps(self.batches[first:], self.orders[first:])


@dataclass(eq=False)
class HighestOrders:
    """Highest orders, kept for mirrors applied by this process, from checkpoints landed by it.

    Checkpoints come from one thread, rising; each table is used by one other thread at a time.
    """

    _tables: dict[str, tuple[int, Mapping[TopicPartition, Order]]] = field(default_factory=dict)
    _newest: Mapping[SourcePartition, Order] = field(default_factory=dict)
    _landed: dict[int, None] = field(default_factory=dict)
    _topics: dict[str, dict[TopicPartition, _Steps]] = field(default_factory=dict)

    def note_landed(self, batch: int, high: Mapping[SourcePartition, Order]) -> None:
        """Keep the highest orders that the checkpoint of *batch* has."""
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
        """*table* is applied through *batch*, which had changes of it in *topics*."""
        found: dict[TopicPartition, Order] = {}
        for topic in topics | self.topics(table) if batch in self._landed else ():
            for at, steps in self._topics.get(topic, {}).items():
                order = steps.at(batch)
                if order is not None:
                    found[at] = order
        self._tables[table] = (batch, found)

    def find_orders(self, table: str, batch: int) -> Mapping[TopicPartition, Order] | None:
        """Partition -> highest order applied through *batch*, as far as it is known.

        None where that is nothing: what is known of another batch says too little of this one.
        """
        known = self._tables.get(table)
        return None if known is None or known[0] != batch else known[1]

    def topics(self, table: str) -> frozenset[str]:
        """Topics that *table* is known to have changes in."""
        _, high = self._tables.get(table, (-1, {}))
        return frozenset(at.topic for at in high)
