"""Rows of a real Postgres are traced: values of many types are equal, and keys are understood."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from checks.trace import TraceState
from demo.postgres import Postgres
from demo.servers import Servers
from tests.monitor.test_tracing_stack import Traced
from tests.pipeline.postgres_live import PostgresPipe

pytestmark = [pytest.mark.stack, pytest.mark.spark]
UUID = "3f2504e0-4f89-11d3-9a0c-0305e82c3301"
M = (
    "CREATE TABLE m (id UUID PRIMARY KEY, j JSONB, f REAL, d DOUBLE PRECISION, t TIME,"
    " ts TIMESTAMPTZ, dt TIMESTAMP, da DATE, n NUMERIC(20, 4), b BYTEA, x TEXT, y BOOLEAN,"
    " a INT[])"
)
VALUES = (
    """'{"a": [1, 2.50, null]}', 1.1, 1e-7, '12:00:00.000001', '2026-01-02 03:04:05.678901+02',"""
    " '2026-01-02 03:04:05.678', '2026-02-28', -1.5, '\\x00ff', 'ä\U0001f600', true, '{1,2,NULL}'"
)
W = "CREATE TABLE w (k BYTEA, n INT, name TEXT, PRIMARY KEY (n, k))"


@pytest.fixture
def traced(
    servers: Servers, postgres: Postgres, spark: SparkSession, tmp_path: Path
) -> Iterator[Traced]:
    name = f"traced_{postgres.version}"
    p = PostgresPipe(servers, tmp_path, name, postgres=postgres)
    p.sql(M, W, f"INSERT INTO m VALUES ('{UUID}', {VALUES})")
    p.sql("INSERT INTO w VALUES ('\\x00ff', 1, NULL)")
    p.start()
    try:
        p.catch_up()
        yield Traced(p)
    finally:
        p.end()


def test_rows_of_a_postgres_are_merged_deleted_and_absent(traced: Traced) -> None:
    p = traced.pipe
    whole, pair = traced.one(UUID.upper(), table="m"), traced.one("n=1,k=0x00ff", table="w")
    p.sql("UPDATE m SET x = 'later'")
    waits = traced.one(UUID, table="m")
    p.catch_up()
    later = traced.one(UUID, table="m")
    p.sql("DELETE FROM w")
    p.catch_up()
    gone, nowhere = traced.one("n=1,k=0x01", table="w"), traced.one("n=2,k=0x01", table="w")
    deleted = traced.one("n=1,k=0x00ff", table="w")

    assert whole.verdict.state is TraceState.MERGED, whole.verdict
    assert pair.verdict.state is TraceState.MERGED, pair.verdict
    assert waits.verdict.state in (TraceState.IN_TOPIC, TraceState.IN_FLIGHT), waits.verdict
    assert later.verdict.state is TraceState.MERGED, later.verdict
    assert deleted.verdict.state is TraceState.MERGED, deleted.verdict
    assert {gone.verdict.state, nowhere.verdict.state} == {TraceState.ABSENT}
