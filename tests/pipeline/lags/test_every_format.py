"""Whatever format a source has, each hop is a number, or says why it is not known.

What is measured rests on heartbeats, which are rows like others: a format in which their number is
not read would make every hop unknown, and nobody would know why.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

import pytest

from pipeline.formats.canal_json import CanalJson
from pipeline.formats.dbevents_avro import DbEventsAvro
from pipeline.formats.debezium_json import DebeziumJson
from pipeline.formats.format import Format
from pipeline.formats.maxwell_json import MaxwellJson
from pipeline.formats.schema_registry import SchemaRegistry
from pipeline.formats.simple_binlog import SimpleBinlog
from pipeline.lags.lag import Lags, measure_lags
from pipeline.lags.samples import (
    MirrorPosition,
    Sample,
    Samples,
    SourceSamples,
    extend_batches,
    to_landed_batch,
)
from pipeline.model import Acknowledged, Fence, Hop, Missing, Shard, Stage, Table
from pipeline.settings import RegistrySettings
from tests.builders.harness import GIB4, NOW, LandingHarness
from tests.pipeline.formats.avro_writer import message
from tests.pipeline.formats.canal_writer import CanalTable
from tests.pipeline.formats.maxwell_writer import MaxwellTable
from tests.pipeline.formats.simple_binlog_writer import Collector
from tests.pipeline.registry_server import Answers
from tests.proof.rides_sender import schema

TABLE = Table("db.t", (Shard("b", "db.t"),), ("id",))
LATER = NOW + timedelta(seconds=9)
BUDGET = timedelta(minutes=1)
BEATS, ROWS = "b.sluice.heartbeat", "b.db.t"
DBEVENTS = DbEventsAvro(
    RegistrySettings("http://registry"), keys={r"sluice\.heartbeat": ("source",)}
)
Record = tuple[bytes, bytes]
T = TypeVar("T")


@dataclass(eq=False)
class FormatHarness(LandingHarness):
    """Its source ``b`` writes in the format of a test."""

    form: Format = field(default_factory=DebeziumJson)

    def format(self, name: str) -> Format:
        return self.form if name == "b" else super().format(name)


def canal(n: int) -> Record:
    beat = {"source": "b", "n": str(n)}
    table = CanalTable("sluice", "heartbeat", dict.fromkeys(beat, "varchar(9)"), ("source",))
    return b"", table.update((beat | {"n": str(n - 1)}, beat))


def maxwell(n: int) -> Record:
    beat = {"source": "b", "n": n}
    place = f"binlog.000007:{GIB4 + n}"
    table = MaxwellTable("sluice", "heartbeat", ("source",))
    key, value, _ = table.update(beat | {"n": n - 1}, beat, place)
    return key or b"", value or b""


def simple_binlog(n: int) -> Record:
    return b"", Collector(n).message("UPDATE", "sluice.heartbeat", {"source": "b", "n": n})


def dbevents(n: int, changed: Sequence[str] = ()) -> Record:
    named = [{"name": "c", "ref_key": n, "hadoop_changelog_fields": list(changed)}]
    told = {
        "row_key": "b",
        "ref_key": n,
        "changelog_columns": (1, named) if changed else (0, None),
        "source": "MySQL",
        "timestamp": n,
        "is_deleted": False,
        "error_exception": (0, None),
        "error_source_data": (0, None),
        "force_update": False,
        "data_center": "dca1",
    }
    row = {"source": "b", "n": n, "hadoop_metadata": told}
    return b"", message(8, schema("sluice.heartbeat"), row)


def debezium(n: int) -> Record:
    place = {
        "db": "sluice",
        "table": "heartbeat",
        "file": "binlog.000007",
        "pos": GIB4 + n,
        "row": 0,
    }
    row = {"source": "b", "n": n}
    value = {"before": row, "after": row, "source": place, "op": "u"}
    return b'{"source":"b"}', json.dumps(value).encode()


FORMATS = [
    pytest.param(DebeziumJson(), debezium, id="debezium_json"),
    pytest.param(CanalJson("UTC"), canal, id="canal_json"),
    pytest.param(MaxwellJson(), maxwell, id="maxwell_json"),
    pytest.param(MaxwellJson(positions=False), maxwell, id="maxwell_json by offsets"),
    pytest.param(SimpleBinlog(), simple_binlog, id="simple_binlog"),
    pytest.param(DBEVENTS, dbevents, id="dbevents_avro"),
    pytest.param(DBEVENTS, lambda n: dbevents(n, ["n"]), id="dbevents_avro, its number alone"),
]
every = pytest.mark.parametrize(("form", "beat"), FORMATS)


def harness_of(form: Format, home: Path, registry: Answers) -> FormatHarness:
    registry.schemas = {8: json.dumps(schema("sluice.heartbeat"))}
    asked = SchemaRegistry("b", RegistrySettings(registry.url)) if form is DBEVENTS else None
    return FormatHarness(home, form=form, registries={"b": asked} if asked else {})


def measured(harness: LandingHarness, acknowledged: Acknowledged | Missing, *, mirror: int) -> Lags:
    """The lags of a table nine seconds after heartbeat 2, with what has landed by now."""
    fences = tuple(Fence("b", n, NOW + timedelta(seconds=n), harness.server.head()) for n in (1, 2))
    told = acknowledged if isinstance(acknowledged, Missing) else sample(acknowledged)
    checkpoint = harness.loop.checkpoint
    return measure_lags(
        TABLE,
        Samples(
            sources={"b": SourceSamples(sample(fences), told)},
            checkpoint=sample(checkpoint),
            mirror=sample(MirrorPosition(1, mirror)),
            steps=extend_batches((), to_landed_batch(checkpoint, {"b": fences})),
        ),
        LATER,
    )


def sample(value: T) -> Sample[T]:
    return Sample(value, LATER, BUDGET)


@every
def test_each_hop_is_a_number_once_a_heartbeat_has_come_through(
    form: Format, beat: Callable[[int], Record], tmp_path: Path, registry: Answers
) -> None:
    harness = harness_of(form, tmp_path, registry)
    harness.topics.held[BEATS] = [beat(1)]
    harness.land()
    harness.topics.held[BEATS].append(beat(2))
    harness.land()
    assert harness.loop.checkpoint.heartbeats == {"b": 2}

    lags = measured(harness, harness.server.acknowledged(), mirror=0)

    assert {one.hop for one in lags.hops} == {Hop.COLLECTION, Hop.CONSUMER, Hop.MERGE}
    assert lags.total(Stage.MIRROR) == LATER - NOW - timedelta(seconds=2)


@every
def test_a_hop_that_is_not_known_says_why(
    form: Format, beat: Callable[[int], Record], tmp_path: Path, registry: Answers
) -> None:
    harness = harness_of(form, tmp_path, registry)
    harness.topics.held[BEATS] = [beat(1), beat(2)]
    harness.server.acknowledged = lambda: Missing("the connector is down")  # type: ignore[method-assign, assignment, return-value]
    harness.land()

    lags = measured(harness, Missing("the connector is down"), mirror=0)

    told = {one.hop: one.lag for one in lags.hops}
    assert all(isinstance(one, Missing) and one.why for one in told.values()), told
    assert "the connector is down" in str(told[Hop.COLLECTION])
    assert "the connector is down" in str(lags.total(Stage.MIRROR))
    assert "heartbeat 2 has landed, but its collector has not reported" in str(told[Hop.CONSUMER])
