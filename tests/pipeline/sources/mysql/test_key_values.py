"""A key of the log becomes values to ask for, and no other spelling of them does."""

from decimal import Decimal

import pytest

from pipeline.errors import ConfigError
from pipeline.sources.mysql.dialect import MYSQL
from pipeline.sources.mysql.row_encoding import match_keys
from pipeline.sources.mysql.types import MySqlColumn


def column(kind: str, scale: int | None = None, length: int | None = None) -> MySqlColumn:
    return MySqlColumn(name="k", type=kind, length=length, scale=scale, nullable=False)


@pytest.mark.parametrize(
    ("of", "text", "value"),
    [
        (column("INT"), "-7", -7),
        (column("BIGINT UNSIGNED"), "AP//////////", 2**64 - 1),
        (column("VARCHAR", length=9), "it's 100%", "it's 100%"),
        (column("DECIMAL", 2, 10), "1.50", Decimal("1.50")),
        (column("DATE"), "20000", "2024-10-04"),
        (column("DATETIME", length=3), "1700000000123", "2023-11-14 22:13:20.123"),
        (column("DATETIME", length=6), "1700000000123456", "2023-11-14 22:13:20.123456"),
        (column("TIMESTAMP"), "2023-11-14T22:13:20Z", "2023-11-14 22:13:20"),
        (column("BINARY", length=2), "AAE=", b"\x00\x01"),
        (column("ENUM"), "paid", "paid"),
        (column("YEAR"), "1900", 0),
        (column("YEAR"), "1999", 1999),
    ],
    ids=str,
)
def test_the_value_is_the_logs(of: MySqlColumn, text: str, value: object) -> None:
    told, values = match_keys("d.t", (of,), (f'["{text}"]',))

    assert (told, values) == ("(`k` = %s)", (value,))


@pytest.mark.parametrize(
    ("of", "key"),
    [
        pytest.param(column("INT"), '["07"]', id="leading zero"),
        pytest.param(column("INT"), '["x"]', id="no number"),
        pytest.param(column("INT"), '["7","8"]', id="too many"),
        pytest.param(column("INT"), "[null]", id="null"),
        pytest.param(column("DECIMAL", 2, 10), '["1.5"]', id="another scale"),
        pytest.param(column("BIGINT UNSIGNED"), '["7"]', id="digits where bytes are sent"),
        pytest.param(column("DATE"), '["2024-10-04"]', id="a day where a number is sent"),
        pytest.param(column("TIME"), '["7"]', id="a kind that is not asked by"),
    ],
)
def test_another_spelling_is_refused_in_words(of: MySqlColumn, key: str) -> None:
    with pytest.raises(ConfigError, match=r"d\.t"):
        match_keys("d.t", (of,), (key,))


@pytest.mark.parametrize(
    ("of", "text"),
    [
        (column("DATE"), "0"),
        (column("DATETIME", length=6), "0"),
        (column("TIMESTAMP"), "1970-01-01T00:00:00Z"),
    ],
    ids=str,
)
def test_a_key_that_stands_for_days_that_do_not_exist_is_not_asked_by(
    of: MySqlColumn, text: str
) -> None:
    """The row of 1970 would be found for that of 0000-00-00, which would then be deleted."""
    with pytest.raises(ConfigError, match="stands for 1970 and for each day that does not exist"):
        match_keys("d.t", (of,), (f'["{text}"]',))


def test_each_key_is_an_alternative_and_each_column_has_its_value() -> None:
    columns = (column("INT"), MySqlColumn("a%", "VARCHAR", 9, None, nullable=False))

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
    assert MYSQL.spellings(column(kind), number) == texts
