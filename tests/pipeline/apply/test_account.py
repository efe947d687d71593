from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.apply.account import (
    ChangeCounts,
    MainAndError,
    balance_account,
    find_miscount,
    find_unexplained,
    main_and_error,
)
from pipeline.apply.mirror import Commit

COUNTED = ChangeCounts(
    read=20, rows=15, kept=8, distinct=12, ordered=1, tombstones=3, quarantined=1
)


def test_every_change_read_is_in_exactly_one_term() -> None:
    account = balance_account(COUNTED, applied=6, noop=1, again=1)

    assert account.residual == 0
    assert (account.applied, account.noop, account.superseded, account.redelivered) == (7, 1, 4, 4)
    assert account.quarantined == 1
    assert account.ignored == {"tombstone": 3}
    assert account.corrected == 0
    assert find_unexplained("db.t", 7, account) is None


def test_a_delete_whose_row_stays_in_the_mirror_is_ignored_by_the_name_of_its_rule() -> None:
    account = balance_account(COUNTED, applied=4, noop=1, again=1, archived=2)

    assert account.residual == 0
    assert account.ignored == {"tombstone": 3, "archived": 2}


@pytest.mark.parametrize(
    ("counted", "applied"),
    [
        pytest.param(COUNTED, 5, id="one row less was applied than was kept"),
        pytest.param(COUNTED, 7, id="one row more"),
        pytest.param(replace(COUNTED, read=21), 6, id="a row of no known op"),
        pytest.param(replace(COUNTED, tombstones=2), 6, id="a tombstone went missing"),
    ],
)
def test_an_unexplained_change_holds_the_table(counted: ChangeCounts, applied: int) -> None:
    hold = find_unexplained("db.t", 7, balance_account(counted, applied=applied, noop=1, again=1))

    assert hold is not None
    assert (hold.id, hold.subject, hold.reason) == ("account:db.t:7", "db.t", "account")
    assert "1 of 2" in hold.detail


@given(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9), st.integers(0, 9))
def test_a_lost_row_is_found_wherever_it_was_lost(a: int, b: int, c: int, d: int) -> None:
    kept = a + b
    counted = ChangeCounts(a + b + c + d, a + b + c, kept, a + b + c, 0, d, 0)

    assert balance_account(counted, applied=a, noop=b).residual == 0
    assert balance_account(replace(counted, read=counted.read + 1), applied=a, noop=b).residual == 1


@pytest.mark.parametrize(
    ("told", "held"),
    [
        pytest.param({"numTargetRowsInserted": "2"}, False, id="as it was decided"),
        pytest.param({"numTargetRowsInserted": "3"}, True, id="another number"),
        pytest.param({}, True, id="not told"),
    ],
)
def test_a_merge_that_did_not_do_what_was_decided_holds_its_mirror(
    told: dict[str, str], held: bool
) -> None:
    own = {"after": 4, "batch": 7, "counts": {"numTargetRowsInserted": 2}}
    at = datetime(2026, 1, 1, tzinfo=UTC)
    commit = Commit(5, "MERGE", at, note={"sluice": own}, metrics=told)

    hold = find_miscount("db.t", commit)

    assert (hold is not None) == held
    assert hold is None or hold.id == "account:db.t:7"
    assert find_miscount("db.t", replace(commit, note={"sluice": {"after": 4}})) is None


@pytest.mark.parametrize(
    ("totals", "found"),
    [
        pytest.param({}, MainAndError(read=0, main=0, error=0), id="no account"),
        pytest.param(
            {"read": 9, "applied": 1, "noop": 2, "superseded": 3, "redelivered": 3},
            MainAndError(read=9, main=9, error=0),
            id="the four terms of the main table",
        ),
        pytest.param(
            {"read": 6, "applied": 1, "ignored:tombstone": 2, "ignored:archived": 3},
            MainAndError(read=6, main=6, error=0),
            id="what a rule ignores is in the main table",
        ),
        pytest.param(
            {"read": 5, "applied": 2, "quarantined": 3, "corrected": 1},
            MainAndError(read=4, main=2, error=2),
            id="a corrected message was read twice",
        ),
    ],
)
def test_each_change_is_in_the_main_table_or_in_the_error_table(
    totals: dict[str, int], found: MainAndError
) -> None:
    assert main_and_error(totals) == found
    assert found.lost == 0


def test_a_change_in_neither_table_is_lost() -> None:
    assert main_and_error({"read": 5, "applied": 2, "quarantined": 2}).lost == 1
