"""A table written as the engine writes one: files, vectors and commits of our own."""

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from pipeline.delta import actions, deletion_vectors, protocol, statistics
from pipeline.delta.commit import commit_actions, create_table
from pipeline.delta.log import Action, ActiveFile, Snapshot, load_snapshot
from pipeline.delta.store import Store, open_store
from pipeline.delta.types import delta_field

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
PLAIN = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string())])


@dataclass(eq=False)
class Writer:
    """One table and the version that was last read or written."""

    store: Store
    snapshot: Snapshot

    @classmethod
    def make(cls, folder: Path, schema: pa.Schema = PLAIN, **more: Any) -> "Writer":
        store = open_store(str(folder))
        return cls(store, create_table(store, schema, clock=NOW, **more))

    @classmethod
    def open(cls, folder: Path | str) -> "Writer":
        store = open_store(str(folder))
        return cls(store, found(store))

    def file(
        self, rows: pa.Table, partition: Mapping[str, str | None] | None = None, folder: str = ""
    ) -> Action:
        """Write a file; its ``add``."""
        name = f"{folder}part-{uuid.uuid4()}.parquet"
        with self.store.sink(name) as sink:
            pq.write_table(
                protocol.fit_rows(rows, self.snapshot.metadata), sink, store_schema=False
            )
        stats = statistics.collect_statistics(rows, self.snapshot.metadata)
        size = self.store.size(name)
        return actions.add_file(name, size=size, at=NOW, stats=stats, partition=partition)

    def commit(self, what: Sequence[Action], **more: Any) -> Snapshot:
        told = {"operation": "MERGE", "clock": NOW, **more}
        self.snapshot = commit_actions(self.store, self.snapshot, what, **told)
        return self.snapshot

    def append(self, rows: pa.Table, **more: Any) -> str:
        """Commit a file; its path in the log."""
        add = self.file(rows, **more)
        self.commit([add])
        return str(add["add"]["path"])

    def without(self, file: ActiveFile, gone: Sequence[int], records: int) -> list[Action]:
        """Actions that take rows out of a file, by their positions; its vector is written."""
        old = (
            BitMap64()
            if file.vector is None
            else deletion_vectors.read_vector(self.store, file.vector)
        )
        vector_file = deletion_vectors.VectorFile()
        descriptor = vector_file.add(old | BitMap64(gone))
        vector_file.save(self.store)
        marked = actions.add_vector(file, descriptor, records=records)
        return [actions.remove_file(file, at=NOW), marked]

    def delete(self, path: str, gone: Sequence[int]) -> None:
        file = self.snapshot.files[path]
        assert file.records is not None
        self.commit(self.without(file, gone, file.records))


def found(store: Store) -> Snapshot:
    snapshot = load_snapshot(store)
    assert snapshot is not None
    return snapshot


def numbers(low: int, high: int) -> pa.Table:
    """Rows of ``PLAIN``."""
    ids = range(low, high)
    return pa.table({"id": pa.array(ids, pa.int64()), "v": [f"v{i}" for i in ids]})


def log_files(folder: Path) -> set[str]:
    return {path.name for path in (folder / "_delta_log").iterdir()}


def queried(folder: Path, statement: str) -> list[dict[str, Any]]:
    """What deltalake answers; the table is ``t``."""
    from deltalake import DeltaTable, QueryBuilder  # noqa: PLC0415 - racers do without

    told = QueryBuilder().register("t", DeltaTable(str(folder))).execute(statement).read_all()
    rows: list[dict[str, Any]] = pa.table(told).to_pylist()
    return rows


def to_delta(schema: pa.Schema) -> str:
    """Delta's schema JSON."""
    fields = [delta_field(field) for field in schema]
    return json.dumps({"type": "struct", "fields": fields}, separators=(",", ":"))
