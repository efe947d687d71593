from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from checks.model import NotYet, Outcome, Ruling
from checks.probes.expectations import Content, ExpectationResults, Expectations
from checks.world import MirrorSide
from pipeline.model import Table
from tests.checks.world_fake import TABLE, FakeWorld

# Great Expectations imports what Python and pandas have deprecated.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")

THOROUGH = pytest.mark.thorough  # to import Great Expectations costs more than hundreds of tests

DAY = datetime(2026, 1, 1, tzinfo=UTC)
ROWS: Sequence[Mapping[str, Any]] = [
    {"id": 1, "email": "top-secret-1", "paid": Decimal("1.50"), "at": DAY},
    {"id": 2, "email": None, "paid": Decimal("9.99"), "at": DAY},
]
NOT_NULL = "expect_column_values_to_not_be_null"
BETWEEN = "expect_column_values_to_be_between"


class Sampled(FakeWorld):
    """A world whose mirror holds the rows above."""

    rows_: Sequence[Mapping[str, Any]] = ROWS

    def mirror(self, table: Table) -> Any:
        side: MirrorSide = super().mirror(table)
        side.sample = lambda limit: self.rows_[:limit]  # type: ignore[method-assign]
        return side


def ruled(*suite: ExpectationResults) -> Ruling:
    probe = Expectations(suite)
    reading = probe.measure(TABLE, Sampled())
    assert isinstance(reading, Content)
    return probe.judge(reading, [])


@pytest.mark.parametrize(
    ("suite", "outcome", "says"),
    [
        pytest.param(
            [ExpectationResults(NOT_NULL, {"column": "id"})], Outcome.PASS, "1 expec", id="met"
        ),
        pytest.param(
            [
                ExpectationResults(NOT_NULL, {"column": "email"}),
                ExpectationResults(NOT_NULL, {"column": "id"}),
            ],
            Outcome.FAIL,
            f"{NOT_NULL}(email): 1 of 2 rows",
            id="not met",
        ),
        pytest.param(
            [ExpectationResults(BETWEEN, {"column": "paid", "max_value": 5})],
            Outcome.FAIL,
            f"{BETWEEN}(paid): 1 of 2 rows",
            id="decimals compare",
        ),
        pytest.param(
            [ExpectationResults(NOT_NULL, {"column": "gone"})],
            Outcome.UNKNOWN,
            "(gone): it",
            id="no column",
        ),
        pytest.param(
            [ExpectationResults("expect_magic", {"column": "id"})],
            Outcome.UNKNOWN,
            "no such",
            id="no such",
        ),
        pytest.param(
            [ExpectationResults(NOT_NULL, {"colum": "id"})],
            Outcome.UNKNOWN,
            "wrong arg",
            id="misspelt",
        ),
    ],
)
@THOROUGH
def test_a_suite_is_evaluated_on_the_newest_rows(
    suite: list[ExpectationResults], outcome: Outcome, says: str
) -> None:
    ruling = ruled(*suite)

    assert ruling.outcome is outcome
    assert says in ruling.reason


@THOROUGH
def test_no_value_of_a_row_leaves_the_probe() -> None:
    probe = Expectations(
        (
            ExpectationResults(
                "expect_column_values_to_be_in_set", {"column": "email", "value_set": ["x"]}
            ),
        )
    )

    reading = probe.measure(TABLE, Sampled())

    assert isinstance(reading, Content)
    assert "secret" not in str(reading)
    assert "secret" not in str(probe.judge(reading, []))
    assert reading.value == 1.0


def test_without_a_suite_or_rows_there_is_nothing_to_rule_on() -> None:
    empty = Sampled()
    empty.rows_ = []

    assert isinstance(Expectations().measure(TABLE, Sampled()), NotYet)
    assert isinstance(Expectations((ExpectationResults(NOT_NULL),)).measure(TABLE, empty), NotYet)
