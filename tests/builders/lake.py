"""A lake without Kafka and Spark: changes are put into a real change log, then really applied."""

import json
import shutil
from collections.abc import Collection, Mapping, Sequence
from copy import copy, deepcopy
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from pipeline.apply.catalog import Catalog
from pipeline.apply.landed_state import LandedState
from pipeline.apply.merge_job import run_group
from pipeline.apply.merge_run import MergeRequest, MergeRunner
from pipeline.apply.mirror import images_of
from pipeline.archive import ArchiveRule
from pipeline.changelog.change_log import ChangeLog
from pipeline.changelog.table import CHANGES, Stamp, build_app_id, checkpoint_row
from pipeline.checkpoint import Checkpoint, CheckpointDelta, Epoch
from pipeline.delta.commit import commit_actions
from pipeline.delta.log import Snapshot, load_snapshot
from pipeline.delta.store import open_store
from pipeline.image import DueCut, Image
from pipeline.landing.staging import write_rows
from pipeline.model import (
    Acknowledged,
    Fence,
    Head,
    Op,
    Order,
    Origin,
    SourcePartition,
    TopicPartition,
)
from pipeline.reports import Hold, MergeReport
from pipeline.schema.history import SchemaChange
from pipeline.schema.model import TableSchema
from pipeline.settings import InvariantRule, PipelineSettings, PublishRule, Router, TableRule
from pipeline.sources.mysql.position import binlog_position
from pipeline.sources.mysql.types import MySqlColumn as Column
from pipeline.tables.delta.table_format import DeltaMirrors
from tests.builders.change_log import read_table
from tests.builders.values import by_shard
from tests.pipeline.reading import readings

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
ID, NAME = Column("id", "BIGINT"), Column("name", "VARCHAR", 80)
FIRST = Order(1, 1, 1)


def row(op: Op, pos: int, key: int | None, name: str | None = None, **more: Any) -> dict[str, Any]:
    """One change of table ``db.t``; *more* replaces columns of the change log."""
    image = None if key is None else json.dumps({"id": key, "name": name})
    shard = more.get("shard", "db.t")
    made: dict[str, Any] = {
        "source": "s",
        "shard": shard,
        "table": "db.t",
        "op": str(op),
        "key": None if key is None else f'["s","{shard}","{key}"]',
        "before": image if op is Op.DELETE else None,
        "after": image if op in (Op.CREATE, Op.UPDATE, Op.READ) else None,
        "order": Order(1, 1, pos),
        "origin": int(Origin.SNAPSHOT if op in (Op.READ, Op.SETTLE) else Origin.LIVE),
        "topic": "s.db.t",
        "partition": 0,
        "offset": pos,
    }
    return made | more


