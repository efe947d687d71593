"""A changed row that is wrong after its merge is named by key and column, on real servers."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from checks.model import Outcome
from checks.probes.values import Values
from demo.servers import Servers
from tests.monitor.observe.probed import probing
from tests.pipeline.live import Pipe

pytestmark = [pytest.mark.stack, pytest.mark.spark]
NAME = "changed_rows"


def test_a_row_that_is_changed_without_the_log_right_after_its_change_is_named(
    servers: Servers, spark: SparkSession, tmp_path: Path
) -> None:
    """Its range is not looked at: the newest alone is, and that holds other rows."""
    del spark  # lanes take up the session that is there
    pipe = Pipe(servers, tmp_path / NAME, NAME)
    pipe.sql(
        "CREATE TABLE DB.t (id INT PRIMARY KEY, name VARCHAR(80), total DECIMAL(10,2))",
        "INSERT INTO DB.t WITH RECURSIVE n(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n"
        " WHERE id < 200) SELECT id, 'old', id FROM n",
    )
    pipe.start()
    pipe.catch_up()
    with probing(pipe, {"values": Values(block_rows=16, newest=1, rotating=0, ranges=0)}) as probed:
        passed = probed.ruled("values", Outcome.PASS)
        pipe.sql("UPDATE DB.t SET name = 'new' WHERE id IN (3, 5)", "DELETE FROM DB.t WHERE id = 7")
        probed.ruled("values", Outcome.PASS)

        pipe.sql("UPDATE DB.t SET name = 'newer' WHERE id IN (3, 5)")
        pipe.sql("SET sql_log_bin = 0", "UPDATE DB.t SET total = total + 1 WHERE id = 3")
        lost = probed.ruled("values", Outcome.FAIL)

    pipe.end()
    assert "200 rows" not in passed.reason
    assert lost.code == "different_rows"
    assert lost.keys == (f"{NAME}/{NAME}.t:3",)
    assert lost.reason.endswith("they differ in total")


def test_a_changed_row_with_a_key_of_two_columns_is_named_long_before_the_next_scan(
    servers: Servers, spark: SparkSession, tmp_path: Path
) -> None:
    del spark  # lanes take up the session that is there
    pipe = Pipe(servers, tmp_path / "two_columns", "two_columns")
    pipe.sql(
        "CREATE TABLE DB.t (word VARCHAR(80), n INT, total DECIMAL(10,2), PRIMARY KEY (word, n))",
        "INSERT INTO DB.t WITH RECURSIVE n(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n"
        " WHERE id < 200) SELECT 'it''s é, 100%', id, id FROM n",
    )
    pipe.start()
    pipe.catch_up()
    with probing(pipe, {"values": Values()}) as probed:
        probed.busy, probed.key = False, ("word", "n")
        passed = [probed.ruled("values", Outcome.PASS)]
        pipe.sql("UPDATE DB.t SET total = 0 WHERE n IN (3, 5)", "DELETE FROM DB.t WHERE n = 7")
        while not passed[-1].reason.startswith("3 changed rows are equal on both sides"):
            assert len(passed) < 20
            passed.append(probed.ruled("values", Outcome.PASS))

        pipe.sql("UPDATE DB.t SET total = 1 WHERE n IN (3, 5)")
        pipe.sql("SET sql_log_bin = 0", "UPDATE DB.t SET total = total + 1 WHERE n = 3")
        lost = probed.ruled("values", Outcome.FAIL)

    pipe.end()
    assert passed[0].reason.startswith("200 rows of 1 shards are equal on both sides")
    assert lost.code == "different_rows"
    assert lost.keys == ('["two_columns","two_columns.t","it\'s é, 100%","3"]',)
    assert lost.reason.endswith("they differ in total")
