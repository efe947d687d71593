from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.apply.account import Counted, balance, unexplained

COUNTED = Counted(read=20, rows=15, kept=8, distinct=12, ordered=1, tombstones=3, quarantined=1)


def test_every_change_read_is_in_exactly_one_term() -> None:
    account = balance(COUNTED, applied=6, noop=1, again=1)

    assert account.residual == 0
    assert (account.applied, account.noop, account.superseded, account.redelivered) == (7, 1, 4, 4)
    assert account.quarantined == 1
    assert account.ignored == {"tombstone": 3}


@pytest.mark.parametrize(
    ("counted", "applied"),
    [
        pytest.param(COUNTED, 5, id="one row less was applied than was kept"),
        pytest.param(COUNTED, 7, id="one row more"),
        pytest.param(replace(COUNTED, read=21), 6, id="a row of no known op"),
        pytest.param(replace(COUNTED, tombstones=2), 6, id="a tombstone went missing"),
    ],
)
def test_an_unexplained_change_holds_the_table(counted: Counted, applied: int) -> None:
    hold = unexplained("db.t", 7, balance(counted, applied=applied, noop=1, again=1))

    assert hold is not None
    assert (hold.id, hold.subject, hold.reason) == ("account:db.t:7", "db.t", "account")
    assert "1 of 2" in hold.detail


@given(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9), st.integers(0, 9))
def test_a_lost_row_is_found_wherever_it_was_lost(a: int, b: int, c: int, d: int) -> None:
    kept = a + b
    counted = Counted(a + b + c + d, a + b + c, kept, a + b + c, 0, d, 0)

    assert balance(counted, applied=a, noop=b).residual == 0
    assert balance(replace(counted, read=counted.read + 1), applied=a, noop=b).residual == 1
