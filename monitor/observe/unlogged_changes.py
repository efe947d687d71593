"""Is a table still in doubt after its cascade is gone?  Until a new base has read it as it is.

Dropping the rule of a foreign key does not bring back what it has changed without a log before.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from checks.blocks import SINCE_GONE
from checks.counting import name
from monitor.store.memory import CheckMemory
from pipeline.errors import ProofError
from pipeline.model import Missing, Order, Table

CHECK = "unproven"


@dataclass(eq=False)
class UnloggedChanges:
    """What *told* says of a table, and what it has said before; a restart forgets nothing."""

    told: Callable[[Table], str | Missing]
    memory: CheckMemory
    clock: Callable[[], datetime]
    _kept: dict[str, Mapping[str, Any]] = field(default_factory=dict)

    def unproven(self, table: Table, bases: Mapping[str, Order]) -> str | Missing:
        """What no log shows of *table*, now or since its base; empty if nothing.

        *bases*: ``source/shard`` -> order of its newest base, empty when that is not known.
        """
        told, shards = self.told(table), [name(shard) for shard in table.shards]
        own = {shard: list(bases[shard].parts) for shard in shards if shard in bases}
        try:
            kept = self._recall(table.name)
        except ProofError as error:
            if not own:
                return str(error)
            kept = {"why": f"{error}", "bases": own}  # as if something had been told until now
            self._keep(table.name, {}, kept)
        if told and isinstance(told, str):
            known = own or kept.get("bases", {})
            self._keep(table.name, kept, {"why": told, "bases": known})
            return told
        if not kept or isinstance(told, Missing):
            return told
        if own and all(own.get(shard, old) != old for shard, old in kept["bases"].items()):
            self._keep(table.name, kept, {})
            return told
        return f"{kept['why']}{SINCE_GONE}"

    def _recall(self, table: str) -> Mapping[str, Any]:
        if table not in self._kept:
            self._kept[table] = self.memory.recall(table, CHECK) or {}
        return self._kept[table]

    def _keep(self, table: str, before: Mapping[str, Any], kept: Mapping[str, Any]) -> None:
        if before != kept:
            self.memory.remember(table, CHECK, kept, self.clock())
            self._kept[table] = kept
