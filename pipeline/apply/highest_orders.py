"""How high has each mirror come in each partition?  A cache: what is not known is looked up.

Marks hold the highest LIVE order of every partition; a mirror applied through a batch has come as
high as that batch's mark, in the partitions of its own topics.  Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pipeline.model import Order

_REMEMBERED = 1_000  # marks


@dataclass(eq=False)
class HighestOrders:
    """Kept for mirrors applied by this process, from marks landed by it.

    Marks come from one thread; each table is asked and told of by one other at a time.
    """

    _tables: dict[str, tuple[int, Mapping[str, Order]]] = field(default_factory=dict)
    _marks: dict[int, Mapping[str, Order]] = field(default_factory=dict)

    def landed(self, batch: int, high: Mapping[str, Order]) -> None:
        """Keep the mark's ``source/topic:partition`` -> highest order."""
        self._marks[batch] = high
        self._marks.pop(batch - _REMEMBERED, None)

    def applied(self, table: str, batch: int, topics: frozenset[str]) -> None:
        """*table* is applied through *batch*, which had changes of it in *topics*."""
        mine = topics | self.topics(table)
        high = {n.partition("/")[2]: order for n, order in self._marks.get(batch, {}).items()}
        found = {n: o for n, o in high.items() if n.rpartition(":")[0] in mine}
        self._tables[table] = (batch, found)

    def of(self, table: str, batch: int) -> Mapping[str, Order] | None:
        """``topic:partition`` -> highest order applied through *batch*, as far as it is known.

        None where that is nothing: what is known of another batch says too little of this one.
        """
        known = self._tables.get(table)
        return None if known is None or known[0] != batch else known[1]

    def topics(self, table: str) -> frozenset[str]:
        """Topics that *table* is known to have changes in."""
        _, high = self._tables.get(table, (-1, {}))
        return frozenset(name.rpartition(":")[0] for name in high)
