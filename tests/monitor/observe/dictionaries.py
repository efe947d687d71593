"""What a source would tell of its tables, told at once."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from pipeline.errors import UnreachableError
from pipeline.model import Shard
from pipeline.schema.model import Column
from pipeline.sources.mysql.types import MySqlColumn

BIG = {"id": "bigint"}


@dataclass
class FakeDictionary:
    """A source's word on its tables: by name, the key's columns and their types."""

    tables: dict[str, dict[str, str]] = field(default_factory=dict)
    silent: bool = False
    asked: int = 0
    keyed: int = 0
    source: str = "shop"

    def shards(self, pattern: str) -> tuple[Shard, ...]:
        self.asked += 1
        self._answer()
        return tuple(Shard(self.source, n) for n in self.tables if re.fullmatch(pattern, n))

    def key_columns(self, shard: Shard) -> tuple[str, ...]:
        """All its columns are key columns."""
        self.keyed += 1
        self._answer()
        return tuple(self.tables[shard.name])

    def columns(self, shard: Shard) -> Sequence[Column]:
        self._answer()
        types = self.tables[shard.name]
        return [MySqlColumn(name, kind) for name, kind in types.items()]

    def _answer(self) -> None:
        if self.silent:
            raise UnreachableError("source:shop: no route to host")
