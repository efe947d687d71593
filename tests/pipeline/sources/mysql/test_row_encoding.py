"""A key of the log becomes values to ask for, and no other spelling of them does."""

import json
from dataclasses import replace
from decimal import Decimal

import pyarrow as pa
import pytest

from pipeline.errors import ConfigError
from pipeline.schema.model import Notation
from pipeline.sources.mysql.dialect import MYSQL
from pipeline.sources.mysql.row_encoding import encode_plain_rows, match_keys, to_server_texts
from pipeline.sources.mysql.types import MySqlColumn
from pipeline.sources.mysql.values import Raw, to_connect, to_wire_texts


def key_column(kind: str, scale: int | None = None, length: int | None = None) -> MySqlColumn:
    return MySqlColumn(name="k", type=kind, length=length, scale=scale, nullable=False)


@pytest.mark.parametrize(
    ("of", "text", "value"),
    [
        (key_column("INT"), "-7", -7),
        (key_column("BIGINT UNSIGNED"), "AP//////////", 2**64 - 1),
        (key_column("VARCHAR", length=9), "it's 100%", "it's 100%"),
        (key_column("DECIMAL", 2, 10), "1.50", Decimal("1.50")),
        (key_column("DATE"), "20000", "2024-10-04"),
        (key_column("DATETIME", length=3), "1700000000123", "2023-11-14 22:13:20.123"),
        (key_column("DATETIME", length=6), "1700000000123456", "2023-11-14 22:13:20.123456"),
        (key_column("TIMESTAMP"), "2023-11-14T22:13:20Z", "2023-11-14 22:13:20"),
        (key_column("BINARY", length=2), "AAE=", b"\x00\x01"),
        (key_column("ENUM"), "paid", "paid"),
        (key_column("YEAR"), "1900", 0),
        (key_column("YEAR"), "1999", 1999),
    ],
    ids=str,
)
def test_the_value_is_the_logs(of: MySqlColumn, text: str, value: object) -> None:
    told, values = match_keys("d.t", (of,), (f'["{text}"]',))

    assert (told, values) == ("(`k` = %s)", (value,))


@pytest.mark.parametrize(
    ("of", "key"),
    [
        pytest.param(key_column("INT"), '["07"]', id="leading zero"),
        pytest.param(key_column("INT"), '["x"]', id="no number"),
        pytest.param(key_column("INT"), '["7","8"]', id="too many"),
        pytest.param(key_column("INT"), "[null]", id="null"),
        pytest.param(key_column("DECIMAL", 2, 10), '["1.5"]', id="another scale"),
        pytest.param(key_column("BIGINT UNSIGNED"), '["7"]', id="digits where bytes are sent"),
        pytest.param(key_column("DATE"), '["2024-10-04"]', id="a day where a number is sent"),
        pytest.param(key_column("TIME"), '["7"]', id="a kind that is not asked by"),
    ],
)
def test_another_spelling_is_refused_in_words(of: MySqlColumn, key: str) -> None:
    with pytest.raises(ConfigError, match=r"d\.t"):
        match_keys("d.t", (of,), (key,))


@pytest.mark.parametrize(
    ("of", "text"),
    [
        (key_column("DATE"), "0"),
        (key_column("DATETIME", length=6), "0"),
        (key_column("TIMESTAMP"), "1970-01-01T00:00:00Z"),
    ],
    ids=str,
)
def test_a_key_that_stands_for_days_that_do_not_exist_is_not_asked_by(
    of: MySqlColumn, text: str
) -> None:
    """The row of 1970 would be found for that of 0000-00-00, which would then be deleted."""
    with pytest.raises(ConfigError, match="may be 1970-01-01 or any day that does not exist"):
        match_keys("d.t", (of,), (f'["{text}"]',))


def test_each_key_is_an_alternative_and_each_column_has_its_value() -> None:
    columns = (key_column("INT"), MySqlColumn("a%", "VARCHAR", 9, None, nullable=False))

    assert match_keys("d.t", columns, ('["1","x"]', '["2","y"]')) == (
        "(`k` = %s AND `a%%` = %s) OR (`k` = %s AND `a%%` = %s)",
        (1, "x", 2, "y"),
    )


@pytest.mark.parametrize(
    ("kind", "number", "texts"),
    [
        ("INT UNSIGNED", 7, ("7",)),
        ("BIGINT UNSIGNED", 0, ("AA==", "0")),
        ("BIGINT UNSIGNED", 2**64 - 1, ("AP//////////", "18446744073709551615")),
        ("BIGINT UNSIGNED", -1, ("-1",)),
    ],
)
def test_an_id_is_looked_for_by_every_text_that_may_be_its(
    kind: str, number: int, texts: tuple[str, ...]
) -> None:
    assert MYSQL.spellings(key_column(kind), number) == texts


def plain_column(kind: str, name: str = "c") -> MySqlColumn:
    return MySqlColumn(name, kind, notation=Notation.PLAIN)


BESIDE = plain_column("JSON", "hadoop_metadata")


