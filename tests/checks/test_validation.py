"""What is kept of a validation result for its page: bounded, and no value of a row."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from checks.validation import (
    CHANGES,
    LONGEST_ARGUMENTS,
    LONGEST_KEY,
    MOST_SHOWN,
    WHOLE,
    ValidationResult,
    bound_results,
    load_results,
)
from pipeline.suites import ExpectationResult, ExpectationSettings

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
