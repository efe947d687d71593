"""Expectations on every kind of column: the same as a plain look at each row, in both engines."""

from dataclasses import replace
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from pipeline.comparisons import (
    Columns,
    IncomparableError,
    Verdict,
    WholeVerdict,
    fit_values,
    plan_comparison,
    plan_match,
)
from pipeline.model import Shard, Table
from pipeline.row_conditions import (
    list_condition_columns,
    require_comparisons,
    require_plain_condition,
)
from pipeline.suites import (
    ExpectationResult,
    SuiteLook,
    evaluate_by_spark,
    evaluate_rows,
)
from tests.checks.suite_cases import (
    CASES,
    PARTIAL_CONDITIONS,
    PLAIN_CONDITIONS,
    ROWS,
    RUN_CONDITIONS,
    SCHEMA,
    TABLE,
    Case,
)

# Great Expectations imports what Python and pandas have deprecated.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")

SHARD = Shard("shop", "s.t")
OF = Table("shop.t", (SHARD,), ("id",), "id")
TYPES = {one.name: one.type for one in SCHEMA}


def say(case: Case, found: ExpectationResult, *, named: bool = True) -> str:
    """What is wrong with what was found; empty if nothing is."""
    if case.unknown:
        right = found.met is None and case.unknown in found.text
    elif case.of_row is None:
        right = found.met is case.met
    else:
        bad = case.find_unexpected()
        keys = tuple(f"{SHARD}:{one}" for one in bad) if named else ()
        right = (found.met, found.unexpected, found.keys) == (not bad, len(bad), keys)
    return "" if right else f"{case.id}: {found}"


def planned(case: Case) -> Verdict | WholeVerdict | None:
    require_plain_condition(case.kwargs.get("row_condition"), Columns(TYPES))
    return plan_comparison(case.settings.type, case.kwargs, Columns(TYPES))


@pytest.mark.parametrize("case", [one for one in CASES if one.of_row], ids=lambda one: one.id)
def test_a_planned_comparison_finds_what_a_plain_look_at_each_row_finds(case: Case) -> None:
    plan = planned(case)

    if plan is None:  # the engine itself evaluates it: see the next test
        assert case.name in ("column_values_to_match_regex", "column_values_to_not_be_null")
        return
    assert isinstance(plan, Verdict)
    assert case.of_row is not None
    bad = tuple(
        row["id"]
        for row, met in zip(ROWS, plan.evaluate(TABLE).to_pylist(), strict=True)
        if met is False and ("row_condition" not in case.kwargs or case.of_row(row) is not None)
    )  # the engine leaves out rows that do not meet a condition
    assert bad == case.find_unexpected()


@pytest.mark.parametrize("case", [one for one in CASES if one.unknown], ids=lambda one: one.id)
def test_what_cannot_be_compared_names_its_column(case: Case) -> None:
    with pytest.raises(IncomparableError) as refused:
        planned(case)

    assert case.unknown in str(refused.value)


@pytest.mark.parametrize(
    ("column", "suite", "handed"),
    [
        ("small", ["1", 2.0, None, 1.5], [1, 2, 1.5]),
        ("flag", [1, 0.0], [True, False]),
        ("text", [None], [None]),
    ],
)
def test_an_engine_gets_values_of_the_columns_kind(
    column: str, suite: list[Any], handed: list[Any]
) -> None:
    for name in ("distinct_values_to_contain_set", "most_common_value_to_be_in_set"):
        kwargs = {"column": column, "value_set": suite}

        fitted = fit_values(f"expect_column_{name}", kwargs, Columns(TYPES))["value_set"]

        assert [(one, type(one)) for one in fitted] == [(one, type(one)) for one in handed]


@pytest.mark.parametrize("condition", PLAIN_CONDITIONS, ids=str)
def test_a_row_condition_that_pandas_compares_right_is_not_refused(condition: Any) -> None:
    require_plain_condition(condition, Columns(TYPES))
    require_comparisons(condition)


@pytest.mark.parametrize("condition", RUN_CONDITIONS, ids=lambda one: str(one)[:60])
def test_a_row_condition_that_does_more_than_compare_is_refused(condition: Any) -> None:
    with pytest.raises(IncomparableError, match=r"more than compare columns|cannot be read"):
        require_comparisons(condition)


def test_a_row_condition_with_a_fault_of_syntax_is_said_to_have_one() -> None:
    with pytest.raises(IncomparableError, match="cannot be read: invalid syntax; "):
        require_comparisons("state==")


def test_an_empty_row_condition_is_refused() -> None:
    with pytest.raises(IncomparableError, match="its row condition is empty; leave it out"):
        require_comparisons("")