@pytest.mark.parametrize(
    ("events", "there", "raw", "value"),
    [
        pytest.param("BIGINT", "BIGINT", str(2**63 - 1), 2**63 - 1, id="a large number"),
        pytest.param("BIGINT", "INT", "-5", -5, id="a number that events have wider"),
        pytest.param("INT", "SMALLINT", "7", 7, id="a small one"),
        pytest.param("TINYINT", "TINYINT", "1", 1, id="a boolean"),
        pytest.param("DOUBLE", "DOUBLE", "0.1", 0.1, id="a floating one"),
        pytest.param("LONGTEXT", "VARCHAR", 'Zoë "\\ \x01', 'Zoë "\\ \x01', id="a text"),
        pytest.param("LONGBLOB", "VARBINARY", b"\x00\xff", "AP8=", id="bytes"),
    ],
)
def test_what_has_one_way_is_written_so(events: str, there: str, raw: Raw, value: object) -> None:
    columns = [MySqlColumn("c", there)]

    rows = encode_plain_rows(
        "s/db.t", [plain_column(events), BESIDE], columns, [pa.array([raw, None])]
    )

    assert [json.loads(row)["c"] for row in rows.to_pylist()] == [value, None]


def test_what_stands_beside_the_rows_is_null_and_what_events_lack_is_left_out() -> None:
    columns = [MySqlColumn("c", "INT"), MySqlColumn("more", "INT")]

    (row,) = encode_plain_rows(
        "s/db.t", [plain_column("INT"), BESIDE], columns, [pa.array(["1"]), pa.array(["2"])]
    ).to_pylist()

    assert json.loads(row) == {"c": 1, "hadoop_metadata": None}


@pytest.mark.parametrize(
    ("events", "there", "why"),
    [
        pytest.param("LONGTEXT", "DECIMAL", "is DECIMAL in s/db.t, and LONGTEXT", id="a decimal"),
        pytest.param("LONGTEXT", "DATETIME", "how its sender encodes that is unknown", id="a time"),
        pytest.param("BIGINT", "BIGINT UNSIGNED", "is BIGINT UNSIGNED in s/db.t", id="unsigned"),
        pytest.param("DOUBLE", "FLOAT", "is FLOAT in s/db.t, and DOUBLE", id="of fewer digits"),
        pytest.param("LONGBLOB", "BINARY", "is BINARY in s/db.t", id="with zeros at its end"),
        pytest.param("INT", "BIGINT", "is BIGINT in s/db.t, and INT", id="too narrow"),
        pytest.param("VARCHAR", "VARCHAR", "is VARCHAR in s/db.t", id="told by statements"),
    ],
)
def test_what_nobody_knows_is_refused_by_its_name(events: str, there: str, why: str) -> None:
    with pytest.raises(ConfigError) as refused:
        encode_plain_rows(
            "s/db.t", [plain_column(events), BESIDE], [MySqlColumn("c", there)], [pa.array(["1"])]
        )

    assert "column c" in str(refused.value)
    assert why in str(refused.value)


def test_a_column_that_the_table_lost_is_told() -> None:
    with pytest.raises(ConfigError, match=r"s/db\.t has no column row_key, which its events have"):
        encode_plain_rows("s/db.t", [plain_column("LONGTEXT", "row_key"), BESIDE], [], [])


def test_rows_of_a_collector_that_puts_nothing_beside_them_are_not_read() -> None:
    """Maxwell's, whose columns are told by statements."""
    with pytest.raises(ConfigError, match="have other texts than those of its collector"):
        encode_plain_rows(
            "s/db.t", [plain_column("BIGINT")], [MySqlColumn("c", "BIGINT")], [pa.array(["1"])]
        )


ABC = ("a", "b", "c")


def text_column(kind: str, length: int | None = None, *labels: str) -> MySqlColumn:
    return MySqlColumn("c", kind, length, 2 if kind == "DECIMAL" else None, values=labels)


WRITTEN = {
    "a number": (text_column("INT"), "-5", "-5"),
    "the largest": (text_column("BIGINT UNSIGNED"), str(2**64 - 1), str(2**64 - 1)),
    "a decimal": (text_column("DECIMAL", 5), "1.10", "1.10"),
    "a moment": (text_column("DATETIME", 2), "2020-05-13 12:38:35.12", None),
    "an instant": (text_column("TIMESTAMP", 6), "2020-05-13 12:38:35.120000", None),
    "a day": (text_column("DATE"), "1969-12-31", None),
    "a time": (text_column("TIME"), "-838:59:59", None),
    "a year": (text_column("YEAR"), "2020", None),
    "a text": (text_column("VARCHAR", 9), 'Zoë "\\ \x01', 'Zoë "\\ \x01'),
    "a bit": (text_column("BIT", 1), b"\x01", "1"),
    "bits": (text_column("BIT", 9), b"\x01\x01", "257"),
    "bytes": (text_column("VARBINARY", 9), b"\x00\xff\x00", "\x00ÿ\x00"),
    "without the last": (text_column("BINARY", 4), b"\x00\xff\x00\x00", "\x00ÿ"),
    "a label": (text_column("ENUM", None, *ABC), "b", "2"),
    "no label": (text_column("ENUM", None, *ABC), "", "0"),
    "labels": (text_column("SET", None, *ABC), "a,c", "5"),
    "no labels": (text_column("SET", None, *ABC), "", "0"),
}


@pytest.mark.parametrize(("column", "raw", "text"), WRITTEN.values(), ids=WRITTEN)
def test_it_is_written_as_the_log_has_it_and_means_the_same(
    column: MySqlColumn, raw: Raw, text: str | None
) -> None:
    values = pa.array([raw, None])

    told = to_server_texts(column, values)

    assert told.quoted
    assert text is None or told.texts.to_pylist() == [text, None]
    sent = to_connect(replace(column, notation=Notation.TEXTS), told.texts)
    assert sent.to_pylist() == to_wire_texts(column, values).texts.to_pylist()
