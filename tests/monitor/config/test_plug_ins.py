from pathlib import Path

import pytest

from monitor.config.file import load_config, parse_config
from monitor.config.sections import plugin_faults
from pipeline.errors import ConfigError
from tests.monitor.config.plain import without_place
from tests.monitor.config.test_config import MINIMAL, PLACE


def faults(text: str) -> list[str]:
    with pytest.raises(ConfigError) as told:
        parse_config(text, PLACE, plugin_faults)
    return [without_place(line) for line in str(told.value).splitlines()]


def test_a_source_names_only_plug_ins_that_can_be_built() -> None:
    source = "    kind: mysqll\n    format: avro\n    format_options: {a: 1}\n"
    text = MINIMAL.replace("{url:", "{kind: debezium, url:") + source

    assert [line.partition(";")[0] for line in faults(text)] == [
        "sources[0].kind: no source 'mysqll' in pipeline/sources",
        "sources[0].collector.kind: no collector 'debezium' in pipeline/collectors",
        "sources[0].format: no format 'avro' in pipeline/formats",
    ]


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        pytest.param(
            "prefix: shop",
            "prefix: shop\n    format_options: {registry: x}",
            "sources[0].format_options.registry: unknown key; known: unavailable",
            id="a format's option",
        ),
        pytest.param(
            "connector: shop}",
            "connector: shop, options: {pace: 3}}",
            "sources[0].collector.options.pace: unknown key; known: settings, timeout",
            id="a collector's option",
        ),
        pytest.param(
            "http://127.0.0.1:8083",
            "127.0.0.1:8083",
            "sources[0].collector.url: '127.0.0.1:8083' is no address; write http://host:port",
            id="an address without a scheme",
        ),
        pytest.param(
            "http://127.0.0.1:8083",
            "http://",
            "sources[0].collector.url: 'http://' is no address; write http://host:port",
            id="a scheme without an address",
        ),
    ],
)
def test_what_a_plug_in_refuses_is_told_in_its_place(old: str, new: str, line: str) -> None:
    assert faults(MINIMAL.replace(old, new)) == [line]


def test_what_cannot_be_built_is_told_together_with_what_is_wrong_otherwise() -> None:
    text = MINIMAL.replace("prefix: shop", "prefix: shop\n    format: avro") + "time_zone: UTC\n"

    first, second = faults(text.replace("9092", "many"))

    assert first.startswith("kafka: ")
    assert second.startswith("sources[0].format: ")


def test_who_only_wants_to_read_the_file_is_not_kept_waiting_for_plug_ins(tmp_path: Path) -> None:
    place = tmp_path / "sluice.yaml"
    place.write_text(MINIMAL.replace("prefix: shop", "prefix: shop\n    format: avro"))

    assert load_config(place).sources[0].format == "avro"
