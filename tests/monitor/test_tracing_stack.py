"""Rows of a real pipe are traced: one for each verdict, and one that changes while it is traced.

MySQL, Kafka and Debezium are real, and the lane is in this process, so each hop can stand still.
Rows are changed without a word in the log where a hop must not see them.
"""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaProducer
from pyspark.sql import SparkSession

from checks.trace import TraceState
from demo.beside import beside
from demo.processes import wait_until
from demo.servers import Servers
from monitor.clients import LakeClient
from monitor.quarantine import ErrorTable, SourceFormat
from monitor.tracing import MirrorLook, ShardTrace, SourceLook, Trace, Tracer, TraceRequest
from pipeline.build import (
    open_format,
    open_registry,
    open_rows,
    open_table_format,
    open_transport,
    schema_readings,
)
from pipeline.errors import ConfigError
from pipeline.model import CaptureScope, Missing, Table
from pipeline.settings import SourceSettings
from pipeline.standards.table_standards import Standards
from pipeline.tables.lake import Lake
from pipeline.transports.topics import KeyedTopics
from tests.pipeline.live import PATIENCE, Pipe, now
from tests.topic_records import records

pytestmark = [pytest.mark.stack, pytest.mark.spark]
NO_WAIT = timedelta()
T = "CREATE TABLE DB.t (id INT PRIMARY KEY, name VARCHAR(80), n DECIMAL(8,2), at DATETIME(6))"
W = "CREATE TABLE DB.w (k VARCHAR(20), n INT, name VARCHAR(80), PRIMARY KEY (n, k))"
B = "CREATE TABLE DB.b (id BINARY(16) PRIMARY KEY, name VARCHAR(80))"
M = (
    "CREATE TABLE DB.m (u BIGINT UNSIGNED PRIMARY KEY, j JSON, f FLOAT, d DOUBLE, t TIME(6),"
    " ts TIMESTAMP(6) NULL, b BIT(9), e ENUM('x', 'y'), s SET('p', 'q'), y YEAR, bl BLOB,"
    " tx TEXT, de DECIMAL(30, 10), ti TINYINT(1), da DATE, bi BINARY(4), dt DATETIME(3))"
)
VALUES = (
    """'{"a": [1, 2.50, null], "b": "\\u00e4"}', 1.1, 1e-7, '-12:00:00.000001',"""
    " '2026-01-02 03:04:05.678901', b'101', 'y', 'p,q', 2026, x'00ff', 'ä\U0001f600',"
    " -1.5, 1, '2026-02-28', x'0a00', '2026-01-02 03:04:05.678'"
)
UUID = "3f2504e0-4f89-11d3-9a0c-0305e82c3301"


@dataclass(eq=False)
class Traced:
    """A pipe, and what traces its rows."""

    pipe: Pipe
    lake: LakeClient = field(init=False)

    def __post_init__(self) -> None:
        settings = self.pipe.lane.runner.settings
        standards = Standards(settings.standards)
        self.lake = LakeClient(
            Lake(settings, open_table_format(settings)),
            partial(open_transport, settings),
            {one.name: _keyed(one, standards) for one in settings.sources},
            schema_readings(settings.sources),
            settings.rules,
            standards,
        )
        self.source = self.pipe.source()

    def tracer(self, source: SourceSettings | None = None) -> Tracer:
        made = source or self.source
        formats = {made.name: SourceFormat(open_format(made), open_registry(made))}
        return Tracer(
            self.lake,
            self.lake.links.learn_schemas,
            {made.name: lambda: made},
            open_rows,
            ErrorTable(self.lake.lake, formats, partial(self.lake.transport, ErrorTable)),
            now,
            {made.name: lambda: CaptureScope(lambda _: True)},
        )

    def table(self, name: str) -> Table:
        mark = self.lake.lake.checkpoint()
        assert mark is not None
        return self.lake.links.learn_schemas().table(self.pipe.named(name), mark.shards)

    def trace(self, key: str, *, table: str = "t", wait: timedelta = NO_WAIT, **more: Any) -> Trace:
        return self.tracer().trace(TraceRequest(self.table(table), key, wait=wait, **more))

    def one(self, key: str, **more: Any) -> ShardTrace:
        (found,) = self.trace(key, **more).traces
        return found

    def landing(self, key: str, **more: Any) -> ShardTrace:
        """Traced while the lane goes on, so that a verdict can be proven."""
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(self.one, key, wait=PATIENCE, **more)

            def done() -> bool:
                self.pipe.round()
                return asked.done()

            wait_until(done, PATIENCE, f"the trace of {key}")
            return asked.result()


def _keyed(one: SourceSettings, standards: Standards) -> KeyedTopics:
    return KeyedTopics(one.name, one.topic_pattern, open_format(one), open_registry(one), standards)


