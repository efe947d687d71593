"""An ENUM or SET holds the label, whichever way the collector spells it."""

import pyarrow as pa
import pytest

from pipeline.schema.decode import type_rows
from pipeline.sources.mysql.dialect import MYSQL
from pipeline.sources.mysql.types import MySqlColumn as Column
from pipeline.sources.mysql.types import decode_labels, unescape_text, unquote_text

ODD = ("a", "d,e", "f'g", r"h\'i", r"j\\k", "l ", r"m\\,n", r"q\nr", "é", r"x\\\\y", r"\\", r"s\,t")
"""Labels as a schema change tells them; a real collector sent those below for their values."""
SPELLED = {
    "a plain one": ("a", "a", "a"),
    "a comma": ("d,e", r"d\,e", "d,e"),
    "a quote, doubled": ("f'g", "f'g", "f'g"),
    "a quote, escaped": ("h'i", "h'i", "h'i"),
    "a backslash": (r"j\k", r"j\\k", r"j\k"),
    "a blank at its end": ("l", "l ", "l"),
    "a backslash and a comma": (r"m\,n", r"m\\\,n", r"m\,n"),
    "a line end": ("q\nr", r"q\nr", "q\nr"),
    "a letter beyond ASCII": ("é", "é", "é"),
    "two backslashes": (r"x\\y", r"x\\\\y", r"x\\y"),
    "nothing but a backslash": ("\\", r"\\", "\\"),
    "a comma that was escaped for nothing": ("s,t", r"s\\,t", "s,t"),
}


@pytest.mark.parametrize(("snapshot", "log", "label"), SPELLED.values(), ids=SPELLED)
def test_f14_a_label_is_the_same_from_the_log_and_from_a_snapshot(
    snapshot: str, log: str, label: str
) -> None:
    column = Column("c", "ENUM", 1, values=ODD)

    assert read_labels(column, snapshot, log) == [label, label]


def test_f14_a_label_with_a_comma_is_typed_as_declared() -> None:
    column = Column("c", "ENUM", 1, values=("a", "b,c"))

    found = type_rows(pa.array([r'{"c":"b\\,c"}', '{"c":"b,c"}', '{"c":null}']), [column])

    assert found.rows["c"].to_pylist() == ["b,c", "b,c", None]
    assert found.misread.to_pylist() == [False] * 3


@pytest.mark.parametrize(
    ("sent", "labels_"),
    [
        pytest.param(r"a,f'g,j\\k,l ,x\\\\y", r"a,f'g,j\k,l,x\\y", id="from the log"),
        pytest.param(r"a,f'g,j\k,l,x\\y", r"a,f'g,j\k,l,x\\y", id="from a snapshot"),
        pytest.param("", "", id="none"),
        pytest.param("a,new", "a,new", id="one that is not declared"),
    ],
)
def test_f14_every_label_of_a_set_is_told_by_itself(sent: str, labels_: str) -> None:
    column = Column("c", "SET", 1, values=("a", "f'g", r"j\\k", "l ", r"x\\\\y"))

    assert read_labels(column, sent) == [labels_]


@pytest.mark.parametrize(
    ("values", "sent", "expected"),
    [
        pytest.param(("a",), "", "", id="a value that was none stays empty"),
        pytest.param(("?",), "😀", "😀", id="a label the server cannot write"),
        pytest.param((), r"b\,c", r"b\,c", id="labels that were not told"),
        pytest.param(("a",), r"b\,c", None, id="an escape of no known label is lost"),
        pytest.param(("b,c", r"b\\,c"), r"b\,c", None, id="either of two labels is lost"),
    ],
)
def test_a_text_that_is_no_label_stays_unless_it_may_mean_another(
    values: tuple[str, ...], sent: str, expected: str | None
) -> None:
    assert read_labels(Column("c", "ENUM", 1, values=values), sent) == [expected]


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        pytest.param("x''y", "x'y", id="a doubled quote"),
        pytest.param(r"x\'y", "x'y", id="an escaped quote"),
        pytest.param(r"\n\t\0\Z", "\n\t\0\x1a", id="control characters"),
        pytest.param(r"\k\\", "k\\", id="a backslash before any letter"),
        pytest.param(r"x\%y\_z", r"x\%y\_z", id="a backslash that stays"),
        pytest.param("\\\n", "\n", id="an escaped line end"),
    ],
)
def test_a_literal_is_read_as_the_server_reads_it(text: str, meant: str) -> None:
    assert unquote_text(text) == meant
    assert unescape_text(text.replace("''", "'")) == meant


def read_labels(column: Column, *sent: str) -> list[str | None]:
    found: list[str | None] = decode_labels(column, pa.array(sent, pa.string())).to_pylist()
    return found


@pytest.mark.parametrize(
    ("kind", "values", "alike"),
    [
        ("ENUM", ("a", "é", "f'g", ""), True),
        ("SET", ("a", "b c"), True),
        ("ENUM", ("a", "d,e"), False),
        ("ENUM", ("l ",), False),
        ("SET", (r"j\\k",), False),
        ("VARCHAR", (), True),
        ("DOUBLE", (), True),
        ("FLOAT", (), False),
        ("JSON", (), False),
    ],
)
def test_a_key_needs_labels_that_are_spelled_in_one_way(
    kind: str, values: tuple[str, ...], alike: bool
) -> None:
    column = Column("c", kind, 1, values=values)

    assert MYSQL.spelled_alike(column) is alike
