"""The change log's key: one row, one text, whether built alone or by the column."""

import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.formats import json_text
from pipeline.formats.json_text import quote_text

TEXTS = st.text(st.characters(codec="utf-8"))
VALUES = st.lists(st.none() | TEXTS, min_size=1)
ROWS = st.lists(st.tuples(st.none() | VALUES, TEXTS, TEXTS, st.booleans()))


@pytest.mark.parametrize(
    ("unique", "expected"),
    [
        pytest.param(True, '["17","2"]', id="unique keys stand alone"),
        pytest.param(False, '["main","shop_00.orders","17","2"]', id="others name their shard"),
    ],
)
def test_a_key_is_a_json_array_without_blanks(unique: bool, expected: str) -> None:
    assert json_text.canonical_key(["17", "2"], "main", "shop_00.orders", unique=unique) == expected


@given(values=VALUES)
def test_a_key_gives_its_values_back(values: list[str | None]) -> None:
    text = json_text.canonical_key(values, "s", "d.t", unique=False)

    assert json_text.parse_key(text) == ("s", "d.t", *values)
    assert json.loads(text) == ["s", "d.t", *values]


@given(one=VALUES, other=VALUES)
def test_different_values_never_share_a_key(one: list[str | None], other: list[str | None]) -> None:
    same = json_text.canonical_key(one, "s", "d.t") == json_text.canonical_key(other, "s", "d.t")

    assert same == (one == other)


@given(ROWS)
def test_a_column_of_keys_is_what_each_is_alone(
    rows: list[tuple[list[str | None] | None, str, str, bool]],
) -> None:
    listed = [None if values is None else listing(values) for values, *_ in rows]
    sources, shards, unique = ([row[i] for row in rows] for i in (1, 2, 3))

    column = json_text.key_column(
        pa.array(listed, pa.string()),
        pa.array(sources, pa.string()),
        pa.array(shards, pa.string()),
        unique=pa.array(unique, pa.bool_()),
    )

    assert column.type == pa.string()
    assert column.to_pylist() == [
        None if values is None else json_text.canonical_key(values, source, shard, unique=alone)
        for values, source, shard, alone in rows
    ]


def test_a_change_without_a_shard_has_a_key_only_where_it_is_unique() -> None:
    column = json_text.key_column(
        pa.array(['["1"]', '["1"]']),
        pa.array(["s", "s"]),
        pa.array([None, None], pa.string()),
        unique=pa.array([True, False]),
    )

    assert column.to_pylist() == ['["1"]', None]


def listing(values: list[str | None]) -> str:
    """How a format lists key values."""
    return f"[{','.join('null' if value is None else quote_text(value) for value in values)}]"