def silently(p: Pipe, *statements: str) -> None:
    p.sql("SET sql_log_bin = 0", *statements)


@pytest.fixture(scope="module")
def traced(servers: Servers, spark: SparkSession, server_folder: Path) -> Iterator[Traced]:
    """Rows 1 to 9 in all hops."""
    home = server_folder / "traced"
    home.mkdir()
    p = Pipe(servers, home, "traced")
    p.sql(T, W, B, M, f"INSERT INTO DB.m VALUES (1, {VALUES})")
    p.sql("INSERT INTO DB.t VALUES " + ",".join(f"({n},'a',{n}.50,NOW(6))" for n in range(1, 10)))
    p.sql("INSERT INTO DB.w VALUES ('it''s', 1, 'x'), ('b', 2, NULL)")
    p.sql(f"INSERT INTO DB.b VALUES (UNHEX(REPLACE('{UUID}', '-', '')), 'x')")
    p.start()
    try:
        p.catch_up()
        p.sql(f"INSERT INTO DB.m VALUES (18446744073709551615, {VALUES})")
        p.sql("INSERT INTO DB.m (u) VALUES (3)")
        p.catch_up()
        yield Traced(p)
    finally:
        p.end()


def test_a_merged_row_is_shown_in_all_hops(traced: Traced) -> None:
    traced.pipe.sql("UPDATE DB.t SET name = 'b' WHERE id = 1")
    traced.pipe.catch_up()

    found = traced.trace("1")

    (one,) = found.traces
    assert one.verdict.state is TraceState.MERGED, one.verdict
    assert isinstance(one.source, SourceLook)
    assert isinstance(one.mirror, MirrorLook)
    assert one.source.row == one.mirror.row
    assert one.source.row is not None
    assert one.source.row["name"] == "b"
    assert not isinstance(one.changes, Missing)
    assert [change.op for change in one.changes] == ["u", "r", "settle"]
    assert one.changes[0].order == one.mirror.order
    assert (one.waiting, one.refused) == ((), ())
    assert found.key == '["1"]'


@pytest.mark.parametrize(
    ("table", "key", "written"),
    [
        pytest.param("w", "n=1,k=it's", '["1","it\'s"]', id="named columns"),
        pytest.param("w", "n=1,k=IT'S", '["1","it\'s"]', id="another letter case"),
        pytest.param("w", '{"k": "b", "n": 2}', '["2","b"]', id="JSON object, NULL in the row"),
        pytest.param("w", '[2, "b"]', '["2","b"]', id="JSON array"),
        pytest.param("b", UUID, '["PyUE4E+JEdOaDAMF6CwzAQ=="]', id="UUID in bytes"),
        pytest.param("b", f"0x{UUID.replace('-', '')}", '["PyUE4E+JEdOaDAMF6CwzAQ=="]', id="bytes"),
        pytest.param("t", "id=2", '["2"]', id="one named column"),
        pytest.param("m", "1", '["1"]', id="values of all types, from the snapshot"),
        pytest.param("m", "3", '["3"]', id="nothing but NULL"),
    ],
)
def test_keys_are_taken_as_people_write_them(
    traced: Traced, table: str, key: str, written: str
) -> None:
    found = traced.trace(key, table=table)

    assert found.key == written
    assert [one.verdict.state for one in found.traces] == [TraceState.MERGED]


def test_values_of_all_types_are_equal_on_both_sides(traced: Traced) -> None:
    """Also where the collector writes a key of BIGINT UNSIGNED in base64."""
    found = traced.one("18446744073709551615", table="m")

    assert found.verdict.state is TraceState.MERGED, found.verdict
    assert isinstance(found.source, SourceLook)
    assert found.source.row is not None
    assert None not in found.source.row.values()


def test_a_key_that_is_none_is_refused(traced: Traced) -> None:
    with pytest.raises(ConfigError, match="key column id"):
        traced.trace("x")
    with pytest.raises(ConfigError, match="key is n, k"):
        traced.trace("[1, null]", table="w")


def test_a_row_that_is_nowhere_is_absent(traced: Traced) -> None:
    assert traced.one("4711").verdict.state is TraceState.ABSENT


def test_a_row_that_the_log_never_showed_was_not_captured(traced: Traced) -> None:
    silently(traced.pipe, "INSERT INTO DB.t VALUES (100, 'unseen', NULL, NULL)")

    before, after = traced.one("100"), traced.landing("100")

    assert before.verdict.state is TraceState.IN_FLIGHT, "nothing is proven yet"
    assert after.verdict.state is TraceState.NOT_CAPTURED, after.verdict


def test_a_row_that_was_deleted_unseen_is_a_ghost(traced: Traced) -> None:
    silently(traced.pipe, "DELETE FROM DB.t WHERE id = 2")

    found = traced.landing("2")

    assert found.verdict.state is TraceState.GHOST, found.verdict
    assert found.source == SourceLook(None)


