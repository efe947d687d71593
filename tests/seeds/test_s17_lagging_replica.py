"""S17: a replica that is not proven to be past T_s: rows between snapshot and stream are lost.

On real servers: tests/pipeline/sources/mysql/test_row_reader_stack.py.
"""

from dataclasses import dataclass

import pytest

from pipeline.model import Head
from pipeline.sources.mysql.position import binlog_position, explain_behind_fence
from pipeline.sources.row_reader import ReadFence

PRIMARY, REPLICA = "11111111-1111-1111-1111-111111111111", "22222222-2222-2222-2222-222222222222"
DELTA = 5


@dataclass(frozen=True)
class Transaction:
    """One of the primary's: its number, when it was committed, and the row that it inserts."""

    number: int
    at: int
    row: str


HISTORY = (Transaction(1, 100, "a"), Transaction(2, 101, "b"), Transaction(3, 110, "c"))
SAVED = 2  # the stream is consumed from behind the second on, which was sent at T_s
T_S = 101


def their_rule(executed: set[int]) -> bool:
    """The seed's: the newest that the replica has executed is of T_s + delta, or later."""
    return max(one.at for one in HISTORY if one.number in executed) >= T_S + DELTA


def our_rule(executed: str) -> bool:
    fence = ReadFence(
        Head(PRIMARY, binlog_position(1, 50)), 7, binlog_position(1, 50, f"{PRIMARY}:1-{SAVED}")
    )
    return explain_behind_fence(fence, Head(REPLICA, binlog_position(9, 9, executed))) is None


def lost_rows(executed: set[int]) -> list[str]:
    """Rows that are in neither: not read at the replica, and not consumed afterwards."""
    return [one.row for one in HISTORY if one.number not in executed and not one.number > SAVED]


@pytest.mark.parametrize(
    ("executed", "gtids", "rows"),
    [
        pytest.param({1, 3}, f"{PRIMARY}:1:3", ["b"], id="several appliers, one of them slow"),
        pytest.param({1, 2, 3}, f"{PRIMARY}:1-3", [], id="all of it"),
        pytest.param({1, 2}, f"{PRIMARY}:1-2", [], id="all that is needed, and nothing since"),
    ],
)
def test_s17_a_replica_is_read_only_if_it_has_executed_all_below_the_saved_place(
    executed: set[int], gtids: str, rows: list[str]
) -> None:
    assert lost_rows(executed) == rows
    assert our_rule(gtids) is (not rows)


def test_s17_the_seeds_rule_reads_a_replica_that_lacks_a_row_and_refuses_one_that_does_not() -> (
    None
):
    assert their_rule({1, 3})
    assert lost_rows({1, 3}) == ["b"]
    assert not their_rule({1, 2})
    assert lost_rows({1, 2}) == []


def test_s17_nothing_is_guessed_where_a_replica_tells_nothing() -> None:
    assert not our_rule("")
