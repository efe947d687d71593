"""The toy once more, its mirrors in the table format of examples/; no product file knows it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from demo.processes import wait_until
from examples.parquet_versions import ParquetVersions
from tests.toy.stand import LINES, SOON, TABLE, Stand, now, without_kafka

FORMAT = "table_format: examples.parquet_versions\ntable_format_options: {compression: snappy}\n"

pytestmark = [pytest.mark.stack, pytest.mark.spark]


@pytest.fixture
def stand(server_folder: Path) -> Iterator[Stand]:
    with without_kafka(server_folder / "toy_versions", {LINES: f"{LINES}{FORMAT}"}) as made:
        yield made


def test_mirrors_of_another_format_are_merged_watched_and_gated(stand: Stand) -> None:
    stand.database.put(TABLE, *({"id": n, "name": f"n{n}"} for n in range(1, 101)))
    stand.database.put(TABLE, {"id": 7, "name": "Seven"})
    stand.database.delete(TABLE, 100)

    assert stand.ready(now())
    assert mirrored(stand) == stand.database.rows(TABLE)
    wait_until(lambda: stand.lags() == {"collection", "consumer", "merge"}, SOON, "lags")
    assert stand.incidents() == []
    wait_until(lambda: stand.passed() >= {"max_id", "range_counts"}, SOON, "probes")


def mirrored(stand: Stand) -> dict[int, dict[str, Any]]:
    """Rows of the newest version, without what Sluice adds."""
    uri = str(stand.home / "lake" / "mirrors" / "shop" / "orders")
    newest = ParquetVersions(None).look(uri, None)
    assert newest is not None
    assert not Path(uri, "_delta_log").exists()
    rows = pq.read_table(Path(uri, newest.file)).drop_columns(["_sluice"]).to_pylist()
    return {row["id"]: row for row in rows}
