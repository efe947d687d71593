"""How high has each mirror come in each partition?  A cache: what is not known is looked up.

Marks hold the highest LIVE order of every partition; a mirror applied through a batch has come as
high as that batch's mark, in the partitions of its own topics.  Of marks only what changed is kept:
a mirror asks for its few partitions, and there are as many marks as batches.  Pure.
"""

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field

from pipeline.model import Order, SourcePartition, TopicPartition

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
    """Kept for mirrors applied by this process, from marks landed by it.

    Marks come from one thread, rising; each table is asked and told of by one other at a time.
    """

    _tables: dict[str, tuple[int, Mapping[TopicPartition, Order]]] = field(default_factory=dict)
    _newest: Mapping[str, Order] = field(default_factory=dict)
    _landed: dict[int, None] = field(default_factory=dict)
    _topics: dict[str, dict[TopicPartition, _Steps]] = field(default_factory=dict)

    def landed(self, batch: int, high: Mapping[str, Order]) -> None:
        """Keep what the mark of *batch* says of its partitions, by the names it has for them."""
        before, oldest = self._newest, batch - _REMEMBERED
        for name, order in high.items():
            known = before.get(name)
            if known is order or known == order:
                continue
            at = SourcePartition.parse(name).at
            own = self._topics.get(at.topic, {})
            steps = own.get(at) or _Steps()
            if len(steps.batches) >= 2 * _REMEMBERED:
                steps = steps.since(oldest)
            steps.orders.append(order)  # first: whoever finds the batch finds its order
            steps.batches.append(batch)
            if own.get(at) is not steps:
                self._topics[at.topic] = {**own, at: steps}
        self._newest = high
        self._landed[batch] = None
        self._landed.pop(oldest, None)

    def applied(self, table: str, batch: int, topics: frozenset[str]) -> None:
        """*table* is applied through *batch*, which had changes of it in *topics*."""
        found: dict[TopicPartition, Order] = {}
        for topic in topics | self.topics(table) if batch in self._landed else ():
            for at, steps in self._topics.get(topic, {}).items():
                order = steps.at(batch)
                if order is not None:
                    found[at] = order
        self._tables[table] = (batch, found)

    def of(self, table: str, batch: int) -> Mapping[TopicPartition, Order] | None:
        """Partition -> highest order applied through *batch*, as far as it is known.

        None where that is nothing: what is known of another batch says too little of this one.
        """
        known = self._tables.get(table)
        return None if known is None or known[0] != batch else known[1]

    def topics(self, table: str) -> frozenset[str]:
        """Topics that *table* is known to have changes in."""
        _, high = self._tables.get(table, (-1, {}))
        return frozenset(at.topic for at in high)