@dataclass(eq=False)
class LocalLake:
    """A table ``db.t (id, name)``, others like it, their change log, and passes over their mirrors.

    ``shards`` are those of ``db.t``; each of ``others`` is a table of one shard, of its name.
    The clock goes on by ten minutes with each pass, so that nothing waits to be tried again; a
    batch is received, and lies in the change log, on the day of ``received``.
    """

    home: Path
    rules: tuple[TableRule, ...] = ()
    columns: tuple[Column, ...] = (ID, NAME)
    shards: tuple[str, ...] = ("db.t",)
    others: tuple[str, ...] = ()
    now: datetime = NOW
    received: datetime = NOW
    key: tuple[str, ...] = ("id",)
    invariants: tuple[InvariantRule, ...] = ()
    table_format: Any = field(default_factory=partial(DeltaMirrors, None))
    publish: tuple[PublishRule, ...] = ()
    archive: tuple[ArchiveRule, ...] = ()
    cuts: tuple[DueCut, ...] = ()
    runner: MergeRunner = field(init=False)

    def __post_init__(self) -> None:
        """Create the change log."""
        self.settings = PipelineSettings(
            lake=str(self.home),
            kafka="",
            sources=(),
            rules=self.rules,
            publish=self.publish,
            invariants=self.invariants,
            archive=self.archive,
        )
        tables = dict.fromkeys(self.shards, "db.t") | {name: name for name in self.others}
        names = {f"s/{n}": table for n, table in tables.items()}
        shards = by_shard(names)
        bases = dict.fromkeys(shards, FIRST) if self.publish else {}  # an image needs one
        self.checkpoint = Checkpoint("main", -1, shards=shards, bases=bases)
        self.catalog = Catalog(Router(self.rules), readings("s"))
        for shard in tables:
            self.alter(*self.columns, at=FIRST, shard=shard)
        self.log = ChangeLog(open_store(self.settings.changes), "main")
        self.log.opened(NOW)
        self.reopen()

    def reopen(self) -> None:
        """Begin with an empty memory, as after a restart."""
        changes = ChangeLog(open_store(self.settings.changes), "main")
        self.runner = MergeRunner(
            self.settings,
            changes,
            lambda groups: [run_group(g) for g in groups],
            lambda: self.now,
            self.table_format,
        )

    def copied(self, home: Path) -> "LocalLake":
        """The same on a folder of its own, after a restart; to make it anew takes far longer."""
        shutil.copytree(self.home, home, dirs_exist_ok=True)
        made = copy(self)
        made.home, made.settings = home, replace(self.settings, lake=str(home))
        made.catalog = deepcopy(self.catalog)
        made.log = ChangeLog(open_store(made.settings.changes), "main")
        made.log.look()
        made.reopen()
        return made

    def alter(self, *columns: Column, at: Order, shard: str = "db.t") -> None:
        """Let the source's table have *columns* from *at* on."""
        kind = "create" if self.catalog.newest("s", shard) is None else "alter"
        text = f"{kind.upper()} TABLE {shard}"
        schema = TableSchema(shard, at, columns, self.key, text)
        self.catalog.learn([("s", SchemaChange(kind, shard, at, schema, text))])

    def land(self, *rows: Mapping[str, Any]) -> None:
        """Append one batch."""
        batch = self.checkpoint.batch + 1
        high = {**self.checkpoint.high}
        for r in rows:
            at = SourcePartition("s", TopicPartition(r["topic"], r["partition"]))
            if r["origin"] == Origin.LIVE and r["order"]:
                high[at] = max(r["order"], high.get(at, r["order"]))
        tables = {**self.checkpoint.tables, **{r["table"]: batch for r in rows if r["table"]}}
        before, self.checkpoint = (
            self.checkpoint,
            replace(self.checkpoint, batch=batch, tables=tables, high=high),
        )
        stamp = Stamp("main", batch, self.received)
        parts = [stamped(rows, stamp)] if rows else []
        text = self.checkpoint.changes_since(before)
        self.checkpoint = replace(self.checkpoint, full=CheckpointDelta.loads(text).changed.full)
        parts.append(checkpoint_row(text, stamp))
        files = [write_rows(self.log, part, stamp) for part in parts]
        self.log.look()
        actions = [file.added(NOW) for file in files]
        txn = (build_app_id("main"), batch)
        commit_actions(
            self.log.store, self.log.snapshot, actions, operation="WRITE", clock=NOW, txn=txn
        )
        self.log.look()
        self.runner.highs.note_landed(batch, high)

    def run(
        self, *waived: str, paused: Collection[str] = (), wanted: Collection[str] = ()
    ) -> tuple[MergeReport, ...]:
        """One pass."""
        self.now += timedelta(minutes=10)
        request = MergeRequest(frozenset(waived), self.cuts, paused, wanted)
        return self.runner.run(self.state(), request)

    def state(self) -> LandedState:
        """What a pass goes by."""
        return LandedState(self.checkpoint, self.catalog)

    def apply(self, waived: Sequence[str] = ()) -> MergeReport:
        """The turn of ``db.t``; a pass in which an old one is told comes before it."""
        for _ in range(3):
            turns = [turn for turn in self.run(*waived) if turn.table == "db.t"]
            if turns and (turns[-1].hold is not None or turns[-1].batch >= self.checkpoint.batch):
                break
        return turns[-1]

    def prove(self, pos: int, number: int = 7) -> None:
        """Let the next batch be one whose mark proves that all below *pos* of the log has landed.

        That is where the heartbeat of that *number* stands.
        """
        place = binlog_position(1, pos)
        told, epochs = {"s": Acknowledged(place)}, {"s": Epoch(1, "A", place)}
        self.checkpoint = replace(
            self.checkpoint, acknowledged=told, heartbeats={"s": number}, epochs=epochs
        )

    def end_day(self, cut: datetime, pos: int, day: str = "", number: int = 7) -> None:
        """Let *cut* stand at *pos*, and all below it be proven to have landed."""
        fence = Fence("s", number, cut, Head("A", binlog_position(1, pos)))
        self.cuts = (DueCut(cut, {"s": fence}, day),)
        self.prove(pos, number)

    def images(self) -> tuple[Image, ...]:
        """Those that the mirror of ``db.t`` remembers."""
        seen = self.runner.mirrors.look("db.t")
        assert seen is not None
        return images_of(seen)

    def image(self) -> Image:
        """The one image that the mirror of ``db.t`` remembers."""
        (found,) = self.images()
        return found

    def snapshot(self, table: str = "db.t") -> Snapshot:
        """The newest version of a mirror, which exists."""
        found = load_snapshot(open_store(self.settings.mirror(table)))
        assert found is not None
        return found

    def rows(self, table: str = "db.t", version: int | None = None) -> dict[int, Any]:
        """Mirror rows, id -> name; fails on a duplicate."""
        found = self.mirror(table, version)
        assert len({r["id"] for r in found}) == len(found), "duplicates"
        return {r["id"]: r.get("name") for r in found}

    def mirror(self, table: str = "db.t", version: int | None = None) -> list[dict[str, Any]]:
        """The mirror's rows, or those of a version, read by code that is not ours."""
        return read_table(self.settings.mirror(table), version).select(
            "SELECT * FROM t ORDER BY id"
        )

    def play(self, *batches: Sequence[Mapping[str, Any]]) -> dict[int, Any]:
        """Land and apply each batch; every account must balance.  Returns the mirror's rows."""
        for batch in batches:
            self.land(*batch)
            turn = self.apply()
            assert turn.hold is None, turn.hold
            assert turn.account.residual == 0
        return self.rows()


def stamped(rows: Sequence[Mapping[str, Any]], stamp: Stamp) -> pa.RecordBatch:
    """Rows of ``CHANGES``."""
    at = stamp.received
    shared = {"lane": stamp.lane, "batch": stamp.batch, "received": at, "dt": at.date(), "at": NOW}
    made = [
        {**shared, **r, "order": asdict(r["order"]) if r["order"] is not None else None}
        for r in rows
    ]
    arrays = [pa.array([r.get(f.name) for r in made], f.type) for f in CHANGES]
    return pa.RecordBatch.from_arrays(arrays, schema=CHANGES)


def hold_of(merge: MergeReport) -> Hold:
    """Why *merge* holds its table, which it does."""
    assert merge.hold is not None
    return merge.hold