@pytest.mark.parametrize(
    ("condition", "columns"),
    [
        ("quantiy > 70", ["quantiy"]),
        ("`a b` == 'c' and not d.isnull() or (e in [1, f])", ["a b", "e", "f", "d"]),
        ("`a b` > quoted_", ["a b", "quoted_"]),
        ("`a b` > quoted and \uff51uoted_ == quoted", ["a b", "quoted", "quoted", "quoted_"]),
        ("`quoted` > 1", ["quoted"]),
        ("text.str.len() > 3 and day == date('2026-01-01')", ["text", "day"]),
        ("flag == True and text != 'True'", ["flag", "text"]),
        ('col("at").notNull()', ["at"]),
        ('col("state") == "new"', ["state"]),
        (
            {
                "type": "and",
                "conditions": [
                    {"type": "nullity", "column": {"name": "a"}, "is_null": True},
                    {"type": "pass_through", "pass_through_filter": "b > 1"},
                ],
            },
            ["a", "b"],
        ),
        (None, []),
    ],
    ids=str,
)
def test_the_columns_of_a_row_condition_are_listed(condition: Any, columns: list[str]) -> None:
    require_comparisons(condition)

    assert sorted(list_condition_columns(condition)) == sorted(columns)


@pytest.mark.parametrize("condition", PARTIAL_CONDITIONS)
def test_a_row_condition_that_great_expectations_reads_in_part_is_refused(condition: str) -> None:
    with pytest.raises(IncomparableError, match="is not one comparison with a plain value"):
        require_comparisons(condition)


@pytest.mark.thorough  # to import Great Expectations costs more than hundreds of tests
def test_pandas_evaluates_each_kind_of_column_right() -> None:
    found = evaluate_rows(TABLE, OF, [one.settings for one in CASES])

    assert [
        wrong for case, one in zip(CASES, found, strict=True) if (wrong := say(case, one))
    ] == []


@pytest.mark.spark
def test_spark_evaluates_each_kind_of_column_right(spark: Any) -> None:
    frame = spark.createDataFrame(TABLE)  # without zones, which Spark has only when asked
    frame = frame.withColumn("wall", frame.wall.cast("timestamp_ntz"))
    plans = [
        (case, plan) for case in CASES if case.of_row and isinstance(plan := planned(case), Verdict)
    ]
    by_suite = [one for one in CASES if not one.only_pandas]
    by_suite = [*by_suite[::7], *(one for one in by_suite if not one.of_row)]
    keyless = replace(OF, key=())  # to name rows would take a validation for each case
    look = SuiteLook(keyless, 0, 0, None, "state", tuple(one.settings for one in by_suite))

    columns = [f"{plan.sql} AS met_{number}" for number, (_, plan) in enumerate(plans)]
    rows = frame.selectExpr("id", *columns).orderBy("id").toArrow()
    found = evaluate_by_spark(frame, look).results

    differing = [
        case.id
        for number, (case, plan) in enumerate(plans)
        if rows[f"met_{number}"].to_pylist() != plan.evaluate(TABLE).to_pylist()
    ]
    assert differing == []
    results = zip(by_suite, found, strict=True)
    assert [wrong for case, one in results if (wrong := say(case, one, named=False))] == []


@pytest.mark.parametrize(
    ("name", "arguments", "met"),
    [
        ("match_regex", {"regex": r"^(\w+\.?)+@x$"}, [False, True, None]),
        ("not_match_regex", {"regex": r"^(\w+\.?)+@x$"}, [True, False, None]),
        ("match_regex", {"regex": "@"}, [False, True, None]),
        ("match_regex_list", {"regex_list": ["!", "@"]}, [True, True, None]),
        ("match_regex_list", {"regex_list": ["a", "@"], "match_on": "all"}, [False, True, None]),
        ("not_match_regex_list", {"regex_list": ["!", "#"]}, [False, True, None]),
    ],
)
def test_a_regular_expression_ends_on_every_text(
    name: str, arguments: dict[str, Any], met: list[bool | None]
) -> None:
    name, kwargs = f"expect_column_values_to_{name}", {"column": "mail", **arguments}
    rows = pa.table({"mail": ["\u00e9" + "a" * 1000 + "!", "a@x", None]})

    plan = plan_match(name, kwargs)

    assert plan is not None
    assert plan.evaluate(rows).to_pylist() == met


def test_numbers_decimals_and_days_are_matched_as_their_text() -> None:
    rows = pa.table({"n": [17], "paid": [Decimal("-1.50")], "day": [date(2026, 1, 2)]})

    for column, text in (("n", "17"), ("paid", "-1.50"), ("day", "2026-01-02")):
        kwargs = {"column": column, "regex": f"^{text}$"}
        plan = plan_match("expect_column_values_to_match_regex", kwargs)
        assert plan is not None
        assert plan.evaluate(rows).to_pylist() == [True], column
