"""A purge on a real MySQL: rows of which a window or a marker speaks stay, and days still agree."""

from collections.abc import Callable
from contextlib import closing
from datetime import UTC, date, datetime, timedelta

import pytest

from pipeline.aggregates import AggregatedColumn, TimeSpan
from pipeline.archive import ArchiveMarker, ArchiveRule, ArchiveWindow
from pipeline.model import Shard, Table
from pipeline.sources.mysql.source import MySqlSource
from tests.pipeline.live import Pipe

pytestmark = [pytest.mark.stack, pytest.mark.spark]
NAME = "archived"
HOUR = timedelta(hours=1)
RULE = ArchiveRule(
    f"{NAME}.t",
    (ArchiveWindow(datetime.now(UTC) - HOUR, datetime.now(UTC) + HOUR, "day", "2025-01-01"),),
    (ArchiveMarker(f"{NAME}.runs", "who", ("root@localhost", "root@127.0.0.1", "root@%")),),
)
DAYS: list[TimeSpan] = [(date(year, 6, 1), date(year, 6, 2)) for year in (2024, 2025, 2026)]


def test_lake_is_source_and_archived(pipe: Callable[..., Pipe]) -> None:
    p = pipe(NAME, tuning={"archive": (RULE,)})
    p.sql(
        "CREATE TABLE DB.t (id INT PRIMARY KEY, name VARCHAR(80), day DATE)",
        "CREATE TABLE DB.runs (id INT PRIMARY KEY, who VARCHAR(80))",
    )
    for year in (2024, 2025, 2026):
        rows = ", ".join(f"({n}, 'x', '{year}-06-01')" for n in range(year * 10, year * 10 + 10))
        p.sql(f"INSERT INTO DB.t VALUES {rows}")
    p.start()
    p.catch_up()

    p.sql("DELETE FROM DB.t WHERE day < '2025-01-01' AND id < 20245")  # of the window
    p.sql("DELETE FROM DB.t WHERE id IN (20250, 20251)")  # business
    p.sql(
        "START TRANSACTION",
        "DELETE FROM DB.t WHERE id BETWEEN 20255 AND 20259",
        "INSERT INTO DB.runs VALUES (1, CURRENT_USER())",
        "COMMIT",
    )
    p.catch_up()
    p.sql("INSERT INTO DB.t VALUES (20240, 'again', '2024-06-01')")
    p.catch_up()

    source, lake = p.source_pairs(), p.pairs()
    archived = {20241, 20242, 20243, 20244, *range(20255, 20260)}
    assert lake.keys() == source.keys() | archived
    assert lake[20240] == "again"
    shard = Shard(p.source().name, f"{NAME}.t")
    table = Table(f"{NAME}.t", (shard,), ("id",), "id")
    uri = p.lane.runner.settings.mirror(table.name)
    reader = p.lane.runner.table_format.reader(uri, table, p.lane.runner.settings.lane)
    assert reader is not None
    assert set(reader.ids(shard, "id", (0, 99_999), 999)) == source.keys()
    fields = (AggregatedColumn("id"), AggregatedColumn("name", text=True))
    with closing(MySqlSource(p.source())) as server:
        there = server.tallies(shard, "day", DAYS, fields)
    assert [one.rows for one in there] == [6, 3, 10]
    assert reader.tallies([shard], "day", DAYS, fields) == {shard: there}
