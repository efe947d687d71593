"""What is killed follows from the seed, and nothing is spared."""

from collections import Counter

import pytest

from tests.proof.plan import Victim, plan

SEEDS = range(20)


@pytest.mark.parametrize("seed", SEEDS)
def test_one_seed_gives_one_plan(seed: int) -> None:
    assert plan(8, seed) == plan(8, seed)
    assert plan(8, seed) != plan(8, seed + 1)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_part_is_killed_equally_often(seed: int) -> None:
    assert Counter(each.victim for each in plan(40, seed)) == dict.fromkeys(Victim, 10)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_killed_last_may_recover(seed: int) -> None:
    assert not plan(8, seed)[-1].rush


def test_some_kills_come_before_the_last_one_is_overcome() -> None:
    assert any(each.rush for seed in SEEDS for each in plan(8, seed))
