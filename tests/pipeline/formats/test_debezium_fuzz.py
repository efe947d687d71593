"""A batch says what its messages say alone, valid or damaged, and nothing makes it fail."""

import json
import random
from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.formats.debezium import envelope
from pipeline.formats.debezium.connector import UNAVAILABLE
from pipeline.formats.debezium_json import FORMAT
from tests.example_count import examples
from tests.pipeline.corpus import messages
from tests.pipeline.formats.batches import Raw, at_once, batch, one_by_one

CORPUS: tuple[Raw, ...] = tuple((m.key, m.value, m.topic) for m in messages("debezium_json"))
TOPICS = ("p.d.t", "p.d", "a.b.c.d", "p..", "__debezium-heartbeat.p", 'p.d".t')
INTERESTING = (b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b"\n", b" ", b"0", b"-", b"e", b".")
TOKENS = (
    *(b"\xff", b"\xed\xa0\x80", b"\x00", b"null", b"NaN", b'"\\ud800"', b"\\u0022", b'{"a":1}'),
    *(b"9" * 25, b"1.0", b"1e5", b"-0", b"[[[[", b'"op":"c",', b'"payload":', b'"source":{},'),
    *(b"}\n{", b"} {", b"9223372036854775808", "😀".encode(), b"true", b'"":'),
)
SOURCE = b'{"db":"d","table":"t","file":"b.1","pos":1,"row":0}'
OPEN, CLOSE = b'{"op":"c","after":{}', b'"source":' + SOURCE + b"}"
INNER = OPEN[1:] + b"," + CLOSE[:-1]
ROW = b"{" + INNER + b"}"

THOROUGH = pytest.mark.thorough
NUMBERS = st.integers(-(2**64), 2**64).map(str) | st.sampled_from(
    ["0", "-0", "1.0", "1e3", "-1.50", str(2**63 - 1), str(2**63), str(-(2**63)), "1e400", "7" * 40]
)
SPELLED = st.text(max_size=8).map(json.dumps) | st.text(max_size=8).map(
    lambda text: json.dumps(text.encode("utf-8", "replace").decode(), ensure_ascii=False)
)
ODD_TEXTS = st.sampled_from(
    ['"\\ud800"', '"\\ud83d\\ude00"', '"\\/"', '"{"', '"}"', '"null"', '"a,\\"b\\":c"', '"c:"']
)
SCALARS = NUMBERS | SPELLED | ODD_TEXTS | st.sampled_from(["null", "true", "false"])
BLANK = st.sampled_from(["", "", "", " ", "\t", "\r\n"])


def spelled_name(name: str) -> st.SearchStrategy[str]:
    escaped = f'"\\u{ord(name[0]):04x}{name[1:]}"'
    return st.sampled_from([f'"{name}"'] * 8 + [escaped])


@st.composite
def spelled_object(draw: st.DrawFn, pairs: list[tuple[str, str]]) -> str:
    """An object of *pairs*, spelled with blanks, escapes, repetitions and in any order."""
    if draw(st.integers(0, 3)) == 0:
        pairs = draw(st.permutations(pairs + draw(st.lists(st.sampled_from(pairs), max_size=2))))
    spaced = draw(BLANK)
    fields = [f"{draw(spelled_name(n))}{spaced}:{spaced}{v}" for n, v in pairs]
    return f"{{{spaced}{f',{spaced}'.join(fields)}{spaced}}}"


VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda found: f"[{','.join(found)}]")
        | st.dictionaries(SPELLED, inner, max_size=3).map(
            lambda found: "{" + ",".join(f"{n}:{v}" for n, v in found.items()) + "}"
        )
    ),
    max_leaves=6,
)


def words(*some: str) -> st.SearchStrategy[str]:
    return st.sampled_from([json.dumps(word) for word in some])


LEFT_OUT = words(UNAVAILABLE, f"{UNAVAILABLE} or so") | st.sampled_from(
    [f'["{UNAVAILABLE}"]', "[95,95]", f'{{"{UNAVAILABLE}":"{UNAVAILABLE}"}}']
)
ROWS = st.dictionaries(SPELLED, VALUES | LEFT_OUT, max_size=4).map(
    lambda found: "{" + ",".join(f"{n}:{v}" for n, v in found.items()) + "}"
)


