"""A value that is read is the value that the log sends: written in texts, and read back."""

from dataclasses import replace

import pyarrow as pa
import pytest

from pipeline.schema.model import Notation
from pipeline.sources.mysql.row_encoding import to_server_texts
from pipeline.sources.mysql.types import MySqlColumn
from pipeline.sources.mysql.values import Raw, to_connect, to_wire_texts

ABC = ("a", "b", "c")


def column(kind: str, length: int | None = None, *labels: str) -> MySqlColumn:
    return MySqlColumn("c", kind, length, 2 if kind == "DECIMAL" else None, values=labels)


@pytest.mark.parametrize(
    ("column", "raw", "text"),
    [
        pytest.param(column("INT"), "-5", "-5", id="a number"),
        pytest.param(column("BIGINT UNSIGNED"), str(2**64 - 1), str(2**64 - 1), id="the largest"),
        pytest.param(column("DECIMAL", 5), "1.10", "1.10", id="a decimal"),
        pytest.param(column("DATETIME", 2), "2020-05-13 12:38:35.12", None, id="a moment"),
        pytest.param(column("TIMESTAMP", 6), "2020-05-13 12:38:35.120000", None, id="an instant"),
        pytest.param(column("DATE"), "1969-12-31", None, id="a day"),
        pytest.param(column("TIME"), "-838:59:59", None, id="a time"),
        pytest.param(column("YEAR"), "2020", None, id="a year"),
        pytest.param(column("VARCHAR", 9), 'Zoë "\\ \x01', 'Zoë "\\ \x01', id="a text"),
        pytest.param(column("BIT", 1), b"\x01", "1", id="a bit"),
        pytest.param(column("BIT", 9), b"\x01\x01", "257", id="bits"),
        pytest.param(column("VARBINARY", 9), b"\x00\xff\x00", "\x00ÿ\x00", id="bytes"),
        pytest.param(column("BINARY", 4), b"\x00\xff\x00\x00", "\x00ÿ", id="without the last"),
        pytest.param(column("ENUM", None, *ABC), "b", "2", id="a label"),
        pytest.param(column("ENUM", None, *ABC), "", "0", id="no label"),
        pytest.param(column("SET", None, *ABC), "a,c", "5", id="labels"),
        pytest.param(column("SET", None, *ABC), "", "0", id="no labels"),
    ],
)
def test_it_is_written_as_the_log_has_it_and_means_the_same(
    column: MySqlColumn, raw: Raw, text: str | None
) -> None:
    values = pa.array([raw, None])

    told = to_server_texts(column, values)

    assert told.quoted
    assert text is None or told.texts.to_pylist() == [text, None]
    sent = to_connect(replace(column, notation=Notation.TEXTS), told.texts)
    assert sent.to_pylist() == to_wire_texts(column, values).texts.to_pylist()
