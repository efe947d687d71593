"""A lane without Kafka: changes are put into a real change log by hand, then really applied."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from pyspark.sql import SparkSession

from pipeline.apply.catalog import Catalog
from pipeline.apply.standing import Standing
from pipeline.changelog import table as changelog
from pipeline.changelog.table import SCHEMA
from pipeline.commit import Transaction
from pipeline.landing.loop import Landing
from pipeline.lane import Lane
from pipeline.mark import Mark
from pipeline.model import Op, Order, Origin
from pipeline.report import Applied
from pipeline.route import Router
from pipeline.schema.history import SchemaChange, TableSchema
from pipeline.schema.types import Column
from pipeline.settings import PipelineSettings, TableRule
from pipeline.tables.delta import DeltaLake

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
class HandLanding:
    """Stands where the landing loop does; the lane asks it for the mark only."""

    mark: Mark


@dataclass(eq=False)
class BenchLake:
    """A table ``db.t (id, name)``, others like it, their change log, and a lane that applies them.

    ``shards`` are those of ``db.t``; each of ``others`` is a table of one shard, of its name.
    """

    session: SparkSession
    home: Path
    rules: tuple[TableRule, ...] = ()
    columns: tuple[Column, ...] = (ID, NAME)
    shards: tuple[str, ...] = ("db.t",)
    others: tuple[str, ...] = ()
    workers: int = 1
    lane: Lane = field(init=False)

    def __post_init__(self) -> None:
        """Create the change log and open the lane."""
        self.settings = PipelineSettings(
            lake=str(self.home), kafka="", sources=(), rules=self.rules, merge_workers=self.workers
        )
        changelog.create(self.session, self.settings.changes)
        tables = dict.fromkeys(self.shards, "db.t") | {name: name for name in self.others}
        self.mark = Mark("main", -1, shards={f"s/{n}": table for n, table in tables.items()})
        self.catalog = Catalog(Router(self.rules))
        for shard in tables:
            self.alter(*self.columns, at=FIRST, shard=shard)
        self.reopen()

    def reopen(self) -> None:
        """Begin with an empty memory, as after a restart."""
        lake = DeltaLake(self.settings)
        landing = cast("Landing", HandLanding(self.mark))
        standing = Standing(lake.history)
        clock = lambda: NOW  # noqa: E731  - a clock that stands
        self.lane = Lane(self.session, self.settings, landing, self.catalog, standing, clock)

    def alter(self, *columns: Column, at: Order, shard: str = "db.t") -> None:
        """Let the source's table have *columns* from *at* on."""
        schema = TableSchema(shard, at, columns, ("id",))
        self.catalog.learn([("s", SchemaChange("create", shard, at, schema, ""))])

    def land(self, *rows: Mapping[str, Any]) -> None:
        """Append one batch."""
        batch = self.mark.batch + 1
        live = [r["order"] for r in rows if r["origin"] == Origin.LIVE and r["order"]]
        high = {**self.mark.high}
        for r in rows:
            name = f"s/{r['topic']}:{r['partition']}"
            if r["origin"] == Origin.LIVE and r["order"]:
                high[name] = max(r["order"], high.get(name, r["order"]))
        assert live or rows
        tables = {**self.mark.tables, **{r["table"]: batch for r in rows}}
        self.mark = replace(self.mark, batch=batch, tables=tables, high=high)
        txn = Transaction(self.session, self.settings.changes, "sluice:main", batch)
        frame = self.session.createDataFrame([_values(r, batch) for r in rows], _ddl())
        txn.stage(frame)
        txn.stage(changelog.made_rows(self.session, self.mark, [], NOW))
        txn.commit("{}")
        self.lane.landing.mark = self.mark
        self.lane._highs.landed(batch, high)

    def apply(self, waived: Sequence[str] = ()) -> Applied:
        """The table's turn; a pass in which an old one is told comes before it."""
        *_, turn = self.lane.apply(frozenset(waived))
        if turn.hold is None and turn.batch < self.mark.batch:
            *_, turn = self.lane.apply(frozenset(waived))
        return turn

    def rows(self) -> dict[int, str | None]:
        """Mirror rows, id -> name; fails on a duplicate."""
        found = self.mirror().select("id", "name").collect()
        assert len({r["id"] for r in found}) == len(found), "duplicates"
        return {r["id"]: r["name"] for r in found}

    def mirror(self) -> Any:
        """The mirror as Spark reads it."""
        return self.session.read.format("delta").load(self.settings.mirror("db.t"))

    def play(self, *batches: Sequence[Mapping[str, Any]]) -> dict[int, str | None]:
        """Land and apply each batch; every account must balance.  Returns the mirror's rows."""
        for batch in batches:
            self.land(*batch)
            turn = self.apply()
            assert turn.hold is None, turn.hold
            assert turn.account.residual == 0
        return self.rows()


def _ddl() -> str:
    return ", ".join(f"`{name}` {kind}" for name, kind in SCHEMA.items())


def _values(row: Mapping[str, Any], batch: int) -> tuple[Any, ...]:
    order = row["order"]
    made = {
        **row,
        "lane": "main",
        "batch": batch,
        "received": NOW,
        "dt": NOW.date(),
        "at": NOW,
        "order": (order.epoch, order.log, order.pos, order.row) if order else None,
    }
    return tuple(made.get(name) for name in SCHEMA)
