"""What Debezium's messages become: the corpus, names of every kind, and whole batches."""

import json
import tracemalloc
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from pipeline.errors import FormatError
from pipeline.formats.debezium import batch as messages_of_a_batch
from pipeline.formats.debezium import envelope
from pipeline.formats.debezium.mysql import MYSQL
from pipeline.formats.debezium_json import FORMAT, DebeziumJson
from pipeline.formats.format import DECODED, LONG_NAME, build_batch
from pipeline.model import Op, Ordering
from tests.pipeline.corpus import Message, messages
from tests.pipeline.formats.batches import Raw, at_once, batch, one_by_one, told

CORPUS = messages("debezium_json")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# What the corpus says of the messages as Spark read them, and what is true of them as they are.
OTHERWISE: dict[str, dict[str, Any]] = {
    "rows: text of numbers": {
        "after": '{"i":123456789012345678901234567890,"d":1.10,"e":1e5,"s":0.0001,"h":1e400,'
        '"m":-0,"n":-0.0,"q":12345678.9,"t":1e22,"u":0.001,"l":-1e-7,"x":9999999.0,"y":10000000.0}'
    },
    "garbage: a number of 1,200 digits": {"op": "error", "error": envelope.UNKNOWN_KIND},
    "garbage: tableChanges as object": {"op": "c", "error": None},
    "garbage: tableChanges of texts": {"op": "c", "error": None},
}
SOURCE = {"db": "d", "table": "t", "file": "binlog.000003", "pos": 157, "row": 0}


def raw(message: Message) -> Raw:
    return message.key, message.value, message.topic


def change_message(**fields: Any) -> bytes:
    return json.dumps({"op": "c", "after": {"id": 1}, "source": SOURCE, **fields}).encode()


def one(value: bytes | None, key: bytes | None = b'{"id":1}', topic: str = "p.d.t") -> Any:
    """The change of one message, which may tell columns first; alone and in a batch the same."""
    found = at_once([(key, value, topic)])
    assert found == one_by_one([(key, value, topic)])
    assert [change["op"] for change in found[:-1]] in ([], ["ddl"])
    return found[-1]


@pytest.mark.parametrize("message", CORPUS, ids=lambda m: m.id)
def test_a_message_becomes_what_the_corpus_says(message: Message) -> None:
    expected = OTHERWISE.get(message.id, message.expect)

    found = one(message.value, message.key, message.topic)

    plain = {
        **found,
        "at": None if found["at"] is None else (found["at"] - EPOCH) // timedelta(microseconds=1),
        "tx": None if found["tx"] is None else list(found["tx"].values()),
    }
    assert {field: plain[field] for field in expected} == {
        field: message.value if field == "raw" else value for field, value in expected.items()
    }
    assert (found["error"] is not None) == (found["op"] == Op.ERROR)


def test_the_connectors_own_schema_history_changes_nothing() -> None:
    """Its topic may lie below the prefix; the schema-change topic tells the same, with a place."""
    told = {
        "source": {"server": "p"},
        "position": {"file": "binlog.000003", "pos": 157, "snapshot": True},
        "ts_ms": 1_000,
        "databaseName": "d",
        "ddl": "CREATE TABLE t (id INT PRIMARY KEY)",
        "tableChanges": [{"type": "CREATE", "id": '"d"."t"', "table": {"columns": []}}],
    }

    found = one(json.dumps(told).encode(), key=None, topic="p.schema-history")
    lost = one(json.dumps({**told, "position": None}).encode(), key=None, topic="p")

    assert (found["op"], found["shard"], found["error"]) == (Op.HEARTBEAT, None, None)
    assert (lost["op"], lost["error"]) == (Op.ERROR, MYSQL.no_position)


def test_the_whole_corpus_in_one_batch_keeps_its_order_and_spoils_nothing() -> None:
    corpus = [raw(message) for message in CORPUS]

    found = at_once(corpus)

    assert found == one_by_one(corpus)
    no_columns = [row for row in found if row["schema_id"] is None]
    assert [row["message"] for row in no_columns] == list(range(len(corpus)))


def test_an_odd_message_spoils_no_other() -> None:
    fine: Raw = (b'{"id":1}', change_message(), "p.d.t")
    odd: Raw = (b'{"id":1}', b'{"op":"c","after":{"id":1', "p.d.t")

    found = at_once([fine, odd, fine, (None, None, "p.d.t"), fine])

    assert [row["op"] for row in found] == ["c", "error", "c", "tombstone", "c"]


