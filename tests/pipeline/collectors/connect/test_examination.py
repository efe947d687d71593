"""A connector is ruled whole: its state, its settings, its producer's, and what it captures."""

import pytest

from demo.debezium import MYSQL_LOSSLESS
from pipeline.collectors.collector import CollectorExamination, CollectorState
from pipeline.collectors.connect.collector import examine_connector
from pipeline.settings import CollectorSettings, MirrorSettings, SourceSettings

GOOD = {**MYSQL_LOSSLESS, "topic.prefix": "shop"}
WORKER = {"offset.flush.interval.ms": "1000"}
RUNNING = CollectorState("running")
COLLECTOR = CollectorSettings("http://connect:8083", "shop-1")
SETTINGS = SourceSettings("shop", "localhost", 3306, "sluice", COLLECTOR, "shop")


def test_a_connector_that_is_set_up_well_has_nothing_to_put_right() -> None:
    assert examine_connector(SETTINGS, RUNNING, GOOD, WORKER) == CollectorExamination(
        largest=1_048_576
    )


def test_what_a_mirror_puts_before_the_prefix_is_not_the_connectors() -> None:
    mirror = MirrorSettings("there:9092", "http://mirror:8083", "mirror", alias="there")
    source = SourceSettings(
        "shop", "localhost", 3306, "sluice", COLLECTOR, prefix="there.shop", mirrored=mirror
    )

    assert examine_connector(source, RUNNING, GOOD, WORKER).findings == ()


@pytest.mark.parametrize(
    ("state", "config", "code"),
    [
        pytest.param(CollectorState("failed", "oh"), {}, "state", id="state"),
        pytest.param(RUNNING, {"skipped.operations": "t"}, "skipped.operations", id="setting"),
        pytest.param(RUNNING, {"producer.override.retries": "0"}, "retries", id="producer"),
        pytest.param(RUNNING, {"table.include.list": "x.y"}, "heartbeat_captured", id="heartbeat"),
    ],
)
def test_each_part_is_ruled(state: CollectorState, config: dict[str, str], code: str) -> None:
    found = examine_connector(SETTINGS, state, {**GOOD, **config}, WORKER).findings

    assert [(one.code, one.where) for one in found] == [(code, "collector:shop")]


def test_a_connector_that_does_not_run_is_told_with_the_call_that_starts_it() -> None:
    (found,) = examine_connector(SETTINGS, CollectorState("paused"), GOOD, WORKER).findings

    assert found.what == "connector shop-1 is paused"
    assert found.fix == "POST /connectors/shop-1/restart?includeTasks=true"


def test_its_history_is_to_be_kept_and_keys_of_its_own_are_told() -> None:
    told = {"schema.history.internal.kafka.topic": "h", "message.key.columns": "a.b:c"}

    found = examine_connector(SETTINGS, RUNNING, {**GOOD, **told}, WORKER)

    assert (found.kept_topic, found.own_keys) == ("h", True)


@pytest.mark.parametrize(
    ("config", "worker", "size"),
    [
        pytest.param({}, {}, 1_048_576, id="Kafka's own"),
        pytest.param({}, {"producer.max.request.size": "5"}, 5, id="the worker's"),
        pytest.param(
            {"producer.override.max.request.size": "7"},
            {"producer.max.request.size": "5"},
            *(7,),
            id="the connector's",
        ),
        pytest.param(
            {"producer.override.max.request.size": "9" * 5000}, {}, 33_554_432, id="5,000 digits"
        ),
        pytest.param(
            {"producer.override.max.request.size": "99999999"}, {}, 33_554_432, id="memory"
        ),
    ],
)
def test_f140_the_largest_record_is_what_the_producer_takes(
    config: dict[str, str], worker: dict[str, str], size: int
) -> None:
    assert examine_connector(SETTINGS, RUNNING, {**GOOD, **config}, worker).largest == size
