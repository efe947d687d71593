"""Counts the statements that each probe sends to a MySQL source for one table.

    python -m bench.source_load

The source is the product's own, over a connection that answers at once and counts its statements.
No server is needed, and nothing is timed. In a cycle both sides agree; ranges that differ are
halved, which takes more statements.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, ClassVar, cast
from unittest.mock import patch
from zoneinfo import ZoneInfo

import click

from checks.counting import Pace, count_ranges
from checks.days import DayQuestion, days_before, sum_days
from checks.probes.day_counts import DayCounts
from checks.probes.max_id import MaxId
from checks.probes.range_counts import RangeCounts
from checks.probes.schema import Schema
from checks.world import World
from pipeline.model import Shard, Table
from pipeline.settings import CollectorSettings, SourceSettings
from pipeline.sources.mysql.source import MySqlSource

DAY = timedelta(days=1)
NOW = datetime(2026, 3, 30, 12, 0, tzinfo=UTC)
ROWS = 10_000_000  # of the table
SHARD = Shard("shop", "shop.orders")
TABLE = Table("shop.orders", (SHARD,), key=("id",), id_column="id")
COLUMN = {
    **dict.fromkeys(("character_maximum_length", "numeric_precision", "numeric_scale")),
    **dict.fromkeys(("datetime_precision", "column_default", "collation_name")),
    **dict.fromkeys(("column_key", "extra", "generation_expression"), ""),
    **{"is_nullable": "NO", "character_set_name": None, "ordinal_position": 1},
}
COLUMNS = (
    {**COLUMN, "column_name": "id", "data_type": "bigint", "column_type": "bigint"},
    {**COLUMN, "column_name": "at", "data_type": "datetime", "column_type": "datetime"},
)


@dataclass(eq=False)
class CountingConnection:
    """A connection and cursor like PyMySQL's, as far as a source uses them; answers are fixed."""

    sent: Counter[str] = field(default_factory=Counter)
    rows: tuple[Mapping[str, Any], ...] = ()
    _result: SimpleNamespace = field(default_factory=SimpleNamespace)

    def cursor(self, *_: object) -> "CountingConnection":
        """Return itself."""
        return self

    def __enter__(self) -> "CountingConnection":
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing."""

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        """Iterate over the rows of the last answer."""
        return iter(self.rows)

    def get_server_info(self) -> str:
        """Return the version."""
        return "8.4.0"

    def execute(self, statement: str, _: object = None) -> None:
        """Count *statement* by its kind."""
        kind, self.rows = _kind(statement)
        self.sent[kind] += 1


def _kind(statement: str) -> tuple[str, tuple[Mapping[str, Any], ...]]:
    if "information_schema" in statement:
        return "catalogue", COLUMNS
    if statement.startswith("EXPLAIN"):
        return "explain", ({"rows": 1},)
    if statement.startswith("SELECT MIN("):
        return "index end", ({"id": 1},)
    if statement.startswith("SELECT MAX("):
        return "index end", ({"id": ROWS},)
    if statement.startswith("SELECT"):
        return "count", ({"n": 0},)
    return "session", ({"Value": "1"},)  # load, time limit, transaction


@dataclass(frozen=True, slots=True)
class SourceWorld:
    """The part of a probe's world that reads the source."""

    its: MySqlSource
    now: ClassVar[datetime] = NOW

    def source(self, _: str) -> MySqlSource:
        """Return the only source."""
        return self.its

    def mirror(self, _: Table) -> "SourceWorld":
        """Return itself, for the number of rows."""
        return self

    def rows(self) -> int:
        """Return the number of rows."""
        return ROWS

    def landed_batch(self) -> int:
        """Return the first batch."""
        return 0

    def clock(self) -> datetime:
        """Return the only instant."""
        return NOW


@dataclass(frozen=True, slots=True)
class ProbeLoad:
    """The statements of a probe in one cycle, by kind, and its interval."""

    probe: str
    every: timedelta
    sent: Mapping[str, int]

    @property
    def cycle(self) -> int:
        """Return the statements of one cycle."""
        return sum(self.sent.values())

    @property
    def day(self) -> int:
        """Return the statements of a day."""
        return self.cycle * (DAY // self.every)


def loads() -> Iterator[ProbeLoad]:
    """Yield the load of each probe that reads the source."""
    yield _load("max_id", MaxId.every, lambda world: world.its.max_id(SHARD, "id"))
    yield _load("range_counts", RangeCounts.every, _count_ranges)
    yield _load("schema", Schema.every, lambda world: world.its.columns(SHARD))
    yield _load("day_counts", DayCounts.every, _count_days)


def _count_ranges(world: SourceWorld) -> None:
    probe = RangeCounts()
    pace = Pace(probe.block_rows, probe.newest, probe.rotating)
    cursors = {str(SHARD): ROWS // 2}
    count_ranges(TABLE, cast(World, world), pace, cursors=cursors, again={})


def _count_days(world: SourceWorld) -> None:
    """Sum days, and then read the columns, which the probe compares with the earlier ones."""
    probe, zone = DayCounts(("at",)), ZoneInfo("UTC")
    days = days_before(NOW, probe.days, zone)
    sum_days(TABLE, cast(World, world), DayQuestion(probe.columns, (), zone, zone), days)
    world.its.columns(SHARD)


def _load(probe: str, every: timedelta, cycle: Callable[[SourceWorld], object]) -> ProbeLoad:
    connection = CountingConnection()
    settings = SourceSettings("shop", "127.0.0.1", 1, "", CollectorSettings("", ""), "shop")
    with patch("pymysql.connect", lambda **_: connection):
        source = MySqlSource(settings)
        source.max_id(SHARD, "id")  # the first call connects, which is not part of a cycle
        connection.sent.clear()
        cycle(SourceWorld(source))
    return ProbeLoad(probe, every, dict(connection.sent))


@click.command()
def main() -> None:
    """Count the statements of each probe, for one table of one shard."""
    for one in loads():
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(one.sent.items()))
        click.echo(f"  {one.probe:14}{one.cycle:>6} a cycle{one.day:>10,} a day   {kinds}")


if __name__ == "__main__":
    main()
