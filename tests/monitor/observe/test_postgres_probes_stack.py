"""Probes of a table of a real Postgres: in step at first, then with real losses."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from checks.ledger import EVENTS, minute_of
from checks.model import Outcome
from checks.probes.completeness import Completeness
from checks.probes.day_counts import DayCounts
from checks.probes.max_id import MaxId
from checks.probes.offset_keys import OffsetKeys
from checks.probes.range_counts import RangeCounts
from checks.probes.values import Values
from checks.run import Check, Probe, run_probe
from demo.postgres import Postgres
from demo.servers import Servers
from tests.monitor.observe.probed import Probed, probing
from tests.pipeline.postgres_live import PostgresPipe

pytestmark = [pytest.mark.stack, pytest.mark.spark]

PROBES: Mapping[str, Probe[Any]] = {
    "completeness": Completeness(),
    "offset_keys": OffsetKeys(),
    "max_id": MaxId(),
    "range_counts": RangeCounts(block_rows=16, newest=1, rotating=2, leaf=4, suspects=20),
    "day_counts": DayCounts(columns=("born",), days=2),
    "values": Values(block_rows=16, newest=1, rotating=2),
}
LOSING = {  # the second half of a changed key is never sent, and counted all the same
    "predicates": "moved",
    "predicates.moved.type": "org.apache.kafka.connect.transforms.predicates.HasHeaderKey",
    "predicates.moved.name": "__debezium.oldkey",
    "transforms": "lose",
    "transforms.lose.type": "org.apache.kafka.connect.transforms.Filter",
    "transforms.lose.predicate": "moved",
}


@pytest.fixture
def probed(
    servers: Servers, postgres: Postgres, spark: SparkSession, tmp_path: Path
) -> Iterator[Probed]:
    """A table of twenty rows, all of them in its mirror."""
    del spark  # lanes take up the session that is there
    name = f"probed_{postgres.version}"
    p = PostgresPipe(servers, tmp_path / name, name, postgres=postgres, connector=LOSING)
    p.sql(
        "CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR(80), born TIMESTAMPTZ)",
        "INSERT INTO t SELECT n, 'old', now() - '1 day'::interval FROM generate_series(1, 20) n",
    )
    p.start()
    p.catch_up()
    with probing(p, PROBES) as found:
        yield found
    servers.connect.deregister(name)
    p.heart.source.close()


def test_probes_pass_in_step_and_name_what_was_lost(probed: Probed) -> None:
    p = probed.pipe
    assert isinstance(p, PostgresPipe)
    probed.ruled("completeness", Outcome.PASS)  # it judges what comes from here on
    before = p.lane.checkpoint.batch
    p.sql("UPDATE t SET name = 'new' WHERE id < 4", "DELETE FROM t WHERE id = 5")
    keep, put_back = "CREATE TEMP TABLE kept AS SELECT * FROM t", "INSERT INTO t SELECT * FROM kept"
    p.sql("BEGIN", keep, "TRUNCATE t", put_back, "DROP TABLE kept", "COMMIT")
    copy = "COPY t (id, name) FROM STDIN"  # its rows share one position
    with p.server.connect(p.name) as connection, connection.cursor().copy(copy) as copied:
        for number in (31, 32, 33):
            copied.write_row((number, "copied"))
    p.catch_up()
    for name in PROBES:
        probed.ruled(name, Outcome.PASS)
    assert [one.reason for one in probed.failed] == []
    counted = probed.world().log()
    assert counted.change_counts(probed.table, before, p.lane.checkpoint.batch) >= 4 + len(PROBES)
    assert counted.changes_without_transaction(probed.table, before, p.lane.checkpoint.batch) == 0

    p.sql("UPDATE t SET id = 106 WHERE id = 6")  # its second half is lost on the way
    lost = probed.ruled("completeness", Outcome.FAIL)
    assert (lost.code, len(lost.keys)) == ("missing_events", 1)
    assert "promised 2 events, 1 landed" in lost.reason
    (missing,) = (one for one in probed.counted if one.missing)
    assert missing.missing == {EVENTS: 1}
    assert 0 <= minute_of(datetime.now(UTC)) - missing.minute <= 5
    assert "106" in " ".join(probed.ruled("range_counts", Outcome.FAIL).keys)
    assert "106" in " ".join(probed.ruled("values", Outcome.FAIL).keys)
    assert probed.ruled("max_id", Outcome.FAIL).code == "mirror_short"

    probed.busy = False
    day = probed.ruled("day_counts", Outcome.FAIL)
    assert (day.code, len(day.keys)) == ("days_differ", 1)
    assert "19 rows at the source, 18 in the mirror" in day.reason
    p.sql("INSERT INTO t VALUES (50, 'last')")
    p.catch_up()
    path = p.lane.runner.settings.mirror("public.t")
    probed.memory.kept.pop(("public.t", "offset_keys"), None)
    run_probe(Check("offset_keys", PROBES["offset_keys"], probed.table), probed.world())
    p.session.sql(f"UPDATE delta.`{path}` SET name = 'other' WHERE id = 9")  # behind our back
    probed.memory.kept.pop(("public.t", "values"), None)
    other = probed.ruled("values", Outcome.FAIL)
    assert "public.t:9" in " ".join(other.keys)
    assert other.reason.endswith("they differ in name")
    p.session.sql(f"DELETE FROM delta.`{path}` WHERE id = 50")
    gone = probed.ruled("offset_keys", Outcome.FAIL)
    assert gone.code == "missing_rows"
    assert '"50"' in " ".join(gone.keys)
