"""Batches that count for a table, and histories that are thinned."""

from collections.abc import Sequence
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.lags.samples import (
    LandedBatch,
    explain_future_fence,
    extend_batches,
    thin_history,
    to_landed_batch,
)
from pipeline.model import Fence, Missing, Shard, Table
from tests.builders.values import fence
from tests.checks.samples import NOW, TABLE, fence_series, healthy_checkpoint, samples

OTHER = Table("shop.users", ())


@pytest.mark.parametrize(
    ("more", "batches"),
    [
        pytest.param({}, [47, 48, 49, 50], id="all of them"),
        pytest.param(
            {"complete": {Shard("shop", "shop_01.orders"): 49}}, [49, 50], id="since its base"
        ),
        pytest.param({"departed": {TABLE.name: 48}}, [48, 49, 50], id="since a shard left it"),
        pytest.param({"belated": {TABLE.name: 49}}, [49, 50], id="since quarantined changes came"),
        pytest.param(
            {"complete": {Shard("shop", "shop_00.orders"): 47}, "departed": {TABLE.name: 50}},
            [50],
            id="since the later of both",
        ),
        pytest.param(
            {"complete": {Shard("shop", "x.users"): 49}, "departed": {OTHER.name: 50}},
            [47, 48, 49, 50],
            id="another table's say nothing",
        ),
    ],
)
def test_a_batch_from_before_a_table_was_whole_says_nothing_of_it(
    more: dict[str, Any], batches: list[int]
) -> None:
    known: tuple[LandedBatch, ...] = ()
    for batch in (47, 48, 49):
        known = extend_batches(
            known, to_landed_batch(healthy_checkpoint(batch=batch), {"shop": fence_series()})
        )

    found = samples(landed=healthy_checkpoint(**more), steps=known).walked(TABLE)

    assert [one.batch for one in found] == batches


def test_without_a_checkpoint_the_batches_seen_so_far_count() -> None:
    steps = extend_batches((), to_landed_batch(healthy_checkpoint(), {"shop": fence_series()}))

    found = samples(landed=Missing("the change log is down"), steps=steps)

    assert found.walked(TABLE) == found.steps_of(TABLE) == steps


def test_a_batch_has_passed_the_fences_that_it_covers_and_nothing_of_another_source() -> None:
    known = {"shop": fence_series(), "silent": (), "other": (fence(1, NOW, source="other"),)}

    found = to_landed_batch(healthy_checkpoint(through=600), known)

    assert {source: one.number for source, one in found.passed.items()} == {"shop": 600}


def test_samples_are_the_same_whatever_was_worked_out_of_them() -> None:
    one, other = samples(), samples()

    assert one.walked(TABLE)

    assert one == other


@pytest.mark.parametrize(
    ("fences", "why"),
    [
        pytest.param((), None, id="no heartbeat"),
        pytest.param((fence(1, NOW),), None, id="of this instant"),
        pytest.param(
            (fence(1, NOW), fence(2, NOW + timedelta(seconds=1.5))),
            "the newest heartbeat is 1.5 s ahead of Sluice's clock",
            id="the newest is of later",
        ),
        pytest.param(
            (fence(1, NOW + timedelta(minutes=9)), fence(2, NOW)),
            None,
            id="an older one is of later",
        ),
    ],
)
def test_heartbeats_prove_nothing_while_the_newest_is_of_later(
    fences: Sequence[Fence], why: str | None
) -> None:
    assert explain_future_fence(fences, NOW) == (why and Missing(why))


# spacing

SHARE, LIMIT = 10, 128


def _spaced(history: tuple[int, ...], limit: int = LIMIT) -> tuple[int, ...]:
    return thin_history(history, float, share=SHARE, limit=limit)


def test_a_short_history_is_kept_as_it_is() -> None:
    assert _spaced(tuple(range(LIMIT))) == tuple(range(LIMIT))
    assert _spaced(()) == ()


@given(st.lists(st.integers(1, 50), min_size=129, max_size=1_000), st.integers(1, 9))
def test_f22_what_is_left_out_lies_between_near_neighbours(gaps: list[int], every: int) -> None:
    """Also when a history is thinned again and again while it grows."""
    kept: tuple[int, ...] = ()
    history, place = [], 0
    for number, gap in enumerate(gaps):
        place += gap
        history.append(place)
        kept = (*kept, place)
        kept = _spaced(kept) if number % every == 0 else kept
    kept = _spaced(kept)

    alone = {(one, other) for one, other in pairwise(history)}
    wide = [
        (one, other)
        for one, other in pairwise(kept)
        if (other - one) * SHARE > history[-1] - one and (one, other) not in alone
    ]
    assert wide == []
    assert (kept[0], kept[-1], set(kept) <= set(history)) == (history[0], history[-1], True)
    assert len(kept) <= LIMIT + every


def test_what_would_still_be_too_long_is_thinned_further() -> None:
    once = _spaced(tuple(range(100_000)), limit=40)
    twice = _spaced(once, limit=40)

    assert len(twice) < len(once) < 100
    assert (twice[0], twice[-1]) == (0, 99_999)
