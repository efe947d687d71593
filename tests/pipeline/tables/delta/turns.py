"""A mirror in a folder that real turns are written to and committed, without Spark or Kafka."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, QueryBuilder

from pipeline.apply.decide import AppliedBefore, Floors
from pipeline.apply.merge import MergeResult, MergeTask
from pipeline.apply.row_metadata import META, ORDER, SLUICE
from pipeline.delta import commit, deletion_vectors
from pipeline.delta.log import ActiveFile, Snapshot
from pipeline.delta.store import Store, open_store
from pipeline.model import Op, Order, Origin, Shard, Table
from pipeline.schema.model import arrow_type
from pipeline.sources.mysql.types import MySqlColumn as Column
from pipeline.tables.delta.files import Footers
from pipeline.tables.delta.merge import run_merge

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
A, B, FAR = Shard("s", "db.a"), Shard("s", "db.b"), Shard("far", "db.a")
ID, NAME = Column("id", "BIGINT"), Column("name", "VARCHAR", 80)
CHANGES = pa.schema(
    [
        *((name, pa.string()) for name in ("key", "source", "shard", "op", "before", "after")),
        ("changed", pa.list_(pa.string())),
        ("at", pa.timestamp("us", "UTC")),
        ("batch", pa.int64()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("order", ORDER),
        ("origin", pa.int32()),
    ]
)


def change(
    op: Op, pos: int, key: object, name: str | None = None, /, **more: Any
) -> dict[str, Any]:
    """One change of a row ``(id, name)``; *more* replaces columns, ``of`` its shard."""
    shard: Shard = more.pop("of", A)
    image = None if key is None else json.dumps({"id": key, "name": name})
    told: dict[str, Any] = {
        "key": None if key is None else json.dumps([shard.source, shard.name, str(key)]),
        "source": shard.source,
        "shard": shard.name,
        "op": str(op),
        "before": image if op is Op.DELETE else None,
        "after": image if op in (Op.CREATE, Op.UPDATE, Op.READ) else None,
        "at": NOW,
        "batch": 0,
        "topic": f"{shard.source}.{shard.name}",
        "partition": 0,
        "order": {"epoch": 1, "log": 1, "pos": pos, "row": 0},
        "origin": int(Origin.SNAPSHOT if op in (Op.READ, Op.SETTLE) else Origin.LIVE),
    }
    return told | more


def unique(row: Mapping[str, Any]) -> dict[str, Any]:
    """The same change in a table whose keys are unique across shards."""
    key = row["key"]
    return {**row, "key": None if key is None else json.dumps(json.loads(key)[2:])}


def table(*rows: Mapping[str, Any]) -> pa.Table:
    """Changes as the change log has them."""
    return pa.Table.from_pylist(list(rows), CHANGES)


def mirror_schema(columns: Sequence[Column]) -> pa.Schema:
    """Columns of a mirror."""
    typed = [pa.field(column.name, arrow_type(column)) for column in columns]
    return pa.schema([*typed, pa.field(SLUICE, META)])


@dataclass(eq=False)
class TurnBench:
    """A mirror of a table with *shards*; each ``play`` is one committed turn.

    Every delete that was played is remembered, as the change log does.
    """

    folder: Path
    shards: tuple[Shard, ...] = (A,)
    columns: tuple[Column, ...] = (ID, NAME)
    key: tuple[str, ...] = ("id",)
    spanning: bool = False
    floors: Floors = field(default_factory=dict)
    footers: Footers = field(default_factory=Footers)
    played: list[pa.Table] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Create the mirror."""
        self.store: Store = open_store(str(self.folder))
        schema = mirror_schema(self.columns)
        self.snapshot: Snapshot = commit.create_table(self.store, schema, clock=NOW)
        spanning = self.spanning
        self.table = Table("t", self.shards, self.key, unique_across_shards=spanning)

    def task(self, changes: pa.Table, **more: Any) -> MergeTask[Any]:
        """A turn of *changes*; *more* replaces what the task says."""
        told = MergeTask(
            table=self.table,
            snapshot=self.snapshot,
            columns=self.columns,
            changes=changes,
            at=NOW,
            deletes=Remembered(tuple(self.played)),
            known=AppliedBefore(None),
            floors=self.floors,
        )
        return replace(told, **more)

    def play(self, *rows: Mapping[str, Any], **more: Any) -> MergeResult[Any]:
        """Write and commit one turn; its account must balance."""
        told = [unique(row) for row in rows] if self.spanning else list(rows)
        return self.run(table(*told), **more)

    def run(self, changes: pa.Table, **more: Any) -> MergeResult[Any]:
        """As ``play``."""
        written = run_merge(self.task(changes, **more), footers=self.footers)
        assert written.account.residual == 0, written.account
        self.commit(written)
        self.floors = written.floors
        self.played.append(changes)
        return written

    def commit(self, written: MergeResult[Any]) -> None:
        """Commit what a turn wrote on the version that it was made from."""
        assert written.version == self.snapshot.version
        self.snapshot = commit.commit_actions(
            self.store, self.snapshot, written.work, operation="MERGE", clock=NOW
        )

    @property
    def files(self) -> tuple[ActiveFile, ...]:
        return tuple(self.snapshot.files.values())

    def read(self) -> pa.Table:
        """All rows, by the files and vectors that the log names, and nothing of the product's."""
        parts = []
        for file in self.files:
            rows = pq.read_table(self.folder / file.path, partitioning=None)
            gone = deletion_vectors.read_vector(self.store, file.vector) if file.vector else ()
            parts.append(rows.take([at for at in range(len(rows)) if at not in gone]))
        return pa.concat_tables([mirror_schema(self.columns).empty_table(), *parts])

    def rows(self) -> dict[Any, Any]:
        """The first column -> the second; fails on a duplicate."""
        found = [tuple(row.values())[:2] for row in self.read().to_pylist()]
        assert len({key for key, _ in found}) == len(found), "duplicates"
        return dict(found)

    def elsewhere(self) -> list[dict[str, Any]]:
        """All rows as another reader of Delta sees them."""
        query = QueryBuilder().register("t", DeltaTable(str(self.folder)))
        found = pa.table(query.execute("select * from t").read_all())
        return list(found.to_pylist())


@dataclass(frozen=True)
class Remembered:
    """Deletes of the changes that were played, asked for by key."""

    played: tuple[pa.Table, ...]

    def __call__(self, keys: pa.StringArray) -> pa.Table:
        """As ``Deletes``."""
        rows = pa.concat_tables([CHANGES.empty_table(), *self.played]).to_pylist()
        wanted = set(keys.to_pylist())
        found = [row for row in rows if row["op"] == Op.DELETE and row["key"] in wanted]
        return pa.Table.from_pylist(found, CHANGES)


def order(pos: int) -> Order:
    """The order of ``change(..., pos)``."""
    return Order(1, 1, pos)
