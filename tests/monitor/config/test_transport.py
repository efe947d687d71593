import pytest

from examples.json_lines import JsonLines
from monitor.config.file import parse_config
from monitor.config.sections import plugin_faults
from pipeline.build import open_transport
from pipeline.errors import ConfigError
from pipeline.transports.kafka import KafkaTransport
from pipeline.transports.per_source import TransportsBySource
from tests.monitor.config.plain import without_place
from tests.monitor.config.test_config import MINIMAL, PLACE


def test_another_transport_needs_no_kafka() -> None:
    text = MINIMAL.replace("kafka: 127.0.0.1:9092\n", "transport: examples.json_lines\n")

    config = parse_config(text + "transport_options: {folder: /spool}\n", PLACE)

    assert config.settings.kafka_fields == {}
    assert open_transport(config.settings) == JsonLines("/spool")


@pytest.mark.parametrize(
    ("kafka", "line"),
    [
        pytest.param("", "kafka: is required; write host:port", id="no kafka"),
        pytest.param(
            "kafka: k:1\ntransport: pulsar", "transport: no transport 'pulsar' in", id="unknown"
        ),
        pytest.param(
            "transport: examples.json_lines",
            "transport_options.folder: is required",
            id="no folder",
        ),
        pytest.param(
            "kafka: k:1\ntransport_options: {timeout: soon}",
            "transport_options.timeout: is not a duration; write it as 30s",
            id="type",
        ),
        pytest.param(
            "kafka: k:1\ntransport: examples.json_lines\ntransport_options: {folder: x}",
            "kafka: transport examples.json_lines has no use for it; remove it",
            id="a kafka beside a transport without use for it",
        ),
        pytest.param(
            "kafka_security: {protocol: SSL}\ntransport: examples.json_lines\n"
            "transport_options: {folder: x}",
            "kafka_security: has no effect without `kafka`; remove it, or set `kafka`",
            id="nothing to secure",
        ),
        pytest.param(
            "kafka: k:1\ntransport_options: {bootstrp: 'x:1'}",
            "transport_options.bootstrp: unknown key; known: timeout",
            id="no option of what stands elsewhere",
        ),
        pytest.param(
            "kafka: k:1\ntransport_options: {bootstrap: 'x:1'}",
            "transport_options.bootstrap: unknown key; known: timeout",
            id="two truths",
        ),
    ],
)
def test_a_transport_that_cannot_be_built_is_refused(kafka: str, line: str) -> None:
    with pytest.raises(ConfigError) as told:
        parse_config(MINIMAL.replace("kafka: 127.0.0.1:9092", kafka), PLACE, plugin_faults)

    assert without_place(str(told.value)).startswith(line)


OWN = """    transport: examples.json_lines
    transport_options: {folder: /spool}
"""


def test_a_source_may_have_a_transport_of_its_own_beside_kafka() -> None:
    second = MINIMAL.partition("sources:\n")[2].replace("shop", "logs")

    config = parse_config(f"{MINIMAL}{second}{OWN}", PLACE, plugin_faults)

    made = open_transport(config.settings)
    assert isinstance(made, TransportsBySource)
    assert [one.transport for one in made.own] == [JsonLines("/spool")]
    assert [made.own[0].holds(one) for one in ("logs", "logs.d.t", "shop")] == [True, True, False]
    assert isinstance(made.usual, KafkaTransport)


def test_no_kafka_is_needed_where_every_source_has_its_own() -> None:
    config = parse_config(
        MINIMAL.replace("kafka: 127.0.0.1:9092\n", "") + OWN, PLACE, plugin_faults
    )

    made = open_transport(config.settings)

    assert isinstance(made, TransportsBySource)
    assert made.usual is None


def test_a_transport_of_its_own_that_cannot_be_built_is_told_at_its_source() -> None:
    with pytest.raises(ConfigError) as told:
        parse_config(MINIMAL + "    transport: examples.json_lines\n", PLACE, plugin_faults)

    at = f"{PLACE}:5: sources[0].transport_options.folder: is required"
    assert str(told.value).startswith(at)
