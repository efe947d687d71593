"""A schema is asked for once; whatever is no answer of a registry is said, and means nothing."""

import json
import pickle
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from demo.ports import free_ports
from pipeline.errors import ConfigError, NoSchemasError
from pipeline.formats.debezium_avro import DebeziumAvro
from pipeline.formats.debezium_json import DebeziumJson
from pipeline.formats.schema_registry import SchemaRegistry, decode_with_registry
from pipeline.parallel import load_result, run_piece
from pipeline.settings import RegistrySettings
from tests.pipeline.formats.avro_writer import message, record
from tests.pipeline.formats.batches import batch
from tests.pipeline.registry_server import Answers


def client(registry: Answers, **settings: Any) -> SchemaRegistry:
    patience = timedelta(seconds=0.3) if registry.hanging else timedelta(seconds=20)
    return SchemaRegistry("shop", RegistrySettings(registry.url, timeout=patience, **settings))


def test_a_schema_is_asked_for_once_and_one_that_is_not_there_each_time(registry: Answers) -> None:
    registry.schemas = {1: '"int"', 2: '"long"'}

    for _ in range(2):
        assert client(registry).schemas([1, 2, 3]) == {1: '"int"', 2: '"long"', 3: None}

    paths = [f"/apis/ccompat/v7/schemas/ids/{number}" for number in (1, 2, 3, 3)]
    assert [path for path, _ in registry.asked] == paths


def test_one_that_is_not_lost_is_required_and_others_tell_that_the_registry_is_right(
    registry: Answers,
) -> None:
    registry.schemas = {1: '"int"'}
    strict = replace(client(registry), lost=frozenset({3}))

    with pytest.raises(NoSchemasError, match="it knows no schema 2, 3") as told:
        strict.schemas([1, 2, 3])
    assert told.value.numbers == {2, 3}
    made, given = told.value.__reduce__()
    assert made(*given).numbers == {2, 3}  # in another process
    assert strict.schemas([3]) == {3: None}
    registry.schemas = {}
    with pytest.raises(NoSchemasError, match="nor any other"):
        strict.schemas([1, 3])


def test_what_another_process_was_told_tells_that_the_registry_is_right(registry: Answers) -> None:
    registry.schemas = {1: '"int"'}
    alone = replace(client(registry), lost=frozenset({3}))

    with pytest.raises(NoSchemasError, match="nor any other"):
        alone.schemas([3])
    assert replace(alone, others=(1,)).schemas([3]) == {3: None}


def test_what_is_known_needs_nobody(registry: Answers) -> None:
    registry.schemas = {1: '"int"'}
    client(registry).schemas([1])
    registry.whole = (500, "")

    assert client(registry).schemas([1]) == {1: '"int"'}
    assert client(registry).schemas([]) == {}


@pytest.mark.parametrize(
    ("whole", "why"),
    [
        pytest.param((500, "{}"), "500; see its own log", id="broken"),
        pytest.param((503, "<html>"), "503 and no JSON", id="a proxy before it"),
        pytest.param((401, '{"error_code":401}'), "401; it needs a user or a token", id="no user"),
        pytest.param((403, "{}"), "403; it does not let this user", id="no right"),
        pytest.param((404, '{"error_code":404}'), "is its address right?", id="no such page"),
        pytest.param((404, ""), "is its address right?", id="404 without a word"),
        pytest.param((200, "[]"), "without a schema; is its address", id="a list"),
        pytest.param((200, '{"a":1}'), "without a schema", id="something else"),
    ],
)
def test_what_is_no_answer_of_a_registry_is_said(
    registry: Answers, whole: tuple[int, str], why: str
) -> None:
    registry.whole = whole

    with pytest.raises(NoSchemasError, match=r"shop: the schema registry at 127\.0") as e:
        client(registry).schemas([1])

    assert why in str(e.value)
    again = load_result(run_piece(pickle.dumps((str, e.value))))
    assert (e.value.source, again) == ("shop", str(e.value))


def test_one_that_hangs_or_is_not_there_is_said_in_time(registry: Answers) -> None:
    registry.hanging = True
    with pytest.raises(NoSchemasError, match="ReadTimeout"):
        client(registry).schemas([1])

    (free,) = free_ports(1)
    gone = replace(client(registry).settings, url=f"http://127.0.0.1:{free}")
    with pytest.raises(NoSchemasError, match="refused"):
        SchemaRegistry("shop", gone).schemas([1])


@pytest.mark.parametrize(
    ("settings", "sent"),
    [
        pytest.param({"user": "u", "password": "p"}, "Basic dTpw", id="a user"),
        pytest.param({"token": "t"}, "Bearer t", id="a token"),
        pytest.param({}, "", id="nobody"),
    ],
)
def test_it_says_who_asks(registry: Answers, settings: dict[str, str], sent: str) -> None:
    client(registry, **settings).examine()

    assert [who for _, who in registry.asked] == [sent]
    assert "password='p'" not in repr(client(registry, **settings))
    assert "token='t'" not in repr(client(registry, **settings))


def test_authorities_that_are_none_are_said(registry: Answers) -> None:
    secured = RegistrySettings(registry.url.replace("http:", "https:"), ca="/nowhere.pem")

    with pytest.raises(NoSchemasError, match=r"cannot read .*nowhere\.pem"):
        SchemaRegistry("shop", secured).schemas([1])


@pytest.mark.parametrize("url", ["", "registry:8081", "ftp://a/b", "http://", "http://a:b"])
def test_an_address_that_is_none_is_refused_by_its_place(url: str) -> None:
    with pytest.raises(ConfigError, match=r"format_options.registry.url: .* is not an address"):
        SchemaRegistry("shop", RegistrySettings(url))


def test_a_schema_that_is_not_avro_is_none_of_ours(registry: Answers) -> None:
    registry.whole = (200, json.dumps({"schema": 'syntax = "proto3"', "schemaType": "PROTOBUF"}))
    own = client(registry)

    batch_ = batch([(None, b"\0\0\0\0\1", "t")])
    (found,) = decode_with_registry(DebeziumAvro(own.settings), own, batch_).to_pylist()

    assert found["error"].startswith("value: schema 1: it is no schema of Avro")


def test_a_batch_is_decoded_with_what_it_needs(registry: Answers) -> None:
    schema = record("k", serverName="string")
    registry.schemas = {4: json.dumps(schema)}
    own = client(registry)
    sent = batch([(message(4, schema, {"serverName": "p"}), None, "t")])

    (found,) = decode_with_registry(DebeziumAvro(own.settings), own, sent).to_pylist()
    assert (found["op"], found["key_values"]) == ("tombstone", '["p"]')
    assert decode_with_registry(DebeziumJson(), None, batch([])).num_rows == 0
