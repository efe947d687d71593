"""S18: "a row is in the main table or in the error table" was promised, and never counted."""

from collections import Counter
from pathlib import Path

import pytest

from monitor.store.history import nonzero_terms
from pipeline.apply.account import (
    ChangeCounts,
    MainAndError,
    balance_account,
    find_unexplained,
    main_and_error,
)
from pipeline.model import Op
from tests.builders.lake import LocalLake, row


def test_s18_a_row_in_neither_table_is_found() -> None:
    arrived, in_main, in_error = 10, 8, 1

    assert in_main + in_error < arrived, "the seed does not look"
    account = balance_account(ChangeCounts(10, 9, 9, 9, 0, 0, 1), applied=in_main, noop=0)
    hold = find_unexplained("shop.orders", 7, account)
    assert hold is not None
    assert "1 of 10" in hold.detail


def test_s18_main_and_error_rows_add_up_on_a_real_table(tmp_path: Path) -> None:
    lake = LocalLake(tmp_path)
    broken = {**row(Op.ERROR, 0, 2), "order": None, "key": None}
    lake.land(row(Op.CREATE, 10, 1, "a"), broken)

    account = lake.apply().account

    assert (account.read, account.applied, account.quarantined) == (2, 1, 1)
    assert account.residual == 0


ODD = {**row(Op.ERROR, 0, 2), "order": None, "key": None, "offset": 20}
NAME = "s.db.t:0:20@0"


@pytest.mark.parametrize("late", [False, True], ids=["turn by turn", "all in one slice"])
@pytest.mark.parametrize(
    ("mended", "main"),
    [
        pytest.param([row(Op.CREATE, 20, 2, "b")], 3, id="a row"),
        pytest.param([row(Op.UPDATE, 9, 1, "old")], 3, id="a row that a newer one has outlived"),
        pytest.param(
            [row(Op.CREATE, 20, 2, "b"), row(Op.CREATE, 21, 3, "c")], 4, id="two of one message"
        ),
    ],
)
def test_s18_a_message_that_is_corrected_is_counted_once(
    tmp_path: Path, mended: list[dict[str, object]], main: int, *, late: bool
) -> None:
    lake, sums = LocalLake(tmp_path), Counter[str]()

    lake.land(row(Op.CREATE, 10, 1, "a"), ODD, row(Op.CREATE, 11, 9, "z"))
    if not late:
        sums.update(nonzero_terms(lake.apply().account))
        assert main_and_error(sums) == MainAndError(read=3, main=2, error=1)
    names = [NAME, None, None]  # its rows bear its name as often as it was counted: once
    lake.land(
        *({**one, "offset": 20, "error": name} for one, name in zip(mended, names, strict=False))
    )
    sums.update(nonzero_terms(lake.apply().account))

    assert main_and_error(sums) == MainAndError(read=main, main=main, error=0)
    assert main_and_error(sums).lost == 0
    assert (sums["read"], sums["corrected"]) == (main + 1, 1), "without it, one would be too many"
