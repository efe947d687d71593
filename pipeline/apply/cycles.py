"""Whose turn may wait for others?  Tables of low tiers are merged once in a cycle, for less work.

Nobody who asks waits for a cycle: a table that somebody wants to be complete has its turn at once,
and so has one that is to become an image.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from pipeline.clocks import over
from pipeline.model import Table
from pipeline.reports import Applied
from pipeline.settings import PipelineSettings


@dataclass(eq=False)
class Cycles:
    """Remembers when each table had its last turn; after a restart all have one at once."""

    settings: PipelineSettings
    clock: Callable[[], datetime]
    _turned: dict[str, datetime] = field(default_factory=dict)

    def ripe(self, tables: Iterable[Table], wanted: Collection[str]) -> list[Table]:
        """Those of *tables* whose time has come, or that are *wanted*."""
        return [one for one in tables if one.name in wanted or self._due(one)]

    def turned(self, turns: Iterable[Applied], last: Mapping[str, int]) -> None:
        """*turns* were made; *last*: table -> the last batch that holds a change of it.

        One that is held, or has more to take up than one turn may read, comes again at once.
        """
        for turn in turns:
            if turn.hold is None and turn.batch >= last.get(turn.table, -1):
                self._turned[turn.table] = turn.started

    def _due(self, table: Table) -> bool:
        cycle, turned = self.settings.cycle(table.tier), self._turned.get(table.name)
        return not cycle or turned is None or over(turned, cycle, self.clock())
