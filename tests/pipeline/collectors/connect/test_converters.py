"""A source that is read as Avro is written as Avro, and no name is lost by it."""

from dataclasses import replace

import pytest

from pipeline.collectors.collector import CollectionScope, CollectorState
from pipeline.collectors.connect.collector import examine_connector
from pipeline.collectors.connect.config import firm_demands, required_config
from pipeline.collectors.connect.requirements import APICURIO, CONFLUENT, JSON, NAMES
from pipeline.settings import CollectorSettings, KafkaSecurity, SourceSettings

PLAIN = SourceSettings("shop", "db", 3306, "u", CollectorSettings("http://c", "shop"), "shop")
OPTIONS = {"registry": {"url": "http://registry:8081"}}
AVRO = replace(PLAIN, format="debezium_avro", format_options=OPTIONS)
AS_SENT = replace(AVRO, format_options={**OPTIONS, "unicode_names": False})


def scope(source: SourceSettings) -> CollectionScope:
    return CollectionScope(source, "kafka:9092", KafkaSecurity(), ())


def codes(source: SourceSettings, **changed: str) -> set[str]:
    """What the doctor has to say to the settings that are wanted, some of them changed."""
    config = {
        **required_config(scope(source), {}),
        **{n.replace("__", "."): v for n, v in changed.items()},
    }
    found = examine_connector(source, CollectorState("running"), config, None).findings
    return {one.code for one in found} - {"flush_unseen"}


def test_its_connector_is_printed_with_confluents_converter_and_its_registry() -> None:
    config = required_config(scope(AVRO), {})

    for side in ("key", "value"):
        assert config[f"{side}.converter"] == CONFLUENT
        assert config[f"{side}.converter.schema.registry.url"] == "http://registry:8081"
    assert config[NAMES] == config["schema.name.adjustment.mode"] == "avro_unicode"
    assert config["value.converter.ignore.default.for.nullables"] == "true"
    assert not any("schemas.enable" in name for name in config)


@pytest.mark.parametrize(
    "source",
    [
        pytest.param(PLAIN, id="JSON"),
        pytest.param(AVRO, id="Avro"),
        pytest.param(AS_SENT, id="Avro without odd names"),
    ],
)
def test_the_doctor_has_nothing_to_say_to_what_is_printed(source: SourceSettings) -> None:
    assert codes(source) == set()


@pytest.mark.parametrize(
    ("source", "changed", "told"),
    [
        pytest.param(AVRO, {"value__converter": JSON}, {"value.converter"}, id="JSON for Avro"),
        pytest.param(PLAIN, {"key__converter": CONFLUENT}, {"key.converter"}, id="Avro for JSON"),
        pytest.param(AVRO, {"key__converter": APICURIO}, set(), id="Apicurio's"),
        pytest.param(
            AVRO, {"value__converter": APICURIO}, {"value.converter"}, id="NULLs become defaults"
        ),
        pytest.param(
            AVRO,
            {"value__converter__ignore__default__for__nullables": "false"},
            {"value.converter.ignore.default.for.nullables"},
            id="NULLs become defaults of Confluent's, too",
        ),
        pytest.param(AVRO, {"field__name__adjustment__mode": "avro"}, {NAMES}, id="names get lost"),
        pytest.param(
            AS_SENT, {"field__name__adjustment__mode": "avro_unicode"}, {NAMES}, id="spelled oddly"
        ),
        pytest.param(
            PLAIN, {"field__name__adjustment__mode": "avro"}, {NAMES}, id="JSON needs none"
        ),
    ],
)
def test_another_converter_and_names_that_get_lost_are_refused(
    source: SourceSettings, changed: dict[str, str], told: set[str]
) -> None:
    assert codes(source, **changed) == told
    if told == {NAMES}:
        (demand,) = (one for one in firm_demands(scope(source), {}) if one.name == NAMES)
        assert not demand.met(changed["field__name__adjustment__mode"])
