"""Rows of every kind of column, and expectations on them with a plain answer for each row."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from pipeline.suites import ExpectationSettings

Row = Mapping[str, Any]
BIG = 2**60 + 1  # no binary number of 64 bits has it
UNSIGNED = 2**64 - 1
SHARE = 0.699999988079071  # the nearest of 32 bits to 0.7, which is below it
NAIVE = datetime(2026, 3, 1, 10, 0, 0, 5)  # noqa: DTZ001  - DATETIME has no zone
AT = datetime(2026, 3, 1, 10, 0, 0, 5, tzinfo=UTC)
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("small", pa.int32()),
        ("big", pa.int64()),
        ("unsigned", pa.decimal128(20, 0)),
        ("paid", pa.decimal128(12, 2)),
        ("due", pa.decimal128(14, 4)),
        ("day", pa.date32()),
        ("wall", pa.timestamp("us")),
        ("at", pa.timestamp("us", "UTC")),
        ("clock", pa.int64()),
        ("text", pa.string()),
        ("flag", pa.bool_()),
        ("raw", pa.binary()),
        ("ratio", pa.float64()),
        ("share", pa.float32()),
    ]
)


def _row(id_: int, *values: Any) -> dict[str, Any]:
    return dict(zip(SCHEMA.names, (id_, *values), strict=True))


ROWS = (
    _row(
        *(1, 1, BIG, Decimal(UNSIGNED), Decimal("1.10"), Decimal("1.1000"), date(2026, 3, 1)),
        *(NAIVE, AT, 36_000_000_000, "1", True, b"\x00a", 1.5, SHARE),
    ),
    _row(
        *(2, 2, BIG - 1, Decimal(UNSIGNED - 1), Decimal("2.20"), Decimal("2.2001")),
        *(date(2026, 3, 2), NAIVE.replace(microsecond=6), AT.replace(microsecond=6)),
        *(36_000_000_001, "O'Hara \\", False, b"b", float("nan"), -0.0),
    ),
    _row(3, *[None] * 14),
    _row(
        *(4, -7, -BIG, Decimal(0), Decimal("-3.30"), Decimal("-3.3000"), date(1969, 12, 31)),
        *(datetime(1900, 1, 1), datetime(1900, 1, 1, tzinfo=UTC)),  # noqa: DTZ001
        *(-1, "", False, b"", -0.1, float("nan")),
    ),
)
TABLE = pa.Table.from_pylist(list(ROWS), SCHEMA)


@dataclass(frozen=True)
class Case:
    """An expectation, and what a plain look at a row says: None where it does not count.

    ``met`` is instead the answer for one about all rows; ``unknown`` where there is none.
    """

    name: str
    kwargs: Mapping[str, Any]
    of_row: Callable[[Row], bool | None] | None = None
    met: bool | None = None
    unknown: str = ""
    only_pandas: bool = field(default=False)

    @property
    def id(self) -> str:
        """For the report of a test."""
        listed = ", ".join(f"{name}={value}" for name, value in self.kwargs.items())
        return f"{self.name}({listed})"

    @property
    def settings(self) -> ExpectationSettings:
        """As a suite has it."""
        return ExpectationSettings(f"expect_{self.name}", self.kwargs)

    def find_unexpected(self, rows: Sequence[Row] = ROWS) -> tuple[int, ...]:
        """Ids of rows that do not meet it."""
        assert self.of_row is not None
        return tuple(row["id"] for row in rows if self.of_row(row) is False)


def _one(column: str, test: Callable[..., bool]) -> Callable[[Row], bool | None]:
    return lambda row: None if row[column] is None else test(row[column])


def _in(column: str, suite: Sequence[Any], *real: Any) -> list[Case]:
    """In a set and not in it: *real* are the values of the column that the set means."""
    return [
        Case(
            f"column_values_to_{'not_' * negated}be_in_set",
            {"column": column, "value_set": suite},
            _one(column, lambda value, negated=negated: (value in real) is not negated),
        )
        for negated in (False, True)
    ]


def _between(column: str, least: Any, most: Any, *real: Any) -> list[Case]:
    low, high = real or (least, most)
    return [
        Case(
            "column_values_to_be_between",
            {
                "column": column,
                "min_value": least,
                "max_value": most,
                "strict_min": strict,
                "strict_max": strict,
            },
            _one(
                column,
                lambda value, closed=not strict: (
                    (low is None or low < value or (low == value and closed))
                    and (high is None or value < high or (high == value and closed))
                ),
            ),
        )
        for strict in (False, True)
    ]


def _pair(kind: str, a: str, b: str, test: Callable[[Any, Any], bool], **more: Any) -> Case:
    def of_row(row: Row) -> bool | None:
        if row[a] is None and row[b] is None:
            return None
        return row[a] is not None and row[b] is not None and test(row[a], row[b])

    return Case(f"column_pair_values_{kind}", {"column_A": a, "column_B": b, **more}, of_row)


def _unknown(kind: str, why: str, column: str, **kwargs: Any) -> Case:
    return Case(kind, {"column": column, **kwargs}, unknown=why)


REFUSED_CONDITIONS = (
    'day == "2026-03-01"',
    "paid >= 1.1",
    "paid < 5 and paid == 1.1",
    'col("paid") == 2.2',
    "col('day') == '2026-03-01'",
    "paid == 22/10",
    "paid == 2 + 0.2",
    "2 + paid == 4",
    r"""text == "a\"" and paid == 1.1 and text == "b" """,
    'big == "2"',
    '"2" == big',
    'big in [1, "2"]',
    'big.isin(["2"])',
    "text == 2",
    "2 == text",
    "text == True",
    "text not in [-1]",
    "text == small",
    'flag == "true"',
    'wall == "yesterday"',
    "wall == 5",
    'at == "2026-03-01T10:00:00Z"',
    'ratio != "1.5"',
    'col("small") == "1"',
    {"type": "comparison", "column": {"name": "small"}, "operator": "==", "parameter": "1"},
    {"type": "comparison", "column": {"name": "text"}, "operator": "IN", "parameter": [1]},
)
"""Conditions by which pandas looks at other rows than meant, or at none."""
PLAIN_CONDITIONS = (
    "small > 0",
    "-1 < small <= 2 and text == '1'",
    'text == "paid" or text in ["day", "1"]',
    "paid >= 2 and (paid < 5) and small == 1.0",
    "paid.notnull() and ~day.isnull()",
    'col("paid").notNull()',
    "flag == True and big != small",
    'wall > "2026-03-01" and at >= "2026-03-01 10:00:00"',
    "text.str.len() == 2",
    "`small` > 0 & ~(flag) | small.between(-1, +2)",
    'text.isin(["it\'s", "a`b"]) or text == None',
    'col("wall") >= date("2026-03-01")',
    {"type": "comparison", "column": {"name": "small"}, "operator": "IN", "parameter": [1, 2]},
    {"type": "comparison", "column": {"name": "text"}, "operator": "==", "parameter": "@a#b (c)"},
    {"type": "nullity", "column": {"name": "paid"}, "is_null": False},
    'col("ratio") <= -1.5e3',
    "col(\"text\")=='to be or not to be'",
)


def _equal(parameter: Any, name: Any = "text") -> dict[str, Any]:
    column = {"name": name}
    return {"type": "comparison", "column": column, "operator": "==", "parameter": parameter}


PARTIAL_CONDITIONS = (
    'col("text") == "a" and col("small") == 1',
    'col("text") == "a" or col("text") == "b"',
    'col("small") > 1_000',
    'col("small") > 1 + 1',
    'col("small") > 05',
    'col("text") == " a"',
    'col("text") == "a\tb"',
    'col("paid").notnull() and small == 1',
    'col("small") > other',
    'col("a` == 1 or @pd.io.common.os.system(`touch {path}`) or `b") == 1',
)
"""Conditions of which Great Expectations evaluates another part only."""
RUN_CONDITIONS = (
    "@pd.io.common.os.system('touch {path}') == 0",
    "__pd_eval_local_pd.io.common.os.system('touch {path}') == 0",
    "`__pd_eval_local_self` == 0",
    "text.to_csv('{path}') == 5",
    "text.isnull().to_csv('{path}') == 5",
    "text.str.len().to_csv('{path}') == 5",
    "text.str.contains('^(a+)+$')",
    "text == text.to_csv",
    "text.__class__ == 5",
    "text.isin(text.to_csv('{path}'))",
    "small > 0 and [text.to_csv('{path}')] == 5",
    "text[0] == '1'",
    "small + 1 > 2",
    "text * 1000000000 == ''",
    "small == 9 ** 9 ** 9",
    "small > 0 if text.to_csv('{path}') else flag",
    "(lambda: 1)() == 1",
    "text == f'{path}'",
    "wide = small",
    "small > 0\ntext.to_csv('{path}')",
    "small > 0 # text",
    "`small` == 1 or reflect('java.lang.System', 'exit', 1) == `b`",
    "reflect('java.lang.System', 'getenv', 'HOME') == ''",
    "small in (select small from other)",
    r"text == r'\' or reflect(1) == '",
    "text == '''a' or reflect(1) or 'b'''",
    "small == 1 == b'1' == 1j",
    "not " * 20_000 + "flag",
    "(" * 20_000,
    {"type": "comparison", "column": {"name": "a` == @pd or `b"}, "operator": "==", "parameter": 1},
    {"type": "nullity", "column": {"name": "a\n@pd\nb"}, "is_null": True},
    {"type": "pass_through", "pass_through_filter": "text.to_csv('{path}') == 5"},
    {
        "type": "and",
        "conditions": [
            {"type": "pass_through", "pass_through_filter": "small > 0"},
            {"type": "or", "conditions": [{"pass_through_filter": "@pd == 0"}]},
        ],
    },
    {
        "type": "or",
        "conditions": [
            _equal("x\\"),
            _equal("`"),
            _equal("`' == text or @pd.io.common.os.system('touch {path}') == 0) #"),
        ],
    },
    *map(
        _equal, ("x\\", "`", "it's", 'a"b', "a\nb", "a\x85b", "\u200b", math.inf, {"a": 1}, [[1]])
    ),
    _equal(["a", "x\\"]),
    _equal(1, name="it's"),
    _equal(1, name=5),
    _equal(1) | {"column": {}},
    _equal(1) | {"column": 5},
    _equal(1) | {"conditions": None},
    _equal(1) | {"conditions": 5},
    {"type": "pass_through", "pass_through_filter": 5},
    5,
    ["small > 0"],
)
"""Conditions that do more than compare; {path} is a file that some of them write."""


CASES: tuple[Case, ...] = (
    *_in("small", [1, 5], 1),
    *_in("small", [1.0, None, "2"], 1, 2),
    *_in("small", [1.5]),
    *_in("big", [BIG], BIG),
    *_in("big", [1e18]),
    *_in("big", [2**70]),
    *_in("unsigned", [UNSIGNED], UNSIGNED),
    *_in("unsigned", [str(UNSIGNED - 1)], UNSIGNED - 1),
    *_in("paid", [1.1, 5], Decimal("1.1")),
    *_in("paid", ["2.20", "1.101"], Decimal("2.2")),
    *_in("paid", [-3.3], Decimal("-3.3")),
    *_in("day", ["2026-03-01"], date(2026, 3, 1)),
    *_in("day", [date(2026, 3, 2), "2026-03-01T10:00:00"], date(2026, 3, 2)),
    *_in("wall", ["2026-03-01T10:00:00.000005"], NAIVE),
    *_in("at", ["2026-03-01T11:00:00.000006+01:00"], AT.replace(microsecond=6)),
    *_in("at", ["2026-03-01 10:00:00.000005"], AT),
    *_in("clock", [36_000_000_000], 36_000_000_000),
    *_in("text", ["1", "O'Hara \\"], "1", "O'Hara \\"),
    *_in("text", [""], ""),
    *_in("flag", [True], True),
    *_in("flag", [0], False),
    *_in("raw", [b"\x00a"], b"\x00a"),
    *_in("ratio", [1.5, -0.1], 1.5, -0.1),
    *_in("share", [0.7, 5], SHARE),
    *_in("share", [0], 0.0),
    *_in("share", [1e300]),
    *_between("small", 1, 2),
    *_between("small", 0.5, 1.5),
    *_between("small", "1", None, 1, None),
    *_between("small", -(2**40), 2**40),
    *_between("small", 2**40, None),
    *_between("big", BIG, None),
    *_between("big", None, BIG - 1),
    *_between("unsigned", UNSIGNED, None, Decimal(UNSIGNED), None),
    *_between("unsigned", 1, UNSIGNED - 1, Decimal(1), Decimal(UNSIGNED - 1)),
    *_between("paid", 1.1, 2.2, Decimal("1.1"), Decimal("2.2")),
    *_between("paid", 1.101, 2.199, Decimal("1.101"), Decimal("2.199")),
    *_between("paid", -3.3, None, Decimal("-3.3"), None),
    *_between("paid", -1e300, 1e300, Decimal("-1e300"), Decimal("1e300")),
    *_between("day", "2026-03-01", "2026-03-02", date(2026, 3, 1), date(2026, 3, 2)),
    *_between("day", "1969-12-31", None, date(1969, 12, 31), None),
    *_between("wall", "2026-03-01T10:00:00.000005", None, NAIVE, None),
    *_between(
        "at",
        "2026-03-01T10:00:00.000005",
        "2026-03-01T10:00:00.000006Z",
        AT,
        AT.replace(microsecond=6),
    ),
    *_between("at", "2026-03-01", None, datetime(2026, 3, 1, tzinfo=UTC), None),
    *_between("clock", 0, 36_000_000_000),
    *_between("ratio", -0.1, 1.5),
    *_between("share", 0.7, None, SHARE, None),
    *_between("share", 0, 0.7, 0.0, SHARE),
    _pair("to_be_equal", "paid", "due", lambda a, b: a == b),
    _pair("to_be_equal", "small", "paid", lambda a, b: a == b),
    _pair("to_be_equal", "wall", "at", lambda a, b: a == b.replace(tzinfo=None)),
    _pair("a_to_be_greater_than_b", "due", "paid", lambda a, b: a > b),
    _pair("a_to_be_greater_than_b", "due", "paid", lambda a, b: a >= b, or_equal=True),
    _pair("a_to_be_greater_than_b", "big", "small", lambda a, b: a > b),
    _pair("a_to_be_greater_than_b", "at", "day", lambda a, b: a.date() >= b),
    _pair("a_to_be_greater_than_b", "ratio", "small", lambda a, b: a > b),
    _pair(
        "to_be_in_set",
        "paid",
        "day",
        lambda a, b: (a, b) == (Decimal("1.1"), date(2026, 3, 1)),
        value_pairs_set=[[1.1, "2026-03-01"], [2.2, None]],
    ),
    Case(
        "multicolumn_sum_to_equal",
        {"column_list": ["paid", "due"], "sum_total": 2.2},
        lambda row: None if row["paid"] is None else row["paid"] + row["due"] == Decimal("2.2"),
    ),
    Case(
        "multicolumn_values_to_be_equal",
        {"column_list": ["paid", "due"]},
        lambda row: None if row["paid"] is None else row["paid"] == row["due"],
    ),
    Case(
        "select_column_values_to_be_unique_within_record",
        {"column_list": ["paid", "due", "small"]},
        lambda row: (
            None
            if row["paid"] is None
            else len({row["paid"], row["due"], Decimal(row["small"])}) == 3
        ),
    ),
    Case("column_values_to_not_be_null", {"column": "ratio"}, lambda row: row["ratio"] is not None),
    Case("column_values_to_not_be_null", {"column": "paid"}, lambda row: row["paid"] is not None),
    Case("column_values_to_be_null", {"column": "ratio"}, lambda row: row["ratio"] is None),
    *(
        Case("column_values_to_match_regex", {"column": name, "regex": regex}, _one(name, test))
        for name, regex, test in (
            ("small", "^[0-9]+$", lambda value: value >= 0),
            ("paid", r"^[0-9]+\.[0-9]{2}$", lambda value: value >= 0),
            ("day", "^2026-", lambda value: value.year == 2026),
            ("text", "^O", lambda value: value.startswith("O")),
        )
    ),
    Case(
        "column_values_to_be_in_set",
        {
            "column": "paid",
            "value_set": [1.1],
            "row_condition": "small > 0",
            "condition_parser": "pandas",
        },
        lambda row: (
            None if row["small"] is None or row["small"] <= 0 else row["paid"] == Decimal("1.1")
        ),
    ),
    Case("column_max_to_be_between", {"column": "paid", "max_value": 2.2}, met=True),
    Case("column_max_to_be_between", {"column": "paid", "max_value": 2.19}, met=False),
    Case("column_min_to_be_between", {"column": "paid", "min_value": -3.3}, met=True),
    Case("column_max_to_be_between", {"column": "big", "max_value": BIG - 1}, met=False),
    Case("column_max_to_be_between", {"column": "unsigned", "min_value": UNSIGNED}, met=True),
    Case("column_min_to_be_between", {"column": "day", "min_value": "1970-01-01"}, met=False),
    Case(
        "column_max_to_be_between",
        {"column": "at", "max_value": "2026-03-01T10:00:00.000006"},
        met=True,
    ),
    Case("column_sum_to_be_between", {"column": "paid", "min_value": 0, "max_value": 0}, met=True),
    Case(
        "column_sum_to_be_between",
        {"column": "big", "min_value": BIG - 1, "max_value": BIG - 1},
        met=True,
    ),
    Case(
        "column_distinct_values_to_be_in_set",
        {"column": "paid", "value_set": [1.1, 2.2, -3.3]},
        met=True,
    ),
    Case(
        "column_distinct_values_to_be_in_set",
        {"column": "day", "value_set": ["2026-03-01"]},
        met=False,
    ),
    Case(
        "column_most_common_value_to_be_in_set",
        {"column": "clock", "value_set": ["36000000000", "-1"], "ties_okay": True},
        met=True,
        only_pandas=True,
    ),
    *(
        Case(f"column_{name}_set", {"column": column, "value_set": suite}, met=met)
        for name, column, suite, met in (
            ("distinct_values_to_contain", "small", ["1", 2.0, None], True),
            ("distinct_values_to_contain", "small", ["1", "1.5"], False),
            ("distinct_values_to_equal", "small", ["1", 2, "-7", None], True),
            ("distinct_values_to_equal", "flag", [0, 1], True),
        )
    ),
    _unknown(
        "column_values_to_be_in_set", "does not compare with column text", "text", value_set=[1]
    ),
    _unknown("column_values_to_not_be_in_set", "a int of the suite does not", "day", value_set=[5]),
    _unknown("column_values_to_not_be_in_set", "which is timestamp", "at", value_set=["new"]),
    _unknown(
        "column_values_to_be_in_set",
        "which is timestamp_ntz",
        "wall",
        value_set=["2026-03-01T00:00:00Z"],
    ),
    _unknown("column_values_to_be_in_set", "which is binary", "raw", value_set=["b"]),
    _unknown("column_values_to_be_between", "which has no bounds", "flag", min_value=0),
    _unknown(
        "column_values_to_be_between", "min_value is above", "paid", min_value="2", max_value="1"
    ),
    _unknown("column_values_to_match_regex", "no one text form", "at", regex="^2026"),
    _unknown("column_values_to_match_regex", "no one text form", "ratio", regex="^1"),
    _unknown("column_distinct_values_to_equal_set", "does not compare", "paid", value_set=[1.1]),
    _unknown(
        "column_most_common_value_to_be_in_set", "does not compare", "day", value_set=["2026-03-01"]
    ),
    Case(
        "column_pair_values_to_be_equal",
        {"column_A": "paid", "column_B": "ratio"},
        unknown="do not compare exactly",
    ),
    *(
        Case(
            "column_values_to_not_be_null",
            {"column": "text", "row_condition": condition, "condition_parser": "pandas"},
            unknown="its row condition compares",
            only_pandas=True,
        )
        for condition in REFUSED_CONDITIONS
    ),
)
