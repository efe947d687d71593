"""S18: "a row is in the main table or in the error table" was promised, and never counted."""

from pathlib import Path

from pipeline.apply.account import Counted, balance, unexplained
from pipeline.model import Op
from tests.pipeline.hand_lake import HandLake, row


def test_s18_a_row_in_neither_table_is_found() -> None:
    arrived, in_main, in_error = 10, 8, 1

    assert in_main + in_error < arrived, "the seed does not look"
    account = balance(Counted(10, 9, 9, 9, 0, 0, 1), applied=in_main, noop=0)
    hold = unexplained("shop.orders", 7, account)
    assert hold is not None
    assert "1 of 10" in hold.detail


def test_s18_main_and_error_rows_add_up_on_a_real_table(tmp_path: Path) -> None:
    lake = HandLake(tmp_path)
    broken = {**row(Op.ERROR, 0, 2), "order": None, "key": None}
    lake.land(row(Op.CREATE, 10, 1, "a"), broken)

    account = lake.apply().account

    assert (account.read, account.applied, account.quarantined) == (2, 1, 1)
    assert account.residual == 0
