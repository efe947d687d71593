"""What is kept of a validation result for its page: bounded, and no value of a row."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from checks.validation import (
    CHANGES,
    LARGEST,
    LONGEST_ARGUMENTS,
    LONGEST_KEY,
    MOST_SHOWN,
    WHOLE,
    ValidationResult,
    bound_results,
    load_results,
)
from pipeline.suites import ExpectationResult, ExpectationSettings, name_expectation

AT = datetime(2026, 3, 28, tzinfo=UTC)
BETWEEN = "expect_column_values_to_be_between"


def result(met: bool | None = True, **more: object) -> ExpectationResult:
    return ExpectationResult(f"{BETWEEN}(id)", met, **more)  # type: ignore[arg-type]


def expect(**kwargs: object) -> ExpectationSettings:
    return ExpectationSettings(BETWEEN, kwargs)


def test_arguments_are_those_of_the_suite_without_its_columns() -> None:
    ((shown,), left_out) = bound_results([expect(column="id", min_value=3)], [result()])

    assert (shown.columns, shown.arguments, left_out) == (("id",), '{"min_value": 3}', 0)


def test_what_could_not_be_evaluated_says_why() -> None:
    odd = ExpectationResult(f"{BETWEEN}(id): wrong arguments", None)

    ((shown,), _) = bound_results([expect(column="id")], [odd])

    assert (shown.met, shown.why) == (None, "wrong arguments")


def test_texts_and_keys_of_a_suite_are_cut() -> None:
    long = expect(column="c" * 9_999, value_set=["v" * 9_999])
    keys = tuple("k" * 9_999 for _ in range(20))

    ((shown,), _) = bound_results([long], [result(False, unexpected=99, keys=keys, rows=100)])

    assert {len(one) for one in (*shown.columns, *shown.keys)} == {LONGEST_KEY}
    assert len(shown.arguments) == LONGEST_ARGUMENTS
    assert shown.unnamed == 79


def test_of_many_expectations_those_that_are_not_met_are_kept_first() -> None:
    results = [result(n != 400) for n in range(500)]

    shown, left_out = bound_results([expect(column="id")] * 500, results)

    assert (len(shown), left_out, shown[0].met) == (MOST_SHOWN, 500 - MOST_SHOWN, False)


def test_an_expectation_names_ten_columns_and_counts_the_others() -> None:
    many = expect(column_list=[f"c{n}" for n in range(500)])

    ((shown,), _) = bound_results([many], [result()])

    assert shown.columns == (*(f"c{n}" for n in range(10)), "and 490 more")
    assert name_expectation(many) == f"{BETWEEN}({', '.join(shown.columns)})"
    assert name_expectation(expect(column_list=["a", "b"])) == f"{BETWEEN}(a, b)"


def test_what_is_kept_of_a_look_is_small_and_names_first_what_is_not_met() -> None:
    wide = expect(column_list=["\N{SNOWMAN}" * 200] * 200)
    keys = tuple("\N{SNOWMAN}" * 200 for _ in range(20))
    results = [result(n != 190, unexpected=99, keys=keys, rows=100) for n in range(200)]

    shown, left_out = bound_results([wide] * 200, results)

    kept = json.dumps(ValidationResult(AT, None, 9, 3, shown, left_out).dumps())
    assert LARGEST / 2 < len(kept) < LARGEST + 1_000
    assert (len(shown) + left_out, [one.met for one in shown].index(False)) == (200, 0)


SEEN = ValidationResult(AT, None, 9, 3, bound_results([expect(column="id")], [result()])[0]).dumps()


@pytest.mark.parametrize(
    "odd",
    [
        {"x": 1},
        [],
        "text",
        None,
        {**SEEN, "shown": None},
        {**SEEN, "shown": [{"x": 1}]},
        {**SEEN, "shown": [{**SEEN["shown"][0], "unexpected": "many"}]},
        {**SEEN, "at": "2026-03-28T00:00:00"},
        {**SEEN, "rows": {}},
        {**SEEN, "newer": 1},
    ],
    ids=str,
)
def test_a_result_of_another_shape_is_left_out(odd: object) -> None:
    (read,) = load_results({WHOLE: odd, CHANGES: json.loads(json.dumps(SEEN))})

    assert read.rows == 9
    assert load_results(odd) == ()


@pytest.mark.parametrize("kept", [None, {}])
def test_without_a_result_there_is_none(kept: dict[str, object] | None) -> None:
    assert load_results(kept) == ()


def test_results_are_read_back_with_the_newest_first() -> None:
    shown, _ = bound_results([expect(column="id")], [result(False, unexpected=1, keys=("a:1",))])
    whole = ValidationResult(AT, None, 9, 3, shown, 2)
    changes = replace(whole, at=AT + timedelta(minutes=1), after=3, rows=1, batch=4)
    kept = json.loads(json.dumps({WHOLE: whole.dumps(), CHANGES: changes.dumps()}))

    assert load_results(kept) == (changes, whole)
    assert load_results({WHOLE: kept[WHOLE]}) == (whole,)
    assert whole.unmet == 1
