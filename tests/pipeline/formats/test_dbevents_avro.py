"""DBEvents say what their corpus says; columns are merged in the version that each has."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import ConfigError, FormatError
from pipeline.formats.dbevents_avro import DbEventsAvro, EventShape, decode_change
from pipeline.formats.dbevents_avro import describe_table as table
from pipeline.model import Ordering
from pipeline.schema.model import Notation
from pipeline.settings import RegistrySettings
from tests.pipeline.corpus import CORPUS as FOLDER
from tests.pipeline.formats.avro_writer import record
from tests.pipeline.formats.batches import batch, told
from tests.pipeline.formats.dbevents_writer import METADATA, NUMBER, SCHEMA, Event

REGISTRY = RegistrySettings("http://registry")
FORMAT = DbEventsAvro(REGISTRY)
TOPIC = "dbevents.rides.trips"
TEXT = json.dumps(SCHEMA)
SCHEMAS: dict[int, str | None] = {NUMBER: TEXT, **dict.fromkeys((1, 5, 6, 77, 2**31 - 1))}
ROWS = st.fixed_dictionaries(
    {
        "id": st.none() | st.integers(-(2**63), 2**63 - 1),
        "note": st.none() | st.text(max_size=9),
        "tags": st.none() | st.lists(st.text(max_size=3), max_size=3),
    }
)


def decode_events(
    *events: Event, form: DbEventsAvro = FORMAT, topic: str = TOPIC
) -> list[dict[str, Any]]:
    return told(form.decode(batch([(None, one.value, topic) for one in events]), SCHEMAS))


def changed(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in rows if row["schema_id"] is None]


def test_the_corpus_is_written_in_the_schema_that_is_kept_beside_it() -> None:
    kept = json.loads((FOLDER / "dbevents_avro" / "schemas.json").read_text("utf-8"))

    assert kept == {str(NUMBER): TEXT}


@given(ROWS)
def test_a_whole_row_comes_back_as_it_was_sent(row: dict[str, Any]) -> None:
    (found,) = changed(decode_events(Event("k", 5, row)))

    after = json.loads(found["after"])
    assert {name: after[name] for name in row} == row
    assert (after["row_key"], after["hadoop_metadata"]["data_center"]) == ("k", "dca1")
    assert (found["op"], found["changed"], found["pos"]) == ("u", None, 5)


def test_columns_of_a_lower_version_tell_it_beside_the_row() -> None:
    event = Event("k", 9, {"id": 1, "fare": 2.5, "note": "n"}, [(9, ["note"]), (7, ["id", "fare"])])

    (found,) = changed(decode_events(event))

    assert (found["log"], found["pos"]) == (0, 9)
    names = ["row_key", "hadoop_metadata", "note", "id", "fare", "_column_versions"]
    assert found["changed"] == names
    after = json.loads(found["after"])
    assert list(after) == names
    assert after["_column_versions"] == {"id": 7, "fare": 7}


def test_columns_that_did_not_change_are_named_beside_those_that_did() -> None:
    event = Event("k", 9, {"id": 1, "fare": 2.5, "note": "n"}, [(9, ["note"])])

    (found,) = changed(decode_events(event))

    assert "fare" not in found["after"]
    assert {"id", "fare"} <= {*found["left_out"]}
    assert not {*found["left_out"]} & {*found["changed"]}


def test_a_column_that_is_named_twice_has_its_newest_version() -> None:
    event = Event("k", 9, {"id": 1}, [(9, ["id"]), (7, ["id"])])

    (found,) = changed(decode_events(event))

    assert (found["pos"], "_column_versions" in found["changed"]) == (9, False)


def test_an_event_stands_at_its_own_version_though_all_its_columns_are_older() -> None:
    (found,) = changed(decode_events(Event("k", 9, {"id": 1}, [(7, ["id", "hadoop_metadata"])])))

    assert found["pos"] == 9
    assert json.loads(found["after"])["_column_versions"] == {"id": 7}


def test_what_another_sending_tells_otherwise_is_not_kept_where_the_settings_name_it() -> None:
    form = DbEventsAvro(REGISTRY, changing=("data_center", "timestamp"))
    event = Event("k", 9, {"id": 1}, [(7, ["id"])])

    (found,), (again,) = (
        changed(decode_events(one, form=form)) for one in (event, replace(event, at=event.at + 1))
    )

    assert (found["after"], found["before"]) == (again["after"], again["before"])
    assert found["at"] < again["at"]
    kept = json.loads(found["after"])["hadoop_metadata"]
    assert (kept["ref_key"], kept["row_key"], kept["source"]) == (9, "k", "MySQL")
    assert not {"data_center", "timestamp"} & kept.keys()
    with pytest.raises(ConfigError, match="changing: 'ref_key' identifies the row of an event"):
        DbEventsAvro(REGISTRY, changing=("ref_key",))


def test_a_column_of_the_name_that_versions_have_is_refused() -> None:
    schema = json.dumps(record("trips", _column_versions="long", hadoop_metadata=METADATA))
    shape = EventShape("rides.trips", "hadoop_metadata")
    told_ = {"ref_key": 5, "row_key": "k"}

    with pytest.raises(FormatError, match="a column of it is named _column_versions"):
        decode_change(json.dumps({"_column_versions": 1, "hadoop_metadata": told_}).encode(), shape)
    assert table(schema, shape) is not None


def test_a_key_of_columns_is_theirs_if_the_settings_say_so() -> None:
    form = DbEventsAvro(REGISTRY, keys={r"rides\..*": ("id", "note")})

    found = decode_events(Event("k", 5, {"id": 7, "note": "n"}), form=form)

    assert [one["key_values"] for one in changed(found)] == ['["7","n"]']
    (columns,) = form.schema_change(found[0]["after"]).tables
    assert columns.key == ("id", "note")
    assert "row_key" not in [one.name for one in columns.columns]


def test_the_schema_tells_the_columns_before_the_first_row() -> None:
    found = decode_events(Event("k", 5, {}), Event("k", 6, {}))

    assert [one["op"] for one in found] == ["ddl", "u", "u"]
    (columns,) = FORMAT.schema_change(found[0]["after"]).tables
    assert FORMAT.columns_payload(columns) == found[0]["after"]
    assert columns.key == ("row_key",)
    assert {one.name: (one.type, one.nullable) for one in columns.columns} == {
        "id": ("BIGINT", True),
        "fare": ("DOUBLE", True),
        "note": ("LONGTEXT", True),
        "raw": ("LONGBLOB", True),
        "tags": ("JSON", True),
        "hadoop_metadata": ("JSON", False),
        "row_key": ("LONGTEXT", False),
        "_column_versions": ("JSON", True),
    }
    assert {one.notation for one in columns.columns} == {Notation.PLAIN}


@pytest.mark.parametrize("schema", ["", "[]", '"long"', '{"type":"record"}', '{"fields":[1]}'])
def test_what_is_no_record_tells_no_columns(schema: str) -> None:
    assert table(schema, EventShape("rides.trips", "hadoop_metadata")) is None


def test_a_topic_of_another_name_is_no_tables() -> None:
    (found,) = decode_events(Event("k", 5, {}), topic="trips")

    assert (found["op"], found["shard"]) == ("error", None)
    assert found["error"] == "the topic's name is not PREFIX.DATABASE.TABLE"


def test_it_goes_by_the_reference_key_and_asks_the_registry() -> None:
    assert (FORMAT.ordering, FORMAT.registry) == (Ordering.SEQUENCE, REGISTRY)
    assert FORMAT.needs(batch([(None, Event("k", 1, {}).value, TOPIC)])) == {NUMBER}
    assert FORMAT.added_topics("dbevents") == ()
    with pytest.raises(FormatError):
        FORMAT.schema_change("{}")
    with pytest.raises(ConfigError, match="no regular expression"):
        DbEventsAvro(REGISTRY, keys={"(": ()})
