"""What the benchmark of `sluice compare` lays down is what the verb reads."""

from pathlib import Path

from bench.compare import (
    COLUMNS,
    Cost,
    Feed,
    describe,
    parse_row,
    quantile,
    settings,
    workload,
)
from bench.kit.lake import Lake, here
from bench.kit.table import SOURCE
from monitor.clients import LandedSchemas
from pipeline.build import open_table_format, schema_readings
from pipeline.model import Shard, Table
from pipeline.row_digest import DigestColumn, Form, list_row_digests
from pipeline.tables.lake import Lake as OpenLake

WORK = workload(300, 30)
SHARD = Shard(SOURCE, WORK.shard)
TABLE = Table(WORK.shard, (SHARD,), ("id",), "id")


def test_the_mirror_has_the_rows_that_mysql_is_given(tmp_path: Path) -> None:
    """By their digests, before and after a round of changes."""
    lake = Lake(tmp_path, [WORK], here)
    lake.fill(describe(WORK, settings(1)))
    opened = OpenLake(lake.settings, open_table_format(lake.settings))
    schemas = LandedSchemas(schema_readings([settings(1)]))
    schema = schemas.newest(SHARD, opened.changes())
    assert schema is not None
    forms = ((one.name, one.dialect.digest_form(one)) for one in schema.columns)
    columns = [DigestColumn(name, form) for name, form in forms if isinstance(form, Form)]
    rows = {row["id"]: row for part in WORK.image(100) for row in part.to_pylist()}

    def digests() -> list[tuple[int, int]]:
        asked = (SHARD, "id", (0, 2**62), columns, 1_000)
        return [*opened.mirror(TABLE).row_digests(*asked)]

    assert len(columns) == len(COLUMNS) == 8
    assert digests() == list_row_digests(rows.values(), "id", columns)
    changes = WORK.changes(1)
    for one in changes.to_pylist():
        id_, values = parse_row(WORK, one)
        rows.pop(id_, None)
        if values is not None:
            rows[id_] = dict(zip(WORK.names, values, strict=True))
    lake.land(changes)
    lake.apply()
    assert digests() == list_row_digests(rows.values(), "id", columns)


def test_a_feed_remembers_where_the_lake_was(tmp_path: Path) -> None:
    lake = Lake(tmp_path, [WORK], here)
    lake.fill()

    assert Feed(tmp_path, 1, WORK, lake.checkpoint).checkpoint.batch == 0


def test_costs_scale_with_the_rows_and_quantiles_are_answers() -> None:
    cost = Cost(1.0, 2.0, 3.0).scaled(10)

    assert str(cost) == "  10.0 s wall,   50.0 s of CPU (server 20.0, tool 30.0)"
    assert quantile([float(n) for n in range(1, 101)], 0.99) == 100.0
    assert quantile([5.0], 0.5) == 5.0