def test_a_row_that_was_changed_unseen_is_different_in_its_columns(traced: Traced) -> None:
    silently(traced.pipe, "UPDATE DB.t SET name = 'c', n = NULL WHERE id = 3")

    found = traced.landing("3")

    assert found.verdict.state is TraceState.DIFFERENT, found.verdict
    assert found.verdict.columns == ("name", "n")


def test_a_record_that_has_not_landed_is_in_the_topic_and_then_not_merged(traced: Traced) -> None:
    p = traced.pipe
    topic, sent = f"{p.name}.{p.name}.t", len([*_records(p)])
    p.sql("UPDATE DB.t SET name = 'late' WHERE id = 4")
    wait_until(lambda: len([*_records(p)]) > sent, PATIENCE, "the record in its topic")

    waits = traced.one("4")
    p.lane.land(frozenset())
    landed = traced.one("4")
    p.catch_up()
    merged = traced.one("4")

    assert waits.verdict.state is TraceState.IN_TOPIC, waits.verdict
    assert not isinstance(waits.waiting, Missing)
    assert [(one.at.topic, one.op) for one in waits.waiting] == [(topic, "u")]
    assert landed.verdict.state is TraceState.LANDED_NOT_MERGED, landed.verdict
    assert merged.verdict.state is TraceState.MERGED, merged.verdict


def test_a_delete_that_is_merged_is_merged(traced: Traced) -> None:
    traced.pipe.sql("DELETE FROM DB.t WHERE id = 5")
    traced.pipe.catch_up()

    found = traced.one("5")

    assert found.verdict.state is TraceState.MERGED, found.verdict
    assert "because of its delete" in found.verdict.sentence


def test_a_row_that_changes_while_it_is_traced_is_never_different(traced: Traced) -> None:
    p = traced.pipe

    def write(ended: Any) -> None:
        number = 0
        while not ended.wait(0.02):
            number += 1
            p.sql(f"UPDATE DB.t SET name = 'w{number}' WHERE id = 6")

    states = set()
    with beside(write):
        for _ in range(6):
            states.add(traced.one("6").verdict.state)
            p.round()
    p.catch_up()

    assert states <= {
        TraceState.MERGED,
        TraceState.IN_TOPIC,
        TraceState.LANDED_NOT_MERGED,
        TraceState.IN_FLIGHT,
    }
    assert traced.one("6").verdict.state is TraceState.MERGED


def test_an_older_version_of_the_mirror_is_shown_beside_it(traced: Traced) -> None:
    p, before = traced.pipe, datetime.now(UTC)
    p.sql("UPDATE DB.t SET name = 'newer' WHERE id = 7")
    p.catch_up()

    found = traced.one("7", at=before)

    assert isinstance(found.before, MirrorLook)
    assert isinstance(found.mirror, MirrorLook)
    assert found.before.row is not None
    assert found.mirror.row is not None
    assert (found.before.row["name"], found.mirror.row["name"]) == ("a", "newer")
    assert found.before.version < found.mirror.version


def test_a_source_that_is_silent_hides_no_other_hop(traced: Traced) -> None:
    gone = replace(traced.source, port=1)
    request = TraceRequest(traced.table("t"), "8", wait=NO_WAIT)

    (found,) = traced.tracer(gone).trace(request).traces

    assert isinstance(found.source, Missing)
    assert found.verdict.state is TraceState.UNDECIDED
    assert found.verdict.sentence.startswith("source did not answer: ")
    assert isinstance(found.mirror, MirrorLook)
    assert found.mirror.row is not None
    assert not isinstance(found.changes, Missing)
    assert [one.op for one in found.changes] == ["r", "settle"]


def test_a_refused_record_is_found_by_its_key(traced: Traced) -> None:
    """The last: its table stays blocked."""
    p = traced.pipe
    silently(p, "INSERT INTO DB.t VALUES (200, 'refused', NULL, NULL)")
    key = {"schema": None, "payload": {"id": 200}}
    producer = KafkaProducer(bootstrap_servers=p.servers.kafka.bootstrap)
    sent = producer.send(
        f"{p.name}.{p.name}.t",
        key=json.dumps(key).encode(),
        value=json.dumps({"payload": {"op": "c", "after": {"id": 200}, "source": 7}}).encode(),
    )
    sent.get(timeout=30)
    producer.close()
    p.until(lambda: bool(p.lane.checkpoint.quarantine))

    found = traced.one("200")

    assert found.verdict.state is TraceState.QUARANTINED, found.verdict
    assert not isinstance(found.refused, Missing)
    assert len(found.refused) == 1


def _records(p: Pipe) -> Iterator[Any]:
    return records(p.servers.kafka.bootstrap, f"{p.name}.{p.name}.t")
