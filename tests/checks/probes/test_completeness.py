import pytest

from checks.completeness import Tally, expected, tally
from checks.model import Outcome
from checks.probes.completeness import Completeness, Promises
from checks.world import Transaction


@pytest.mark.parametrize(
    ("transaction", "truth"),
    [
        pytest.param(Transaction("a", 7, 7, 1), 7, id="begun once"),
        pytest.param(
            Transaction("a", 52_997, 59_990, 1, begun=2, resumed=(6_994,)), 59_990, id="begun twice"
        ),
        pytest.param(
            Transaction("a", 10, 0, 1, begun=3, resumed=(4, 6)), 18, id="begun three times"
        ),
        pytest.param(Transaction("a", 10, 0, 1, begun=2, resumed=(1,)), 10, id="from its start"),
        pytest.param(Transaction("a", 10, 0, 1, begun=2), None, id="resumed nobody knows where"),
    ],
)
def test_a_restarted_transaction_counts_its_first_run_up_to_the_second(
    transaction: Transaction, truth: int | None
) -> None:
    assert expected(transaction) == truth


SHORT = Transaction("s", 3, 2, 1)
OVER = Transaction("o", 3, 4, 1)
WHOLE = Transaction("w", 3, 3, 1)
VAGUE = Transaction("v", 3, 3, 1, begun=2)


def test_both_signs_are_counted() -> None:
    assert tally([SHORT, OVER, WHOLE, VAGUE]) == Tally(1, (SHORT,), (OVER,), 1)


@pytest.mark.parametrize(
    ("transactions", "outcome", "code", "value"),
    [
        pytest.param([WHOLE], Outcome.PASS, "", 0.0, id="complete"),
        pytest.param([], Outcome.PASS, "", 0.0, id="idle"),
        pytest.param([WHOLE, SHORT], Outcome.FAIL, "missing_events", 1.0, id="short"),
        pytest.param([OVER], Outcome.FAIL, "extra_events", -1.0, id="over"),
        pytest.param([VAGUE], Outcome.UNKNOWN, "begun_again", 0.0, id="nothing can be told"),
        pytest.param([VAGUE, WHOLE], Outcome.PASS, "", 0.0, id="the rest is complete"),
    ],
)
def test_a_tally_is_ruled_on(
    transactions: list[Transaction], outcome: Outcome, code: str, value: float
) -> None:
    reading = Promises((), 9, tally(transactions))

    ruling = Completeness().judge(reading, [])

    assert (ruling.outcome, ruling.code, reading.value) == (outcome, code, value)
    assert outcome is not Outcome.FAIL or ruling.keys