def mostly(usual: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.integers(0, 9).flatmap(lambda dice: VALUES if dice == 0 else usual)


def optional_fields(**fields: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """An object of these fields, each sometimes odd or missing."""
    return (
        st.fixed_dictionaries({}, optional={n: mostly(s) for n, s in fields.items()})
        .filter(bool)
        .flatmap(lambda found: spelled_object(list(found.items())))
    )


LONGS = st.sampled_from(["0", "4", "157", "1750000000000", "1750000000000000", "null"]) | NUMBERS
SOURCES = optional_fields(
    db=words("d", "my.db", 'q"uote', ""),
    table=words("t", "odd.name", 'we"ird', ""),
    file=words("binlog.000003", "binlog", "log.1.22", "b.1234567890123456789"),
    snapshot=words("false", "true", "last", "") | st.just("null"),
    gtid=words("g:1", "é") | st.just("null"),
    connector=words("postgresql", "postgresql", "mysql"),
    schema=words("public", "s.t", 'we"ird', ""),
    sequence=words('["1","2"]', '[null,"2"]', '["1"]', "[]", '["1234567890123456789","2"]'),
    lsn=LONGS,
    server_id=LONGS,
    pos=LONGS,
    row=LONGS,
    ts_ms=LONGS,
    ts_us=LONGS,
)
CHANGES = optional_fields(id=words('"d"."t"', '"s"."we""ird"', "d.t", '"odd"."n"')).map(
    lambda one: f"[{one}]"
)
ENVELOPES = optional_fields(
    op=words("c", "u", "d", "r", "t", "m"),
    before=ROWS | st.just("null"),
    after=ROWS | st.just("null"),
    source=SOURCES,
    transaction=optional_fields(id=words("g:1", "7:8"), total_order=LONGS) | st.just("null"),
    ts_ms=LONGS,
)
OTHERS = optional_fields(
    status=words("BEGIN", "END", "MIDDLE"), id=words("g:1", "7:9"), ts_ms=LONGS, event_count=LONGS
) | optional_fields(ddl=words("DROP TABLE t"), source=SOURCES, tableChanges=CHANGES, ts_ms=LONGS)
BARE = ENVELOPES | ENVELOPES | OTHERS
FIELDS = optional_fields(
    type=words("int32", "string", "struct"),
    field=words("id", "b", "after"),
    optional=st.sampled_from(["true", "false"]),
    name=words("io.debezium.time.Date") | st.just("null"),
    default=SCALARS,
    parameters=optional_fields(
        **{
            "__debezium.source.column.type": words("INT4", "TEXT"),
            "__debezium.source.column.length": words("10", "x"),
            "allowed": words("a,b"),
        }
    ),
)
TYPED = st.lists(FIELDS, max_size=3).map(
    lambda found: f'{{"type":"struct","field":"after","fields":[{",".join(found)}]}}'
)
SCHEMAS = st.just('{"type":"struct"}') | optional_fields(
    type=words("struct"), fields=TYPED.map(lambda one: f"[{one}]")
)
WRAPPED = st.tuples(SCHEMAS, BARE).flatmap(
    lambda pair: spelled_object([("schema", pair[0]), ("payload", pair[1])])
)
KEYS = optional_fields(id=SCALARS, b=SCALARS, serverName=words("p"))
WRAPPED_KEYS = KEYS.flatmap(lambda inner: spelled_object([("schema", "{}"), ("payload", inner)]))
CUT_KEYS = st.tuples(KEYS | WRAPPED_KEYS, st.integers(0, 99), st.integers(0, 2), BLANK).map(
    lambda it: it[0][: it[1]] + it[3] + it[0][it[1] + it[2] :]
)
PLAIN = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
    | st.sampled_from(['a,"b":', " :1", "{", "\\", "x y", "\u00a0"])
)
MESSAGES: st.SearchStrategy[Raw] = st.tuples(
    st.none() | (KEYS | WRAPPED_KEYS).map(str.encode),
    st.none() | (BARE | BARE | WRAPPED).map(str.encode),
    st.sampled_from(TOPICS),
)


@given(st.lists(MESSAGES | st.sampled_from(CORPUS), max_size=6))
def test_a_batch_says_what_its_messages_say_alone(together: list[Raw]) -> None:
    assert at_once(together) == one_by_one(together)


@given(st.lists(KEYS | WRAPPED_KEYS | CUT_KEYS, max_size=6))
def test_f145_a_column_of_keys_knows_every_valid_key_and_no_other(spellings: list[str]) -> None:
    exact = [envelope.read_key(one.encode()) for one in spellings]

    found = envelope.read_key_column(pa.array([one.encode() for one in spellings], pa.binary()))

    assert found.known.tolist() == [one is not None for one in exact]
    assert found.values.to_pylist() == [envelope.write_key(one or ()) for one in exact]


@given(st.dictionaries(st.text(max_size=4), PLAIN, min_size=1, max_size=3), st.data())
def test_f145_every_spelling_of_one_key_has_the_same_text(
    key: dict[str, object], data: st.DataObject
) -> None:
    def blank() -> str:
        return data.draw(st.text(" \t\r\n", max_size=2))

    def spell(value: object) -> str:
        text = json.dumps(value, ensure_ascii=data.draw(st.booleans()))
        return f"{blank()}{text}{blank()}"

    pairs = list(key.items())
    spellings = [
        f"{blank()}{{{','.join(f'{spell(n)}:{spell(v)}' for n, v in pairs)}}}{blank()}"
        for _ in range(3)
    ]
    plain = json.dumps(key, ensure_ascii=False, separators=(",", ":"))
    wrapped = [f'{{"schema":{{}},"payload":{one}}}' for one in spellings]

    found = envelope.read_key_column(
        pa.array([one.encode() for one in (plain, *spellings, *wrapped)])
    )

    assert found.known.all()
    assert len(set(found.values.to_pylist())) == 1


@given(
    st.lists(
        st.tuples(st.none() | st.binary(), st.none() | st.binary(), st.sampled_from(TOPICS)),
        max_size=4,
    )
)
def test_bytes_of_any_kind_say_the_same_in_a_batch_and_alone(together: list[Raw]) -> None:
    assert at_once(together) == one_by_one(together)


@pytest.mark.parametrize(
    "values",
    [
        pytest.param((b"", ROW + ROW), id="nothing beside two objects"),
        pytest.param((ROW + ROW, b" "), id="two objects beside a blank"),
        pytest.param((OPEN, CLOSE, ROW + ROW), id="two halves, no brace between them"),
        pytest.param((OPEN + b',"source":', SOURCE + b"}", ROW + ROW), id="a source of its own"),
        pytest.param((OPEN, b"," + CLOSE, ROW + ROW), id="a comma in front"),
        pytest.param((b'{"x":"}', b'{",' + INNER + b"}", ROW + ROW), id="halves of a string"),
        pytest.param((b'{"x":[{}', b"{}]," + INNER + b"}", ROW + ROW), id="halves of a list"),
        pytest.param((b'{"x":{}', b"{}," + INNER + b"}", ROW + b" " + ROW), id="two objects"),
    ],
)
def test_values_that_make_sense_only_together_make_none(values: tuple[bytes, ...]) -> None:
    halves: list[Raw] = [(b'{"id":1}', value, "p.d.t") for value in values]

    assert at_once(halves) == one_by_one(halves)
    assert {one["op"] for one in at_once(halves)} == {"error"}


@pytest.mark.parametrize(
    "form",
    [
        pytest.param('{"op":"c","after":{"a":%s},"source":{"db":"d","table":"t"}}', id="a row"),
        pytest.param('{"op":"c","x":%s}', id="a field nobody asks", marks=THOROUGH),
        pytest.param('{"status":"END","id":"g","x":%s}', id="a transaction", marks=THOROUGH),
        pytest.param('{"payload":{"status":"END","id":"g","x":%s}}', id="wrapped", marks=THOROUGH),
        pytest.param('{"ddl":"x","tableChanges":[%s]}', id="a schema change"),
    ],
)
def test_nesting_up_to_where_python_recurses_never_fails(form: str) -> None:
    for depth in range(870, 990):
        value = (form % ("[" * depth + "]" * depth)).encode()

        (found,) = FORMAT().decode(batch([(None, value, "t")]), {}).to_pylist()

        assert found["op"] in {"error", "end"}


@pytest.mark.parametrize("blank", [b" ", b"\n", b"\r\n\t"])
def test_blanks_around_a_message_say_nothing(blank: bytes) -> None:
    plain = [(key, value, topic) for key, value, topic in CORPUS if value is not None]
    spaced: list[Raw] = [(key, blank + value + blank, topic) for key, value, topic in plain]

    assert at_once(spaced) == one_by_one(spaced)
    assert [one["after"] for one in at_once(spaced)] == [one["after"] for one in at_once(plain)]


def test_damaged_messages_say_the_same_in_batches_and_alone() -> None:
    for together in damaged(examples(20_000, brief=2_000), seed=1):
        assert at_once(together) == one_by_one(together)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10))
