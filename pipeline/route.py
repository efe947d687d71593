"""Which shard belongs to which table?  Rules in order, the first match decides.  Pure."""

import re
from dataclasses import dataclass, field
from typing import Any, Self

from pipeline.settings import TableRule

_KNOWN = 100_000  # shards whose rule is remembered


@dataclass(frozen=True, slots=True)
class Router:
    """Fold shards into tables; a shard that no rule names is a table of its own name."""

    rules: tuple[TableRule, ...] = ()
    _found: dict[str, TableRule | None] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __reduce__(self) -> tuple[type[Self], tuple[Any, ...]]:
        """Send the rules alone to where tasks run."""
        return type(self), (self.rules,)

    def rule(self, shard: str) -> TableRule | None:
        """The rule that decides for ``db.table`` *shard*, if any; asked for again each round."""
        try:
            return self._found[shard]
        except KeyError:  # never asked for, or cleared by another thread meanwhile
            found = self._decisive(shard)
        if len(self._found) >= _KNOWN:
            self._found.clear()
        self._found[shard] = found
        return found

    def table(self, shard: str) -> str | None:
        """Name of the table that *shard* folds into; None for a shard the rules ignore."""
        rule = self.rule(shard)
        if rule is None:
            return shard
        if rule.ignore:
            return None
        match = re.fullmatch(rule.shards, shard)
        return match.expand(rule.table) if match else None

    def unique(self, shard: str) -> bool:
        """Whether keys of the shard's table are unique across all of its shards."""
        rule = self.rule(shard)
        return rule is not None and rule.unique_across_shards

    def _decisive(self, shard: str) -> TableRule | None:
        return next((rule for rule in self.rules if re.fullmatch(rule.shards, shard)), None)
