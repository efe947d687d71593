"""Values in other notations than Connect's are the same values, and go back as they came."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from pipeline.schema.notation import Notation
from pipeline.sources.mysql.column import MySqlColumn
from pipeline.sources.mysql.notations import sent_texts
from pipeline.sources.mysql.values import sent, values
from pipeline.sources.mysql.wire_text import Raw

DAY = datetime(2020, 5, 13, 12, 38, 35, 120_000, UTC)
ABC = ("a", "b", "c")


def column(kind: str, length: int | None = None, *labels: str) -> MySqlColumn:
    return MySqlColumn("c", kind, length, 2 if kind == "DECIMAL" else None, values=labels)


CASES = [
    pytest.param(column("INT"), "-5", "-5", -5, id="a number"),
    pytest.param(column("TINYINT"), "1", "1", 1, id="a small one"),
    pytest.param(
        column("BIGINT UNSIGNED"),
        "18446744073709551615",
        "18446744073709551615",
        2**64 - 1,
        id="max",
    ),
    pytest.param(column("DECIMAL", 5), "1.10", "1.10", Decimal("1.10"), id="a decimal"),
    pytest.param(column("DOUBLE"), "1e300", "1e300", 1e300, id="a double"),
    pytest.param(column("DATE"), "1969-12-31", "1969-12-31", date(1969, 12, 31), id="a day"),
    pytest.param(
        column("DATETIME", 2), "2020-05-13 12:38:35.12", None, DAY.replace(tzinfo=None), id="m"
    ),
    pytest.param(
        column("TIMESTAMP"),
        "2020-05-13 12:38:35",
        None,
        DAY.replace(microsecond=0),
        id="i",
    ),
    pytest.param(column("TIME"), "-838:59:59", None, -3020399000000, id="a time"),
    pytest.param(column("YEAR"), "2020", None, 2020, id="a year"),
    pytest.param(column("VARCHAR", 9), "Zoë \x00", None, "Zoë \x00", id="a text"),
    pytest.param(column("JSON"), '{"a": 1}', None, '{"a": 1}', id="JSON"),
]
TEXTS = [
    pytest.param(column("BIT", 1), b"\x01", "1", True, id="a bit"),
    pytest.param(column("BIT", 9), b"\x01\x01", "257", b"\x01\x01", id="bits"),
    pytest.param(column("VARBINARY", 9), b"\x00\xff", "\x00ÿ", b"\x00\xff", id="bytes"),
    pytest.param(column("ENUM", None, *ABC), "b", "2", "b", id="a label"),
    pytest.param(column("ENUM", None, "1", "0"), "0", "2", "0", id="a label that is a number"),
    pytest.param(column("ENUM", None, *ABC), "", "0", "", id="no label"),
    pytest.param(column("SET", None, *ABC), "a,c", "5", "a,c", id="labels"),
    pytest.param(column("SET", None, *ABC), "", "0", "", id="no labels"),
]
PLAIN = [
    pytest.param(column("BIT", 9), b"\x01\x01", "257", b"\x01\x01", id="bits"),
    pytest.param(column("VARBINARY", 9), b"\x00\xff", "AP8=", b"\x00\xff", id="bytes"),
    pytest.param(column("ENUM", None, *ABC), "b", "b", "b", id="a label"),
    pytest.param(column("SET", None, *ABC), "a,c", "a,c", "a,c", id="labels"),
]


def both_ways(own: MySqlColumn, notation: Notation, raw: Raw, text: str, value: Any) -> None:
    named = MySqlColumn(
        own.name, own.type, own.length, own.scale, values=own.values, notation=notation
    )

    assert sent_texts(named, pa.array([raw, None])).texts.to_pylist() == [text, None]
    assert values(named, pa.array([text, None], pa.string())).to_pylist() == [value, None]


@pytest.mark.parametrize("notation", [Notation.TEXTS, Notation.PLAIN])
@pytest.mark.parametrize(("own", "raw", "text", "value"), CASES)
def test_what_both_notations_write_alike(
    own: MySqlColumn, raw: str, text: str | None, value: Any, notation: Notation
) -> None:
    both_ways(own, notation, raw, text or raw, value)


@pytest.mark.parametrize(("own", "raw", "text", "value"), TEXTS)
def test_the_logs_own_texts(own: MySqlColumn, raw: Raw, text: str, value: Any) -> None:
    both_ways(own, Notation.TEXTS, raw, text, value)


@pytest.mark.parametrize(("own", "raw", "text", "value"), PLAIN)
def test_plain_json(own: MySqlColumn, raw: Raw, text: str, value: Any) -> None:
    both_ways(own, Notation.PLAIN, raw, text, value)


def test_a_list_is_the_labels_of_a_set() -> None:
    own = MySqlColumn("c", "SET", values=ABC, notation=Notation.PLAIN)

    assert values(own, pa.array(['["a","c"]', "[]"])).to_pylist() == ["a,c", ""]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        pytest.param("DATE", "soon", id="no day"),
        pytest.param("DATE", "2020-13-01", id="a month too many"),
        pytest.param("DATETIME", "2020-05-13", id="no time"),
        pytest.param("TIMESTAMP", "2020-05-13T12:38:35Z", id="another spelling"),
        pytest.param("TIME", "12:00", id="no seconds"),
        pytest.param("INT", "x", id="no number"),
        pytest.param("INT", "99999999999", id="too large"),
        pytest.param("BIT", "512", id="too many bits"),
        pytest.param("BIT", "x", id="no bits"),
        pytest.param("ENUM", "4", id="no such label"),
        pytest.param("SET", "8", id="no such labels"),
        pytest.param("VARBINARY", "€", id="no byte"),
        pytest.param("YEAR", "soon", id="no year"),
    ],
)
def test_what_does_not_fit_is_null(kind: str, text: str) -> None:
    length = {"BIT": 9}.get(kind)
    labels = ABC if kind in ("ENUM", "SET") else ()
    own = MySqlColumn("c", kind, length, values=labels, notation=Notation.TEXTS)

    assert values(own, pa.array([text])).to_pylist() == [None]


def test_connects_notation_is_as_before() -> None:
    own = MySqlColumn("c", "DATE")

    assert values(own, pa.array([-1])).to_pylist() == [date(1969, 12, 31)]
    assert sent_texts(own, pa.array(["1969-12-31"])).texts.to_pylist() == ["-1"]
    assert sent(own) is not sent(MySqlColumn("c", "DATE", notation=Notation.TEXTS))
