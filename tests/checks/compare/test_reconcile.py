"""A range is equal at one position between two looks, or it is not equal."""

import random

from hypothesis import given
from hypothesis import strategies as st

from checks.compare.reconcile import (
    NO_ROW,
    RangeLook,
    RowChange,
    drop_redelivered,
    find_position,
    split_changes,
)
from pipeline.model import Order
from pipeline.row_digest import DigestColumn, Form, RangeDigest, digest_row

COLUMNS = (DigestColumn("id", Form.INTEGER), DigestColumn("v", Form.TEXT))
SPAN = (0, 100)


def digest(id_: int, value: str | None) -> RangeDigest:
    return NO_ROW if value is None else digest_row(COLUMNS, [id_, value])


def total(rows: dict[int, str]) -> RangeDigest:
    return sum((digest(*row) for row in rows.items()), NO_ROW)


values = st.one_of(st.none(), st.sampled_from(["", "a", "b", "N"]))
histories = st.lists(st.tuples(st.integers(0, 9), values), max_size=30)


@given(histories, histories, st.data())
def test_the_source_is_found_at_each_position_that_it_may_have_been_read_at(
    first: list[tuple[int, str | None]], later: list[tuple[int, str | None]], data: st.DataObject
) -> None:
    rows = apply({}, first)
    read = data.draw(st.integers(0, len(later)))
    at = apply(rows, later[:read])

    found = find_position(RangeLook(SPAN, total(rows), total(at)), digests(rows), changes_of(later))

    assert found is not None
    assert total(apply(rows, later[:found])) == total(at)


@given(histories, histories, st.integers(0, 9), st.data())
def test_a_row_that_no_change_explains_is_not_equal_at_any_position(
    first: list[tuple[int, str | None]],
    later: list[tuple[int, str | None]],
    wrong: int,
    data: st.DataObject,
) -> None:
    """The mirror has another value, or a row more, that none of the changes touches."""
    rows = apply({}, first)
    later = [(id_, value) for id_, value in later if id_ != wrong]
    at = apply(rows, later[: data.draw(st.integers(0, len(later)))])
    mirror = {**rows, wrong: "not at the source"}

    look = RangeLook(SPAN, total(mirror), total(at))

    assert find_position(look, digests(mirror), changes_of(later)) is None


def test_two_equal_differences_do_not_cancel_each_other() -> None:
    """As they do in a XOR: two rows that are doubled, or two rows with swapped values."""
    rows = {1: "a", 2: "b"}
    doubled = total(rows) + digest(1, "a") + digest(1, "a")
    swapped = total({1: "b", 2: "a"})

    for mirror in (doubled, swapped):
        assert find_position(RangeLook(SPAN, mirror, total(rows)), {}, []) is None


def test_changes_are_told_apart_by_span_and_counted_once() -> None:
    made = changes_of([(1, "a"), (55, "b"), (1, "c"), (200, "d")])
    shuffled = [*made, made[0]]
    random.Random(1).shuffle(shuffled)

    found = split_changes([(0, 50), (50, 100)], shuffled)

    assert found == {(0, 50): [made[0], made[2]], (50, 100): [made[1]]}


def test_a_change_of_an_id_in_no_span_belongs_to_none() -> None:
    made = changes_of([(9, "below"), (10, "first"), (19, "last"), (20, "above")])

    assert split_changes([(10, 20)], made) == {(10, 20): made[1:3]}
    assert split_changes([(10, 20), (30, 40)], made) == {(10, 20): made[1:3], (30, 40): []}


def test_only_a_range_whose_sides_are_alike_has_nothing_to_explain() -> None:
    assert RangeLook(SPAN, digest(1, "a"), digest(1, "a")).equal
    assert not RangeLook(SPAN, digest(1, "a"), digest(1, "b")).equal


def test_only_changes_that_a_merge_applies_count() -> None:
    first, second, third = changes_of([(1, "a"), (1, "b"), (2, "c")])

    assert drop_redelivered([first, second], {1: first.order}, None) == [second]
    assert drop_redelivered([first], {1: second.order}, None) == []
    assert drop_redelivered([third], {}, second.order) == [third]
    assert drop_redelivered([third], {}, third.order) is None  # it may have been deleted since
    assert drop_redelivered([third], {2: None}, None) is None  # adopted: its order is not known


def test_each_change_counts_in_a_mirror_to_which_none_was_applied_before() -> None:
    made = changes_of([(1, "a"), (2, None)])

    assert drop_redelivered(made, {}, None) == made


def test_the_delete_of_a_row_that_is_not_there_changes_nothing_however_often_it_is_sent() -> None:
    (gone,) = changes_of([(1, None)])

    assert drop_redelivered([gone], {}, gone.order) == []


def apply(rows: dict[int, str], changes: list[tuple[int, str | None]]) -> dict[int, str]:
    after: dict[int, str | None] = {**rows, **dict(changes)}
    return {id_: value for id_, value in after.items() if value is not None}


def digests(rows: dict[int, str]) -> dict[int, RangeDigest]:
    return {id_: digest(id_, value) for id_, value in rows.items()}


def changes_of(history: list[tuple[int, str | None]]) -> list[RowChange]:
    return [
        RowChange(Order(0, 1, place), id_, digest(id_, value))
        for place, (id_, value) in enumerate(history)
    ]
