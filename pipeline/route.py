"""Which shard belongs to which table?  Rules in order, the first match decides.  Pure."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar

from pipeline.settings import TableRule

T = TypeVar("T")
_KNOWN = 100_000  # shards whose rule, and table, is remembered
PARTS = ("kafka", "merging", "worker", "lake", "store", "storm")
"""What holds tables up, or is a part of their way, and is called so in incidents."""
KINDS_OF_PARTS = (*("source", "collector", "clock", "retention", "channel", "job", "rule", "disk"),)
"""The same where there are several: ``source:shop``."""
_A_PART = re.compile(rf"({'|'.join(PARTS)})(~*)$|({'|'.join(KINDS_OF_PARTS)})(~*):", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Router:
    """Fold shards into tables; a shard that no rule names is a table of its own name.

    No table is called as a part of its way is, or incidents of the two would be one: such a name
    gets a ``~`` behind the part's word, and one that has it already another, so that two names
    stay two.
    """

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
            return _apart(shard)
        if rule.ignore:
            return None
        match = re.fullmatch(rule.shards, shard)
        return _apart(match.expand(rule.table)) if match else None


def _apart(table: str) -> str:
    """*table*, or a name near it where that is a part's."""
    found = _A_PART.match(table)
    if found is None:
        return table
    word = found[1] or found[3]
    return f"{word}~{table.removeprefix(word)}"


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