@pytest.mark.parametrize(
    "row",
    [
        pytest.param('{"n":1.10,"m":1e5,"z":-0}', id="figures of numbers"),
        pytest.param('{ "a" : [ 1 , 2 ] }', id="blanks"),
        pytest.param('{"a":"\\u00e9\\/\\ud83d\\ude00"}', id="escapes"),
        pytest.param('{"a":"é😀\x7f"}', id="letters"),
        pytest.param('{"a":1,"a":2}', id="doubled names"),
        pytest.param('{"a":"b\\\\,c"}', id="a backslash before a comma, as it came"),
        pytest.param('{"a":' + "9" * 5000 + "}", id="a number of 5,000 digits"),
        pytest.param('{"a":' + "[" * 300 + "]" * 300 + "}", id="300 levels"),
        pytest.param('{"a":"\\ud800"}', id="half a pair"),
    ],
)
def test_a_row_stays_as_it_was_sent(row: str) -> None:
    value = f'{{"op":"u","before":{row},"after":{row},"source":{json.dumps(SOURCE)}}}'

    found = one(value.encode())

    assert (found["op"], found["before"], found["after"]) == ("u", row, row)


@pytest.mark.parametrize(("op", "kind"), [("c", "c"), ("m", "error")])
def test_an_operation_is_looked_at_before_anything_else(op: str, kind: str) -> None:
    both = change_message(op=op, status="END", id="g:1", ddl="DROP TABLE t")

    found = at_once([(None, both, "p.d.t"), (None, b"", "p.d.t")])

    assert [row["op"] for row in found] == [kind, "error"]
    assert one(both)["op"] == kind


