"""Keys that rows are asked for by are refused alike, whatever database they are of."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from pipeline.errors import ConfigError
from pipeline.sources.condition import SqlCondition
from pipeline.sources.mysql import row_encoding as mysql_values
from pipeline.sources.mysql.row_reader import MySqlKey
from pipeline.sources.mysql.types import MySqlColumn
from pipeline.sources.postgres import row_encoding as postgres_values
from pipeline.sources.postgres.row_reader import PostgresKey
from pipeline.sources.sql import even_bounds
from tests.pipeline.sources.postgres.test_wire_text import column

MYSQL = (MySqlColumn(name="k", type="INT", length=None, scale=None, nullable=False),)
POSTGRES = (column("int4", name="k", filled=True),)
Rows = Callable[[str], SqlCondition]


@pytest.fixture(params=["mysql", "postgres"])
def rows(request: pytest.FixtureRequest) -> Rows:
    if request.param == "mysql":
        return lambda key: mysql_values.match_keys("d.t", MYSQL, (key,))
    return lambda key: postgres_values.match_keys("d.t", POSTGRES, (key,))


@pytest.fixture(params=["mysql", "postgres"])
def along(request: pytest.FixtureRequest) -> Callable[[Sequence[str]], Any]:
    if request.param == "mysql":
        return lambda key: MySqlKey.of("d.t", MYSQL, key)
    return lambda key: PostgresKey.of("d.t", POSTGRES, key)


@pytest.mark.parametrize(
    ("key", "why"),
    [
        pytest.param('["7","8"]', "which has 1 values: k", id="too many"),
        pytest.param("[null]", "is not a key of d.t", id="null"),
        pytest.param('["x"]', "'x' is not a value of d.t's key column k, a ", id="no number"),
        pytest.param('["07"]', "is written '7' in its log; use that spelling", id="spelling"),
    ],
)
def test_what_is_no_key_of_the_log_is_refused(rows: Rows, key: str, why: str) -> None:
    assert len(rows('["7"]')[1]) == 1

    with pytest.raises(ConfigError) as refused:
        rows(key)

    assert why in str(refused.value)


@pytest.mark.parametrize(
    ("key", "why"),
    [
        pytest.param((), "d.t has no key, so it cannot be read in parts", id="none"),
        pytest.param(("k", "x"), "d.t has no column x, which is in its key", id="no column"),
    ],
)
def test_what_a_table_cannot_be_read_along_is_refused(
    along: Callable[[Sequence[str]], Any], key: Sequence[str], why: str
) -> None:
    assert len(along(("k",)).columns) == 1

    with pytest.raises(ConfigError) as refused:
        along(key)

    assert why in str(refused.value)


@pytest.mark.parametrize(
    ("low", "high", "pieces", "found"),
    [
        pytest.param(0, 100, 4, ("25", "50", "75"), id="even"),
        pytest.param(-4, 4, 2, ("0",), id="below nothing"),
        pytest.param(8, 12, 3, ("9", "10"), id="in order as numbers, not as texts"),
        pytest.param(1, 2, 8, ("1",), id="fewer ids than pieces"),
        pytest.param(1, 9, 1, (), id="one piece"),
        pytest.param(None, None, 4, (), id="no row"),
    ],
)
def test_steps_are_even(
    low: int | None, high: int | None, pieces: int, found: tuple[str, ...]
) -> None:
    assert even_bounds(low, high, pieces) == tuple((text,) for text in found)
