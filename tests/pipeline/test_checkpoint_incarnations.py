"""Tests which incarnation of landing a batch is of, by their first batches."""

from dataclasses import replace
from itertools import accumulate
from typing import NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.checkpoint import (
    MAX_INCARNATIONS,
    Checkpoint,
    Incarnations,
    is_rolled_back,
    with_incarnation,
)

LIVES = st.lists(st.tuples(st.integers(1, 5), st.integers(0, 2**61)), min_size=1, max_size=12)


@given(LIVES)
def test_every_batch_is_of_the_life_that_landed_it(runs: list[tuple[int, int]]) -> None:
    landed = [life for batches, life in runs for _ in range(batches)]

    told: dict[str, int] = {}
    for batch, life in enumerate(landed):
        told = dict(with_incarnation(told, batch, life))

    assert [Incarnations.of(told).at(batch) for batch in range(len(landed))] == landed
    assert Incarnations.of(told).at(-1) is None


@given(LIVES, st.integers(0, 2**61), st.data())
def test_a_batch_that_was_lost_is_told_from_the_one_that_has_its_number(
    runs: list[tuple[int, int]], life: int, data: st.DataObject
) -> None:
    firsts = [0, *accumulate(batches for batches, _ in runs)]
    before = {str(first): one + 2**62 for first, (_, one) in zip(firsts, runs, strict=False)}
    lost = data.draw(st.integers(0, firsts[-1] - 1))  # this batch, and all after it
    kept = {first: one for first, one in before.items() if int(first) < lost}

    after = Incarnations.of(with_incarnation(kept, lost, life))

    for batch in range(firsts[-1]):
        assert (Incarnations.of(before).at(batch) == after.at(batch)) == (batch < lost)


def test_only_so_many_lives_are_kept_and_the_newest_among_them() -> None:
    told: dict[str, int] = {}
    for start in range(MAX_INCARNATIONS + 50):
        told = dict(with_incarnation(told, 2 * start, start))

    assert len(told) == MAX_INCARNATIONS
    assert Incarnations.of(told).at(2 * MAX_INCARNATIONS + 99) == MAX_INCARNATIONS + 49
    assert Incarnations.of(told).at(3) is None


def test_a_life_that_goes_on_changes_nothing() -> None:
    told = with_incarnation({}, 0, 7)

    assert with_incarnation(told, 1, 7) is told


KNOWN = {"0": 7, "3": 8}


@pytest.mark.parametrize(
    ("batch", "lives", "lost"),
    [
        pytest.param(5, KNOWN, False, id="it rests"),
        pytest.param(6, KNOWN, False, id="it goes on"),
        pytest.param(6, dict(KNOWN), False, id="and was read anew"),
        pytest.param(4, KNOWN, True, id="it ends before"),
        pytest.param(4, {**KNOWN, "4": 9}, True, id="it ends before, in another life"),
        pytest.param(6, {**KNOWN, "6": 9}, False, id="another life has begun since"),
        pytest.param(5, {**KNOWN, "5": 9}, True, id="another batch has its number"),
        pytest.param(9, {**KNOWN, "4": 9}, True, id="and more came since"),
    ],
)
def test_a_log_was_set_back_if_it_lost_the_batch_that_is_known(
    batch: int, lives: dict[str, int], lost: bool
) -> None:
    known = Checkpoint("main", 5, incarnations=KNOWN)

    assert is_rolled_back(known, Checkpoint("main", batch, incarnations=lives)) is lost


class Unread(dict[str, int]):
    """Lives that nobody may go through."""

    def items(self) -> NoReturn:
        """Refused."""
        raise AssertionError("a thousand lives were sorted for nothing")


def test_lives_that_are_the_very_same_are_not_gone_through() -> None:
    """They are, at each look, unless landing has begun anew."""
    known = Checkpoint("main", 5, incarnations=Unread())

    assert not is_rolled_back(known, replace(known, batch=6))