@pytest.mark.parametrize(
    ("its", "own", "micros"),
    [
        pytest.param({"ts_us": 5, "ts_ms": 7}, 9, 5, id="microseconds of the source"),
        pytest.param({"ts_ms": 7}, 9, 7_000, id="its milliseconds"),
        pytest.param({}, 9, 9_000, id="the envelope's milliseconds"),
        pytest.param({}, None, None, id="none"),
        pytest.param({"ts_ms": -7}, 9, None, id="before 1970"),
        pytest.param({"ts_ms": 2**63 - 1}, 9, None, id="in no calendar"),
        pytest.param({"ts_us": 5, "ts_ms": 2**63}, 2**63, 5, id="what is not needed is not asked"),
        pytest.param({"ts_us": envelope.END_OF_TIME - 1}, 9, envelope.END_OF_TIME - 1, id="last"),
        pytest.param({"ts_ms": envelope.END_OF_TIME // 1000}, 9, None, id="the year 10000"),
    ],
)
def test_a_time_is_the_most_exact_there_is(
    its: dict[str, int], own: int | None, micros: int | None
) -> None:
    found = one(change_message(source={**SOURCE, **its}, ts_ms=own))

    assert found["at"] == (None if micros is None else EPOCH + timedelta(microseconds=micros))


@pytest.mark.parametrize(
    "long",
    [
        pytest.param(change_message(source={**SOURCE, "pos": 2**63}), id="position"),
        pytest.param(change_message(source={**SOURCE, "ts_us": -(2**63) - 1}), id="time"),
        pytest.param(change_message(transaction={"id": "g:1", "total_order": 2**64}), id="place"),
        pytest.param(
            b'{"status":"END","id":"g:1","ts_ms":9223372036854775808,"source":{"ts_us":5}}',
            id="time of an end, beside one that is read",
        ),
    ],
)
def test_an_integer_that_is_too_long_spoils_its_message_and_no_other(long: bytes) -> None:
    plain = change_message(source={**SOURCE, "ts_us": 5})
    messages = [(b'{"id":1}', value, "p.d.t") for value in (plain, long, plain)]

    found = at_once(messages)

    assert [row["op"] for row in found] == ["c", "error", "c"]
    assert found == one_by_one(messages)


@pytest.mark.parametrize(
    ("database", "table", "shard"),
    [
        pytest.param("d", "t", "d.t", id="plain"),
        pytest.param("my.db", "t.x", '"my.db"."t.x"', id="dots"),
        pytest.param("s", 'we"ird', 's."we""ird"', id="a quote"),
    ],
)
def test_f05_a_row_of_an_oddly_named_table_has_the_canonical_shard(
    database: str, table: str, shard: str
) -> None:
    found = one(change_message(source={**SOURCE, "db": database, "table": table}))

    assert found["shard"] == shard


@pytest.mark.parametrize(
    ("connector", "longest", "limit"),
    [("mysql", "\u8868" * 64, "64 characters"), ("postgresql", "\u8868" * 21, "63 bytes")],
    ids=["MySQL", "Postgres"],
)
@pytest.mark.parametrize("part", ["db", "table"])
def test_a_name_that_no_table_can_have_is_an_error(
    connector: str, longest: str, limit: str, part: str
) -> None:
    source = {**SOURCE, "connector": connector, "schema": "s", "lsn": 9, "sequence": '["1","9"]'}
    field = "schema" if part == "db" and connector == "postgresql" else part

    assert one(change_message(source={**source, field: longest}))["op"] == "c"
    for name in (longest + "x", longest * 10_000):
        found = one(change_message(source={**source, field: name}))
        assert (found["op"], found["shard"]) == ("error", None)
        assert limit in found["error"]


def test_a_schema_change_of_a_name_that_no_table_can_have_is_an_error() -> None:
    table_id = f'"d"."{"x" * 65}"'
    source = {**SOURCE, "db": "d", "table": "t"}
    first = {"ddl": "DROP TABLE t", "source": source, "tableChanges": [{"id": table_id}]}
    other = {"ddl": "x", "tableChanges": [{"type": "DROP", "id": table_id}]}

    found = one(json.dumps(first).encode())

    assert (found["op"], found["shard"], found["error"]) == ("error", None, LONG_NAME)
    with pytest.raises(FormatError, match=LONG_NAME):
        DebeziumJson().schema_change(json.dumps(other))


@pytest.mark.parametrize(
    ("table_id", "told", "shard"),
    [
        pytest.param('"s"."t"', {}, "s.t", id="plain"),
        pytest.param('"my.db"."t.x"', {}, '"my.db"."t.x"', id="dots"),
        pytest.param('"s"."we""ird/../<b>"', {}, 's."we""ird/../<b>"', id="a quote inside"),
        pytest.param(
            '"s".end"', {"db": "s", "table": 'end"'}, 's."end"""', id="a quote at the end, told"
        ),
        pytest.param(
            '"s"."odd"', {"db": "s", "table": '"odd"'}, 's."""odd"""', id="quotes around, told"
        ),
        pytest.param('"s"."b"', {"db": "s", "table": "a,b"}, "s.b", id="one of several"),
        pytest.param('"s".end"', {"db": "s", "table": 'a,end"'}, None, id="not to be told"),
        pytest.param('"s"', {}, None, id="one name"),
        pytest.param('"a"."b"."c"', {}, None, id="three names"),
        pytest.param(5, {}, None, id="a number"),
        pytest.param(None, {}, None, id="none"),
    ],
)
def test_f05_a_schema_change_names_its_shard(
    table_id: str | int | None, told: dict[str, str], shard: str | None
) -> None:
    source = {**SOURCE, "db": None, "table": None, **told}
    value = {"ddl": "DROP TABLE t", "source": source, "tableChanges": [{"id": table_id}]}

    found = one(json.dumps(value).encode())

    assert (found["op"], found["shard"]) == ("ddl", shard)


def test_a_schema_change_with_half_a_pair_in_its_name_is_still_text() -> None:
    value = b'{"ddl":"x","source":%s,"tableChanges":[{"id":"\\"a\\".\\"\\ud800\\""}]}'

    assert one(value % json.dumps(SOURCE).encode())["shard"] == "a.?"


@pytest.mark.parametrize("changes", ["{}", "true", "5", '["x"]', '[null,"x"]', '"x"'])
def test_table_changes_of_a_wrong_kind_are_an_error(changes: str) -> None:
    value = f'{{"ddl":"x","source":{json.dumps(SOURCE)},"tableChanges":{changes}}}'

    assert one(value.encode())["error"] == envelope.BAD_VALUE


@pytest.mark.parametrize(
    ("key", "values"),
    [
        pytest.param('{"id":17}', '["17"]', id="one integer"),
        pytest.param('{"id":-17}', '["-17"]', id="below zero"),
        pytest.param('{"id":-0}', '["0"]', id="no zero is below zero"),
        pytest.param('{"id":18446744073709551616}', '["18446744073709551616"]', id="65 bits"),
        pytest.param('{"a":1,"b":"x","c":true,"d":null}', '["1","x","true",null]', id="of four"),
        pytest.param('{"a":"b:\\"c\\":1","d":"e"}', '["b:\\"c\\":1","e"]', id="quotes in a text"),
        pytest.param('{"a":":5","b":6}', '[":5","6"]', id="a colon begins a text"),
        pytest.param('{"a":"","b":1}', '["","1"]', id="an empty text"),
        pytest.param('{"a:b":1}', '["1"]', id="a colon in a name"),
        pytest.param('{"a":1,"a":2}', '["1","2"]', id="a doubled name"),
        pytest.param('{ "a" : 1 }', '["1"]', id="blanks"),
        pytest.param('{"a":1.50}', '["1.5"]', id="a fraction is canonical"),
        pytest.param('{"a":{"b":"c"}}', '["{\\"b\\":\\"c\\"}"]', id="an object"),
        pytest.param('{"é":"é😀"}', '["é😀"]', id="letters"),
        pytest.param('{"schema":{},"payload":{"id":1}}', '["1"]', id="wrapped"),
        pytest.param('{"schema":{},"payload":{"id":"{"}}', '["{"]', id="wrapped, a brace in it"),
        pytest.param('{"payload":{"id":1},"schema":{}}', None, id="wrapped the other way"),
        pytest.param('{"schema":"s","payload":"{\\"a\\":1}"}', None, id="columns so named"),
        pytest.param('{"x":1,"payload":{"id":1}}', None, id="half wrapped"),
        pytest.param("{}", None, id="empty"),
        pytest.param('{"schema":{},"payload":{}}', None, id="wrapped, empty"),
    ],
)
def test_key_values_are_texts(key: str, values: str | None) -> None:
    found = one(change_message(), key.encode())["key_values"]

    assert found == values or (values is None and envelope.read_key(key.encode()))
    assert found == envelope.write_key(envelope.read_key(key.encode()) or ())


@pytest.mark.parametrize(
    "key",
    [
        pytest.param(b"[17]", id="a list"),
        pytest.param(b'["17"]', id="a list of texts"),
        pytest.param(b'{"id":1}x}', id="something behind"),
        pytest.param(b'{"id":1}{"id":2}', id="an object behind"),
        pytest.param(b'{"id":\xff}', id="no text"),
        pytest.param(b'{"id":%s}' % (b"9" * 1001), id="a number of 1,001 digits"),
        pytest.param(b'{"a":' * 600 + b"1" + b"}" * 600, id="600 levels"),
        pytest.param(b'{"schema":{},"payload":{"id":1}', id="wrapped, cut off"),
        pytest.param(b'{"schema":{},"payload":{"id":1}x', id="wrapped, a letter for a brace"),
    ],
)
def test_a_broken_key_is_an_error_of_its_message(key: bytes) -> None:
    found = one(change_message(), key)

    assert (found["error"], found["raw"], found["key_values"]) == (
        envelope.BAD_KEY,
        change_message(),
        None,
    )


def test_messages_without_any_odd_one_never_ask_the_exact_decoder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    usual: list[Raw] = [
        (b'{"id":1}', change_message(), "p.d.t"),
        (
            b'{"a":1,"b":"x"}',
            change_message(op="r", source={**SOURCE, "snapshot": "last"}),
            "p.d.t",
        ),
        (b'{"id":1}', change_message(op="d", before={"id": 1}, after=None), "p.d.t"),
        (b'{"id":1}', None, "p.d.t"),
        (None, change_message(op="t", after=None), "p.d.t"),
        (
            b'{"schema":{},"payload":{"id":1}}',
            b'{"schema":{},"payload":%s}' % change_message(),
            "p.d.t",
        ),
        (b'{"id":"g:1"}', b'{"status":"BEGIN","id":"g:1","ts_ms":1}', "p.transaction"),
        (None, b'{"schema":{},"payload":{"status":"END","id":"g:1"}}', "p.transaction"),
    ]
    exact = one_by_one(usual)
    monkeypatch.setattr(envelope, "decode_message", _refuse)

    assert at_once(usual) == exact


SPACED = pytest.mark.parametrize(
    ("key", "values"),
    [
        pytest.param('{"id": 17}', '["17"]', id="a blank"),
        pytest.param(' \t{\r\n"id"\n:\t17 }\n', '["17"]', id="blanks of every kind"),
        pytest.param('{"a": "x  y", "b": null}', '["x  y",null]', id="blanks in a text"),
        pytest.param('{"a": "b, c", "d": ", :5"}', '["b, c",", :5"]', id="signs in a text"),
        pytest.param('{"a b": 1,"a b" :2}', '["1","2"]', id="a doubled name with a blank"),
        pytest.param('{"id": -0}', '["0"]', id="no zero is below zero"),
        pytest.param('{"a": 1.50, "b": 1e2}', '["1.5","100.0"]', id="fractions"),
        pytest.param('{"a": "\\u0031", "b": "\\/"}', '["1","/"]', id="escapes"),
        pytest.param('{"\\u0061": 1}', '["1"]', id="an escape in a name"),
        pytest.param('{"a:b": 1}', '["1"]', id="a colon in a name"),
        pytest.param('{"a": {"b": [1, 2]}}', '["{\\"b\\":[1,2]}"]', id="an object"),
        pytest.param('{"a": "\u00a0\u2028"}', '["\u00a0\u2028"]', id="blanks that JSON has not"),
        pytest.param('{ "schema": {}, "payload": {"id": 1} }\n', '["1"]', id="wrapped"),
        pytest.param('{"schema": {},"payload": {"a": "}"} }', '["}"]', id="wrapped, a brace"),
        pytest.param('{"x": 1, "payload": {"id": 1}}', '["1","{\\"id\\":1}"]', id="half wrapped"),
        pytest.param("{ }", None, id="empty"),
        pytest.param('{"schema": {}, "payload": {}}', None, id="wrapped, empty"),
    ],
)


@SPACED
@pytest.mark.parametrize("others", [[], [b'{"id":1}', None]], ids=["alone", "among others"])
def test_f145_a_valid_key_of_any_spelling_stays_on_the_fast_path(
    monkeypatch: pytest.MonkeyPatch, key: str, values: str | None, others: list[bytes | None]
) -> None:
    sent: list[Raw] = [(one, change_message(), "p.d.t") for one in (*others, key.encode())]
    exact = one_by_one(sent)
    monkeypatch.setattr(envelope, "decode_message", _refuse)

    found = at_once(sent)

    assert found == exact
    assert found[-1]["key_values"] == values


@pytest.mark.parametrize(
    "key",
    [
        pytest.param('{"id": 1 2}', id="two numbers"),
        pytest.param('{"id": - 1}', id="a sign apart from its number"),
        pytest.param('{"id": tr ue}', id="a word in two"),
        pytest.param('{"id": 01}', id="a zero in front"),
        pytest.param('{"a": "b" "c"}', id="two texts"),
        pytest.param('{"a": 1, }', id="a comma too many"),
        pytest.param('{"a": 1 "b": 2}', id="a comma too few"),
        pytest.param('{"a": "b\tc"}', id="a tab in a text"),
        pytest.param('{"a":\u00a01}', id="a blank that JSON has not"),
        pytest.param('{"a":\x0b1}', id="a vertical tab"),
        pytest.param('\ufeff{"a": 1}', id="a mark of byte order"),
        pytest.param('{"schema": {}, "payload": {"id": 1} } }', id="wrapped, a brace too many"),
        pytest.param('{"schema": {}, "payload": {"id": 1} x}', id="wrapped, a letter"),
        pytest.param('{"schema": {} "payload": {"id": 1}}', id="wrapped, a comma too few"),
    ],
)
def test_f145_blanks_make_no_broken_key_valid(key: str) -> None:
    found = one(change_message(), key.encode())

    assert (found["error"], found["key_values"]) == (envelope.BAD_KEY, None)


def _refuse(*_: object) -> None:
    msg = "asked for one message"
    raise AssertionError(msg)


def test_a_slice_of_a_batch_is_decoded_like_a_batch() -> None:
    corpus = [raw(message) for message in CORPUS]

    found = told(FORMAT().decode(batch(corpus).slice(70, 40), {}))

    assert found == one_by_one(corpus[70:110])


def test_an_empty_batch_is_empty() -> None:
    assert FORMAT().decode(batch([]), {}).equals(build_batch([]))
    assert build_batch([]).schema == DECODED


def test_debezium_tells_its_place_in_the_log() -> None:
    assert FORMAT().ordering is Ordering.LOG


def test_a_message_of_20_mib_is_decoded_without_holding_it_many_times() -> None:
    row = json.dumps({"id": 1, "text": "é" * (10 * 2**20)}, ensure_ascii=False)
    value = f'{{"op":"c","after":{row},"source":{json.dumps(SOURCE)}}}'.encode()
    given = batch([(b'{"id":1}', value, "p.d.t")] * 3)
    before = pa.total_allocated_bytes()
    tracemalloc.start()

    decoded = FORMAT().decode(given, {})

    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert decoded.column("after")[2].as_py() == row
    assert most < 1.5 * given.nbytes  # Python's share; Arrow's while it runs is another of 1
    assert pa.total_allocated_bytes() - before < 0.1 * given.nbytes


def test_more_text_than_a_column_holds_is_refused_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(messages_of_a_batch, "MOST", 1000)

    with pytest.raises(ValueError, match=r"20 messages hold \d+ bytes of values; split them below"):
        FORMAT().decode(batch([(None, change_message(), "p.d.t")] * 20), {})


def test_transactions_and_heartbeats_come_in_topics_of_their_own() -> None:
    assert FORMAT().added_topics("p") == ("p.transaction", "__debezium-heartbeat.p")
