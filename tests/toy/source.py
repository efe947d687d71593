"""The toy database as a source; its place in the log is the number of the log's last entry."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

from pipeline.aggregates import AggregatedColumn, RangeAggregate, TimeSpan, add_up
from pipeline.errors import UnreachableError
from pipeline.finding import NOTE, Finding
from pipeline.model import Head, Shard, ShardId
from pipeline.row_digest import (
    DigestColumn,
    ListedRows,
    RangeDigest,
    list_row_digests,
    sum_columns,
    sum_ids,
    sum_ranges,
)
from pipeline.schema.model import Column, Dialect
from pipeline.settings import SourceSettings
from pipeline.sources.positions import PositionRules
from pipeline.sources.source import ExaminationScope, Heartbeat, Range, Source, SourceDescription
from tests.toy.database import Database
from tests.toy.dialect import TOY, ToyColumn
from tests.toy.position import EntryNumbers, entry


@dataclass(eq=False)
class ToySource(ListedRows):
    """``options: {path: FILE}`` says where the database is."""

    dialect: ClassVar[Dialect] = TOY
    positions: ClassVar[PositionRules] = EntryNumbers()
    settings: SourceSettings
    path: str

    @property
    def name(self) -> str:
        return self.settings.name

    def head(self) -> Head:
        return Head("toy", entry(self._database().end()))

    def prepare_heartbeat(self) -> None:
        database, table = self._database(), self.settings.heartbeat
        if table not in database.definitions():
            database.define(table, {"id": "number", "source": "word", "n": "number"}, "id")

    def write_heartbeat(self, at_least: int, at: datetime) -> Heartbeat:
        database, table, told = self._database(), self.settings.heartbeat, datetime.now(UTC)
        number = max(database.rows(table).get(1, {"n": -1})["n"] + 1, at_least)
        database.put(table, {"id": 1, "source": self.name, "n": number})
        return Heartbeat(number, self.head(), told)

    def newest_heartbeat(self) -> int:
        return int(self._database().rows(self.settings.heartbeat).get(1, {"n": -1})["n"])

    def sends(self) -> None:
        """All."""

    def describe(self, shards: Collection[str]) -> SourceDescription:
        self._database()
        return SourceDescription(None)

    def shards(self, pattern: str) -> tuple[Shard, ...]:
        names = self._database().definitions()
        return tuple(Shard(self.name, name) for name in names if re.fullmatch(pattern, name))

    def columns(self, shard: Shard) -> Sequence[Column]:
        columns, _ = self._database().definitions().get(shard.name, ({}, ""))
        return tuple(ToyColumn(name, kind) for name, kind in columns.items())

    def key_columns(self, shard: Shard) -> tuple[str, ...]:
        _, key = self._database().definitions().get(shard.name, ({}, ""))
        return (key,) if key else ()

    def max_id(self, shard: Shard, column: str) -> int | None:
        return max(self._database().rows(shard.name), default=None)

    def min_id(self, shard: Shard, column: str) -> int | None:
        return min(self._database().rows(shard.name), default=None)

    def count_ids(self, shard: Shard, column: str, ranges: Sequence[Range]) -> tuple[int, ...]:
        ids = self._database().rows(shard.name)
        return tuple(sum(low <= one < high for one in ids) for low, high in ranges)

    def digests(
        self, shard: Shard, column: str, ranges: Sequence[Range], columns: Sequence[DigestColumn]
    ) -> tuple[RangeDigest, ...]:
        rows = self._database().rows(shard.name).values()
        return sum_ranges(list_row_digests(rows, column, columns), ranges)

    def id_digests(
        self, shard: Shard, column: str, ids: Sequence[int], columns: Sequence[DigestColumn]
    ) -> tuple[RangeDigest, ...]:
        rows = self._database().rows(shard.name).values()
        return sum_ids(list_row_digests(rows, column, columns), ids)

    def list_rows(self, shard: Shard, names: Collection[str]) -> Iterable[Mapping[str, Any]]:
        return self._database().rows(shard.name).values()

    def column_digests(
        self, shard: Shard, column: str, ids: Sequence[int], columns: Sequence[DigestColumn]
    ) -> tuple[tuple[RangeDigest, ...], ...]:
        rows = list(self._database().rows(shard.name).values())
        return sum_columns([list_row_digests(rows, column, [one]) for one in columns], ids)

    def row_digests(
        self, shard: Shard, column: str, span: Range, columns: Sequence[DigestColumn], limit: int
    ) -> tuple[tuple[int, int], ...]:
        rows = self._database().rows(shard.name).values()
        found = list_row_digests(rows, column, columns)
        return tuple([one for one in found if span[0] <= one[0] < span[1]][:limit])

    def tallies(
        self,
        shard: Shard,
        column: str,
        spans: Sequence[TimeSpan],
        fields: Sequence[AggregatedColumn],
    ) -> tuple[RangeAggregate, ...]:
        rows = list(self._database().rows(shard.name).values())
        return tuple(add_up(rows, column, span, fields) for span in spans)

    def ids(self, shard: Shard, column: str, span: Range, limit: int) -> tuple[int, ...]:
        low, high = span
        return tuple(i for i in self._database().rows(shard.name) if low <= i < high)[:limit]

    def examine(self, scope: ExaminationScope) -> Iterable[Finding]:
        for name in self._database().definitions():
            if scope.captured(ShardId.parse(name)) and (into := scope.fold(name)):
                yield Finding(NOTE, "toy", f"table {into.table}", "one file holds it", "none")

    def close(self) -> None:
        pass

    def _database(self) -> Database:
        if not Path(self.path).exists():
            raise UnreachableError(f"source:{self.name}: no database at {self.path}")
        return Database(Path(self.path))


SOURCE: type[Source] = ToySource
