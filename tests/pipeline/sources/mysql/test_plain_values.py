"""What is read is what an event would hold; where nobody knows that, the column is named."""

import json

import pyarrow as pa
import pytest

from pipeline.errors import ConfigError
from pipeline.schema.model import Notation
from pipeline.sources.mysql.row_encoding import encode_plain_rows
from pipeline.sources.mysql.types import MySqlColumn
from pipeline.sources.mysql.values import Raw


def told(kind: str, name: str = "c") -> MySqlColumn:
    return MySqlColumn(name, kind, notation=Notation.PLAIN)


BESIDE = told("JSON", "hadoop_metadata")


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

    rows = encode_plain_rows("s/db.t", [told(events), BESIDE], columns, [pa.array([raw, None])])

    assert [json.loads(row)["c"] for row in rows.to_pylist()] == [value, None]


def test_what_stands_beside_the_rows_is_null_and_what_events_lack_is_left_out() -> None:
    columns = [MySqlColumn("c", "INT"), MySqlColumn("more", "INT")]

    (row,) = encode_plain_rows(
        "s/db.t", [told("INT"), BESIDE], columns, [pa.array(["1"]), pa.array(["2"])]
    ).to_pylist()

    assert json.loads(row) == {"c": 1, "hadoop_metadata": None}


@pytest.mark.parametrize(
    ("events", "there", "why"),
    [
        pytest.param("LONGTEXT", "DECIMAL", "is DECIMAL in s/db.t, and LONGTEXT", id="a decimal"),
        pytest.param(
            "LONGTEXT", "DATETIME", "how its sender writes that is not known", id="a time"
        ),
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
            "s/db.t", [told(events), BESIDE], [MySqlColumn("c", there)], [pa.array(["1"])]
        )

    assert "column c" in str(refused.value)
    assert why in str(refused.value)


def test_a_column_that_the_table_lost_is_told() -> None:
    with pytest.raises(ConfigError, match=r"s/db\.t has no column row_key, which its events have"):
        encode_plain_rows("s/db.t", [told("LONGTEXT", "row_key"), BESIDE], [], [])


def test_rows_of_a_collector_that_puts_nothing_beside_them_are_not_read() -> None:
    """Maxwell's, whose columns are told by statements."""
    with pytest.raises(ConfigError, match="written otherwise than its collector writes them"):
        encode_plain_rows(
            "s/db.t", [told("BIGINT")], [MySqlColumn("c", "BIGINT")], [pa.array(["1"])]
        )