def test_200_000_damaged_messages_say_the_same_in_batches_and_alone(seed: int) -> None:
    for together in damaged(20_000, seed=100 + seed):
        assert at_once(together) == one_by_one(together)


def damaged(count: int, *, seed: int) -> Iterator[list[Raw]]:
    """Batches of 100 messages of the corpus, most of them damaged."""
    dice = random.Random(seed)
    short = [raw for raw in CORPUS if len(raw[1] or b"") < 2_000]
    for _ in range(count // 100):
        yield [_damaged(dice.choice(short), dice) for _ in range(100)]


def _damaged(raw: Raw, dice: random.Random) -> Raw:
    key, value, topic = raw
    if key is not None and dice.random() < 0.2:
        key = _bytes(key, dice)
    if value is not None and dice.random() < 0.8:
        value = _bytes(value, dice)
    return key, value, topic


def _bytes(data: bytes, dice: random.Random) -> bytes:
    for _ in range(dice.choice((1, 1, 1, 2, 4))):
        at = dice.randrange(len(data) + 1)
        to = at + dice.choice((0, 0, 1, 1, 2, 10))
        other = dice.choice(CORPUS)[1] or b""
        cut = dice.randrange(len(other) + 1)
        new = dice.choice(
            (
                dice.choice(INTERESTING),
                dice.choice(TOKENS),
                dice.randbytes(1),
                other[cut : cut + 30],
            )
        )
        data = data[:at] + new + data[to:]
    return data
