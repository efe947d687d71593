"""Lakes for tests, written without Spark: mirrors and change logs of a few rows."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import CommitProperties, Transaction, write_deltalake

from pipeline.changelog.change_log import ChangeLog
from pipeline.changelog.reader import LogReader
from pipeline.changelog.scan import find_parts
from pipeline.changelog.table import CHANGES, Stamp
from pipeline.delta.actions import remove_file
from pipeline.delta.commit import commit_actions
from pipeline.delta.log import Action
from pipeline.delta.reader import SnapshotReader, open_table
from pipeline.errors import LostRaceError
from pipeline.landing.staging import write_rows
from pipeline.model import Op, Order

APP = "sluice:main"
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
ORDER = pa.struct([(part, pa.int64()) for part in ("epoch", "log", "pos", "row")])
TIME = pa.timestamp("us", tz="UTC")
META = pa.struct(
    [
        *((name, pa.string()) for name in ("source", "shard")),
        ("order", ORDER),
        ("op", pa.string()),
        ("origin", pa.int32()),
        ("at", TIME),
        ("batch", pa.int64()),
    ]
)


def commit_properties(batch: int | None, note: str = "") -> CommitProperties:
    """A commit numbered *batch* for the lane's transaction id; None is somebody else's."""
    txns = None if batch is None else [Transaction(app_id=APP, version=batch)]
    metadata = {"userMetadata": note} if note else None
    return CommitProperties(custom_metadata=metadata, app_transactions=txns)


def meta(shard: str, batch: int, *, source: str = "shop", pos: int = 0) -> dict[str, Any]:
    order = {"epoch": 0, "log": 1, "pos": pos, "row": 0}
    place = {"source": source, "shard": shard, "order": order, "op": "c", "origin": 3}
    return {**place, "at": NOON, "batch": batch}


def write_mirror(
    path: Path, rows: Sequence[Mapping[str, Any]], batch: int | None, types: Mapping[str, Any]
) -> None:
    """Append one file; each row has the columns of *types* and, unless adopted, ``_sluice``."""
    fields = [*types.items(), *([("_sluice", META)] if "_sluice" in rows[0] else [])]
    columns = [pa.array([row[name] for row in rows], kind) for name, kind in fields]
    made = pa.Table.from_arrays(columns, schema=pa.schema(fields))
    properties = commit_properties(batch)
    write_deltalake(str(path), made, mode="append", commit_properties=properties)


def change(op: Op, pos: int = 0, **fields: Any) -> dict[str, Any]:
    """A row of the change log of ``shop.orders``; *fields* replace its defaults."""
    made: dict[str, Any] = {
        "lane": "main",
        "source": "shop",
        "shard": "s.orders_00",
        "table": "shop.orders",
        "op": str(op),
        "order": place(Order(0, 1, pos)) if op in (*"cudr", "truncate", "settle", "ddl") else None,
        "origin": 3,
        "at": NOON,
        "topic": "shop.s.orders_00",
        "partition": 0,
        "received": NOON,
        "dt": date(2026, 3, 1),
    }
    return made | fields


def place(order: Order) -> dict[str, int]:
    """An order as the change log's struct."""
    return {"epoch": order.epoch, "log": order.log, "pos": order.pos, "row": order.row}


def write_changes(path: Path, batch: int, rows: Sequence[Mapping[str, Any]]) -> None:
    """Append one batch in one commit."""
    numbered = [{"batch": batch} | dict(row) for row in rows]
    columns = [pa.array([row.get(f.name) for row in numbered], f.type) for f in CHANGES]
    write_deltalake(
        str(path),
        pa.Table.from_arrays(columns, schema=CHANGES),
        mode="append",
        partition_by=["dt"],
        commit_properties=commit_properties(batch),
    )


def key_change(op: Op, pos: int, key: str, offset: int, **fields: Any) -> dict[str, Any]:
    """A change of one *key*, from the record at *offset*."""
    return change(op, pos, key=key, offset=offset, **fields)


def begin_event(tx_id: str = "u:1") -> dict[str, Any]:
    """The BEGIN of a transaction."""
    return change(Op.BEGIN, **_transaction(tx_id))


def end_event(tx_id: str = "u:1", **counts: int) -> dict[str, Any]:
    """The END of a transaction that has so many events of each shard of database ``s``."""
    collections = [{"data_collection": f"s.{n}", "event_count": c} for n, c in counts.items()]
    payload = {"event_count": sum(counts.values()), "data_collections": collections}
    return change(Op.END, after=json.dumps(payload), **_transaction(tx_id))


def _transaction(tx_id: str) -> dict[str, Any]:
    tx = {"id": tx_id, "total_order": None}
    return {"table": None, "shard": None, "topic": "shop.tx", "tx": tx}


def log_reader(path: Path) -> LogReader:
    """The change log at *path*, at its newest version."""
    return LogReader(read_table(path), "main")


def read_table(path: Path | str, version: int | None = None) -> SnapshotReader:
    """The Delta table at *path*, which exists; its newest version unless one is named."""
    found = open_table(str(path), version)
    assert found is not None
    return found


def take_out(log: ChangeLog, column: str, value: object) -> None:
    """Commit the files of the change log again, without the rows that have *value* there.

    As another writer would lose them: no statistics and no checkpoint say so. Landing may go on.
    """
    names = [name for name in CHANGES.names if name != "dt"]
    while True:
        log.look()
        actions: list[Action] = []
        for part in find_parts(log.snapshot, -1, log.batch()):
            rows = pq.read_table(log.store.source(part.path), columns=names)
            own = pc.fill_null(pc.equal(rows[column], value), False)
            if not pc.any(own, min_count=0).as_py():
                continue
            lane, batch, received = (rows[one][0].as_py() for one in ("lane", "batch", "received"))
            kept = rows.filter(pc.invert(own))
            actions.append(remove_file(log.snapshot.files[part.path], at=received))
            if len(kept):
                dates = pa.repeat(pa.scalar(received.date(), pa.date32()), len(kept))
                dated = kept.append_column("dt", dates).select(CHANGES.names).cast(CHANGES)
                (made,) = dated.combine_chunks().to_batches()
                stamp = Stamp(lane, batch, received)
                actions.append(write_rows(log, made, stamp).added(received))
        assert actions, f"no row with {column} = {value}"
        with suppress(LostRaceError):
            now = datetime.now(UTC)
            commit_actions(log.store, log.snapshot, actions, operation="WRITE", clock=now)
            log.look()
            return
