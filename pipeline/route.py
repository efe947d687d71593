"""Which shard belongs to which table?  Rules in order, the first match decides.  Pure."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar

from pipeline.settings import TableRule

T = TypeVar("T")
_KNOWN = 100_000  # shards whose rule, and table, is remembered


@dataclass(frozen=True, slots=True)
class Router:
    """Fold shards into tables; a shard that no rule names is a table of its own name."""

    rules: tuple[TableRule, ...] = ()
    _found: dict[str, TableRule | None] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    _tables: dict[str, str | None] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __reduce__(self) -> tuple[type[Self], tuple[Any, ...]]:
        """Send the rules alone to where tasks run."""
        return type(self), (self.rules,)

    def rule(self, shard: str) -> TableRule | None:
        """The rule that decides for ``db.table`` *shard*, if any; asked for again each round."""
        return _kept(self._found, shard, self._decisive)

    def table(self, shard: str) -> str | None:
        """Name of the table that *shard* folds into; None for a shard the rules ignore."""
        return _kept(self._tables, shard, self._folded)

    def unique(self, shard: str) -> bool:
        """Whether keys of the shard's table are unique across all of its shards."""
        rule = self.rule(shard)
        return rule is not None and rule.unique_across_shards

    def _decisive(self, shard: str) -> TableRule | None:
        return next((rule for rule in self.rules if re.fullmatch(rule.shards, shard)), None)

    def _folded(self, shard: str) -> str | None:
        rule = self.rule(shard)
        if rule is None:
            return shard
        if rule.ignore:
            return None
        match = re.fullmatch(rule.shards, shard)
        return match.expand(rule.table) if match else None


def _kept(known: dict[str, T], shard: str, find: Callable[[str], T]) -> T:
    """What was found of *shard* before, by whichever thread."""
    try:
        return known[shard]
    except KeyError:  # never asked for, or cleared by another thread meanwhile
        found = find(shard)
    if len(known) >= _KNOWN:
        known.clear()
    known[shard] = found
    return found
