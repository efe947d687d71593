"""A lake in which tables are renamed: statements are told, and rows land under either name."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from pipeline.checkpoint import Epoch, Existence, Gap
from pipeline.landing.batch_stats import BatchStats, SchemaNews
from pipeline.landing.next_checkpoint import next_checkpoint
from pipeline.landing.plan import Plan
from pipeline.model import Acknowledged, Op, Order, Shard
from pipeline.reports import MergeReport
from pipeline.schema.history import SchemaChange
from pipeline.settings import TableRule
from pipeline.sources.mysql.position import binlog_position
from tests.builders import batch_context
from tests.builders.lake import LocalLake, row
from tests.pipeline.schema_messages import described, message

C, U, D, R, S = Op.CREATE, Op.UPDATE, Op.DELETE, Op.READ, Op.SETTLE
NEW = "db._t_new"
FIRST_COLUMNS = "id BIGINT, name VARCHAR:80"


class Renames:
    """A lake in which statements are told, and the collector has sent all below ``sent``."""

    def __init__(
        self, home: Path, rules: tuple[TableRule, ...] = (), shards: tuple[str, ...] = ()
    ) -> None:
        own = {"shards": shards} if shards else {"others": (NEW,)}
        self.lake = LocalLake(home, rules, **own)
        self.sent(10_000)

    def sent(self, pos: int) -> None:
        mark = self.lake.checkpoint
        epochs = {"s": Epoch(1, "server", binlog_position(1, pos))}
        self.lake.checkpoint = replace(
            mark, acknowledged={"s": Acknowledged(binlog_position(1, pos))}, epochs=epochs
        )

    def tell(self, pos: int, text: str, table: str = "", columns: str = FIRST_COLUMNS) -> None:
        """One statement at *pos*; *table* is the one it leaves with *columns*."""
        tables = [described(text, table, columns)] if table else []
        self.lake.catalog.add([("s", Order(1, 1, pos), message(text, *tables))])
        touched = {"db.t": self.lake.checkpoint.batch + 1}
        self.lake.checkpoint = replace(
            self.lake.checkpoint, tables={**self.lake.checkpoint.tables, **touched}
        )
        self.lake.land()

    def begin(self) -> None:
        """Let t have rows 1 and 2, and _t_new be made beside it, empty."""
        self.tell(1, "CREATE TABLE t (id BIGINT PRIMARY KEY, name VARCHAR(80))", "t")
        self.lake.land(row(S, 1, None), row(C, 10, 1, "old"), row(C, 11, 2, "goes"))
        self.tell(20, "CREATE TABLE _t_new LIKE t", "_t_new")

    def swap(self, pos: int = 100, columns: str = FIRST_COLUMNS) -> None:
        self.tell(pos, "RENAME TABLE t TO _t_old", "_t_old")
        self.tell(pos, "RENAME TABLE _t_new TO t", "t", columns)

    def land(self, gaps: tuple[Gap, ...] = (), **facts: Any) -> None:
        """A batch without rows, of which landing itself makes the mark."""
        mark = self.lake.checkpoint
        existing = {Shard("s", NEW): Existence(Order(1, 1, 100), there=False), **mark.existing}
        made, _ = next_checkpoint(
            batch_context(
                replace(mark, existing=existing),
                stats=BatchStats(**facts),
                epochs=mark.epochs,
                router=self.lake.catalog.router,
            ),
            Plan({}, {}, gaps, capped=False),
            acknowledged=mark.acknowledged,
            names_of=lambda _: None,
        )
        self.lake.checkpoint = replace(made, batch=mark.batch)
        self.lake.land()

    def again(self, pos: int) -> None:
        """Make _t_new once more, which is a base of it."""
        self.tell(pos, "CREATE TABLE _t_new LIKE t", "_t_new")
        change = SchemaChange("create", NEW, Order(1, 1, pos), None, "")
        self.land(news=(SchemaNews("s", change, snapshot=False),))

    def apply(self) -> MergeReport:
        return self.lake.apply()


def new(op: Op, pos: int, key: int | None, name: str | None = None, **more: Any) -> dict[str, Any]:
    return row(op, pos, key, name, **{"shard": NEW, "table": NEW, "topic": f"s.{NEW}"} | more)


SHADOW = (
    new(S, 20, None),
    new(C, 30, 1, "copied"),
    new(C, 31, 3, "three"),
    new(U, 40, 1, "changed"),
    new(C, 41, 4, "four"),
    new(D, 42, 4, "four"),
)
