"""What is verified never goes past a row that is not settled."""

from dataclasses import replace
from datetime import timedelta

import pytest

from checks.compare.changed import (
    ChangedLook,
    ChangedProgress,
    LogSegment,
    NewestIds,
    look_at_changes,
)
from checks.compare.look import Comparison, choose_columns
from pipeline.model import Op
from tests.checks.world_fake import ONE, START, TABLE, FakeWorld

A, B = (ONE, 1), (ONE, 2)
KEY = ("shop", "shop_00.orders", '["1"]')


def look(seconds: int, *, last: tuple[str, str, str] | None = None) -> ChangedLook:
    """One that held everything up to then; it is whole without a *last* key."""
    return ChangedLook((), 1, LogSegment(1, 2, last), START + timedelta(seconds=seconds))


def test_a_row_that_is_left_holds_back_its_own_segment_and_no_earlier_one() -> None:
    one = ChangedProgress(LogSegment(0, 0), START).settled(look(1), [A], [])
    assert one.through is None
    two = one.settled(look(2), [A], [])
    assert two.through is None  # it is of the first segment still
    three = two.settled(look(3), [B], [])
    assert three.through == START + timedelta(seconds=2)  # B was changed after that
    four = three.settled(look(4), [], [B])
    assert four.through == START + timedelta(seconds=2)
    assert four.settled(look(5), [], []).through == START + timedelta(seconds=5)


def test_a_segment_counts_once_all_of_its_rows_were_looked_at() -> None:
    half = ChangedProgress(LogSegment(0, 0), START).settled(look(1, last=KEY), [], [])

    assert (half.through, half.looked, half.segment.last) == (None, None, KEY)
    assert half.settled(look(2), [], []).through == START + timedelta(seconds=2)


@pytest.mark.parametrize(
    ("known", "highest", "changed", "span"),
    [
        ((10, 10), 10, [], (11, 11)),
        ((10, 15), 20, [], (11, 16)),
        ((10, 15), 20, [3, 18], (11, 19)),
        ((10, 15), 20, [30], (11, 21)),
        ((10, 15), 12, [], (11, 13)),
        ((10, 15), 4, [], (5, 5)),
        ((10, 15), 0, [12], (1, 1)),
    ],
    ids=[
        "nothing new",
        "those that the last look saw",
        "and those up to a change that is merged",
        "but none that the source does not have",
        "some of them were deleted",
        "ids start over",
        "no row is left",
    ],
)
def test_the_newest_ids_are_those_above_what_was_compared(
    known: tuple[int, int], highest: int, changed: list[int], span: tuple[int, int]
) -> None:
    assert NewestIds(*known).span(highest, changed) == span


@pytest.mark.parametrize(
    ("known", "batch", "next_"),
    [
        (LogSegment(3, 7), 9, LogSegment(7, 9)),
        (LogSegment(3, 7), 7, LogSegment(7, 7)),
        (LogSegment(3, 7, KEY), 9, LogSegment(3, 7, KEY)),
        (LogSegment(3, 7), 5, LogSegment(5, 5)),
        (LogSegment(3, 7, KEY), 5, LogSegment(3, 5)),
        (LogSegment(3, 7, KEY), 2, LogSegment(2, 2)),
    ],
    ids=["newer", "same", "continued", "put back", "put back within", "put back before"],
)
def test_a_segment_ends_where_the_mirror_is(
    known: LogSegment, batch: int, next_: LogSegment
) -> None:
    assert known.continued(batch) == next_


def test_progress_is_read_back_as_it_was_written() -> None:
    made = ChangedProgress(LogSegment(3, 7, KEY), START, (A,), (B,), START, None)

    assert ChangedProgress.loads(made.dumps(), TABLE) == made


def test_a_mirror_that_was_put_back_has_verified_no_more_than_it_holds() -> None:
    later, earlier = START + timedelta(seconds=3), START + timedelta(seconds=1)
    known = ChangedProgress(LogSegment(3, 7), START, looked=later, through=later)

    back = known.put_back(5, 7, earlier)

    assert (back.looked, back.through, back.segment) == (earlier, earlier, LogSegment(5, 5))
    assert known.put_back(5, 7, None).through is None
    assert back.put_back(2, 5, earlier).again == back.again == 7  # all is looked at again


@pytest.mark.parametrize(
    ("rest", "again"),
    [
        pytest.param(LogSegment(7, 7), None, id="all up to it was looked at"),
        pytest.param(LogSegment(8, 8), None, id="and more"),
        pytest.param(LogSegment(6, 6), 7, id="all of a segment before it"),
        pytest.param(LogSegment(3, 7, KEY), 7, id="some rows are left"),
    ],
)
def test_a_mirror_that_was_put_back_is_known_again_once_all_was_looked_at_again(
    rest: LogSegment, again: int | None
) -> None:
    known = ChangedProgress(LogSegment(3, 3), START, again=7)

    assert known.settled(replace(look(1), rest=rest), [], []).again == again


def test_of_rows_that_are_looked_at_again_as_many_as_are_read_at_once_have_their_turn() -> None:
    world = FakeWorld()
    world.commit(*((Op.CREATE, ONE, id_) for id_ in range(6)))
    world.catch_up()
    schema = world.schema(ONE)
    assert schema is not None
    columns = {ONE: choose_columns(TABLE, ONE, schema, world)}
    comparison = Comparison(TABLE, world, columns, at_once=2)
    pending = ((ONE, 99), (ONE, 3), (ONE, 97), (ONE, 96))
    progress = ChangedProgress(LogSegment(-1, -1), START, pending=pending)
    known, world.in_time = ((ONE, 90), (ONE, 80), (ONE, 97)), 2

    look = look_at_changes(comparison, progress, 4, known)

    assert look.left == ((ONE, 97), (ONE, 96))
    assert sum(one.ranges for one in look.looks) == 2 + 2 + 2  # as many have changed
    assert ChangedLook.loads(look.dumps(), TABLE).left == look.left


def test_rows_that_are_pending_count_among_those_that_are_looked_at() -> None:
    world = FakeWorld()
    world.commit(*((Op.CREATE, ONE, id_) for id_ in range(20)))
    world.catch_up()
    schema = world.schema(ONE)
    assert schema is not None
    comparison = Comparison(TABLE, world, {ONE: choose_columns(TABLE, ONE, schema, world)})
    progress = ChangedProgress(LogSegment(-1, -1), START, pending=((ONE, 98), (ONE, 99)))

    look = look_at_changes(comparison, progress, 6)

    assert (look.rows, look.whole) == (6, False)
