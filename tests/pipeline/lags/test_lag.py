from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.checkpoint import Epoch
from pipeline.lags.lag import HopLag, Lags, measure_lags
from pipeline.lags.samples import (
    LandedBatch,
    MirrorPosition,
    Sample,
    Samples,
    SourceSamples,
    extend_batches,
    to_landed_batch,
)
from pipeline.model import Acknowledged, Fence, Head, Hop, Missing, Shard, Stage, Table
from pipeline.sources.mysql.position import binlog_position
from tests.builders.values import fence
from tests.checks.samples import BUDGET, NOW, TABLE, fence_series, healthy_checkpoint, lags, samples

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)


def test_each_hop_ends_at_the_newest_fence_proven_past_it() -> None:
    found = lags(samples())

    assert [(each.hop, each.lag) for each in found.hops] == [
        (Hop.COLLECTION, 5 * SECOND),
        (Hop.CONSUMER, 5 * SECOND),
        (Hop.MERGE, timedelta()),
    ]
    assert found.watermark(Stage.MIRROR) == NOW - 10 * SECOND
    assert found.total(Stage.MIRROR) == 10 * SECOND


def test_one_heartbeat_is_enough() -> None:
    found = lags(samples(fences=(fence(690, NOW - SECOND),)))

    assert [each.lag for each in found.hops] == [SECOND, timedelta(), timedelta()]


def hops(*taken: float | None) -> Lags:
    """The first hops of a table, with their lags in seconds; None is not known."""
    rows = [
        HopLag(hop, Missing("x") if lag is None else lag * SECOND, Missing("x"), None)
        for hop, lag in zip(Hop, taken, strict=False)
    ]
    return Lags("t", NOW, tuple(rows))


@pytest.mark.parametrize(
    ("taken", "total"),
    [
        pytest.param(hops(1, 0, 2), 3 * SECOND, id="no time is a time"),
        pytest.param(hops(9, -1, 2), None, id="a skewed clock buys none"),
        pytest.param(hops(), None, id="nobody has measured"),
    ],
)
def test_lags_are_summed_only_where_each_is_one(taken: Lags, total: timedelta | None) -> None:
    found = taken.total(Stage.MIRROR)

    assert (None if isinstance(found, Missing) else found) == total


@pytest.mark.parametrize(
    ("taken", "slowest"),
    [
        pytest.param(hops(1, 3, 2), Hop.SYNC, id="the longest"),
        pytest.param(hops(9, None, 2, None), Hop.SYNC, id="the first that nobody knows"),
        pytest.param(hops(), None, id="none"),
    ],
)
def test_a_person_is_shown_the_hop_to_look_at(taken: Lags, slowest: Hop | None) -> None:
    found = taken.slowest()

    assert (found and found.hop) is slowest


def test_an_idle_table_needs_no_merge_to_stay_current() -> None:
    landed = healthy_checkpoint(batch=90, tables={"shop.orders": 12})

    found = lags(samples(landed=landed, standing=MirrorPosition(3, 12)))

    assert found.watermark(Stage.MIRROR) == NOW - 10 * SECOND


def test_a_mirror_behind_has_the_watermark_of_the_batch_it_holds() -> None:
    fences = {"shop": fence_series()}
    steps = extend_batches((), to_landed_batch(healthy_checkpoint(batch=40, through=600), fences))
    steps = extend_batches(
        steps, to_landed_batch(healthy_checkpoint(batch=41, through=610), fences)
    )

    found = lags(samples(steps=steps, standing=MirrorPosition(7, 40)))

    assert found.watermark(Stage.MIRROR) == NOW - 100 * SECOND
    assert found.total(Stage.LANDED) == 10 * SECOND
    assert found.total(Stage.MIRROR) == 100 * SECOND


def test_the_sync_hop_exists_only_where_it_is_configured() -> None:
    with_sync = lags(samples(synced=Sample(692, NOW, BUDGET)))
    lost_sync = lags(samples(synced=Missing("the mirror maker does not answer")))

    assert Hop.SYNC not in [each.hop for each in lags(samples()).hops]
    assert [each.lag for each in with_sync.hops] == [5 * SECOND, 3 * SECOND, 2 * SECOND, 0 * SECOND]
    assert isinstance(lost_sync.total(Stage.LANDED), Missing)


@pytest.mark.parametrize(
    ("bent", "stage"),
    [
        pytest.param({"fences": Missing("down")}, Stage.LANDED, id="no fences"),
        pytest.param({"fences": ()}, Stage.LANDED, id="no heartbeat ever"),
        pytest.param(
            {"fences": fence_series(until=NOW - MINUTE)}, Stage.LANDED, id="frozen heartbeat"
        ),
        pytest.param(
            {"fences": fence_series(until=NOW + MINUTE)}, Stage.LANDED, id="fences ahead of us"
        ),
        pytest.param({"acknowledged": Missing("down")}, Stage.LANDED, id="collector silent"),
        pytest.param(
            {"acknowledged": Acknowledged(binlog_position(1, 69_500), snapshot=True)},
            Stage.LANDED,
            id="snapshotting",
        ),
        pytest.param(
            {"acknowledged": Acknowledged(binlog_position(0, 1))},
            Stage.LANDED,
            id="nothing acknowledged",
        ),
        pytest.param({"landed": Missing("no mark")}, Stage.LANDED, id="no mark"),
        pytest.param(
            {"landed": healthy_checkpoint(heartbeats={})}, Stage.LANDED, id="no heartbeat landed"
        ),
        pytest.param({"standing": Missing("no mirror")}, Stage.MIRROR, id="no mirror"),
        pytest.param(
            {"standing": MirrorPosition(1, 1)}, Stage.MIRROR, id="mirror behind all memory"
        ),
        pytest.param({"ages": {"fences": MINUTE}}, Stage.LANDED, id="stale fences"),
        pytest.param({"ages": {"acknowledged": MINUTE}}, Stage.LANDED, id="stale collector"),
        pytest.param({"ages": {"mark": MINUTE}}, Stage.LANDED, id="stale mark"),
        pytest.param({"ages": {"mirror": MINUTE}}, Stage.MIRROR, id="stale mirror"),
        pytest.param({"ages": {"mark": -MINUTE}}, Stage.LANDED, id="sampled in the future"),
    ],
)
def test_what_was_not_measured_is_missing_and_never_zero(
    bent: dict[str, object], stage: Stage
) -> None:
    found = lags(samples(**bent))  # type: ignore[arg-type]

    assert isinstance(found.total(stage), Missing)


@pytest.mark.parametrize(
    ("more", "why"),
    [
        pytest.param({"heartbeats": {}}, "no heartbeat has landed yet", id="no heartbeat"),
        pytest.param(
            {"acknowledged": {}},
            "heartbeat 690 has landed, but its collector has not reported what it sent",
            id="a collector that is silent",
        ),
        pytest.param(
            {"acknowledged": {"shop": Acknowledged(binlog_position(1, 1))}},
            "heartbeat 690 has landed, but not everything that was sent before it",
            id="a heartbeat that came first",
        ),
    ],
)
def test_what_has_landed_is_missing_with_what_it_lacks(more: dict[str, object], why: str) -> None:
    found = lags(samples(landed=healthy_checkpoint(**more)))  # type: ignore[arg-type]

    assert found.watermark(Stage.LANDED) == Missing(f"{why} (source shop)")


@pytest.mark.parametrize("through", [Missing("x"), None], ids=["a sync", "no sync"])
def test_a_silent_heartbeat_hides_those_hops_that_there_are(through: Missing | None) -> None:
    found = lags(samples(fences=Missing("down"), synced=through))

    there = [hop for hop in Hop if hop is not Hop.COPY and (through or hop is not Hop.SYNC)]
    assert [each.hop for each in found.hops] == there
    assert all(isinstance(each.lag, Missing) for each in found.hops)


def test_a_source_of_which_nothing_has_landed_has_a_collector_all_the_same() -> None:
    found = lags(samples(landed=healthy_checkpoint(epochs={})))

    assert found.hops[0].lag == 5 * SECOND


def test_a_first_log_needs_no_word_about_itself() -> None:
    found = lags(samples(landed=healthy_checkpoint(acknowledged={}, heartbeats={})))

    assert found.hops[0].lag == 5 * SECOND


def test_what_the_old_server_finished_says_nothing_of_the_new_ones_heartbeats() -> None:
    """They are written before anything of the new server has landed, so the epoch is the old."""
    changed = tuple(
        replace(one, head=Head("B", binlog_position(1, 4))) if one.number > 690 else one
        for one in fence_series()
    )

    found = lags(samples(fences=changed))

    assert found.hops[0].lag == 10 * SECOND


def test_positions_of_two_servers_are_never_compared() -> None:
    other = tuple(
        Fence("shop", one.number, one.at, Head("B", binlog_position(1, 1)))
        for one in fence_series()
    )

    found = lags(samples(fences=other))

    assert isinstance(found.total(Stage.LANDED), Missing)


OLD, NEW = "3e11fa47-71ca-11e1-9e33-c80aa9429562", "4e11fa47-71ca-11e1-9e33-c80aa9429562"
SECOND_LOG = {"shop": Epoch(2, "A", binlog_position(1, 0))}
RETOLD = {"shop": Acknowledged(binlog_position(1, 69_000))}


@pytest.mark.parametrize(
    ("said", "executed", "counted", "known"),
    [
        pytest.param(
            Acknowledged(binlog_position(9, 9, f"{OLD}:1-80")),
            f"{OLD}:1-80,{NEW}:1",
            {},
            False,
            id="the old log's",
        ),
        pytest.param(
            Acknowledged(binlog_position(9, 9, f"{OLD}:1-80,{NEW}:1-2")),
            f"{OLD}:1-80,{NEW}:1",
            {},
            True,
            id="the new log's, by its transactions",
        ),
        pytest.param(
            Acknowledged(binlog_position(9, 9)),
            "",
            {},
            False,
            id="by position, whose log nobody knows",
        ),
        pytest.param(
            Acknowledged(binlog_position(9, 9)),
            f"{OLD}:1-80,{NEW}:1",
            {},
            False,
            id="by position, though heartbeats have transactions",
        ),
        pytest.param(
            Acknowledged(binlog_position(9, 9, f"{OLD}:1-80")),
            "",
            {},
            False,
            id="by transactions, though heartbeats have none",
        ),
        pytest.param(
            Acknowledged(binlog_position(9, 9)),
            "",
            RETOLD,
            True,
            id="by position, since it was counted",
        ),
    ],
)
def test_f04_a_word_of_the_log_before_a_fail_over_ends_no_lag(
    said: Acknowledged, executed: str, counted: dict[str, Acknowledged], known: bool
) -> None:
    fences = tuple(
        replace(one, head=Head("A", binlog_position(1, one.number * 100, executed)))
        for one in fence_series(count=700)
    )
    landed = healthy_checkpoint(epochs=SECOND_LOG, acknowledged=counted, heartbeats={})

    found = lags(samples(fences=fences, acknowledged=said, landed=landed))

    assert isinstance(found.hops[0].lag, Missing) is not known


def test_a_later_stage_lifts_an_earlier_one_that_was_sampled_before_it() -> None:
    found = lags(samples(acknowledged=Acknowledged(binlog_position(1, 60_000))))

    assert [each.lag for each in found.hops] == [10 * SECOND, timedelta(), timedelta()]


TWO_SOURCES = Table("t", (Shard("a", "x.t"), Shard("shop", "y.t")))


def two_sources(**more: Any) -> Samples:
    """One has acknowledged and landed up to 650, the other is healthy; *more* bends the first."""
    one = samples()
    landed = healthy_checkpoint()
    both = replace(
        landed,
        acknowledged={**landed.acknowledged, "a": Acknowledged(binlog_position(1, 65_000))},
        heartbeats={"shop": 690, "a": 650},
        epochs={**landed.epochs, "a": Epoch(1, "A", binlog_position(1, 0))},
    )
    other = SourceSamples(
        Sample(fence_series(source="a"), NOW, BUDGET),
        Sample(Acknowledged(binlog_position(1, 65_000)), NOW, BUDGET),
    )
    sources = {**one.sources, "a": replace(other, **more)}
    return Samples(sources, Sample(both, NOW, BUDGET), one.mirror)


def test_a_table_on_two_sources_is_as_late_as_the_later_one() -> None:
    taken = two_sources()

    found = measure_lags(TWO_SOURCES, taken, NOW)

    assert found.watermark(Stage.LANDED) == NOW - 50 * SECOND
    assert isinstance(
        measure_lags(TWO_SOURCES, replace(taken, sources={}), NOW).hops[0].lag, Missing
    )


def test_a_sync_of_one_source_is_a_hop_of_the_table() -> None:
    """The other's collection stands in its place."""
    found = measure_lags(
        TWO_SOURCES, two_sources(synced=Sample(655, NOW - 3 * SECOND, BUDGET)), NOW
    )

    sync = {each.hop: each for each in found.hops}[Hop.SYNC]
    assert (sync.watermark, sync.age) == (NOW - 45 * SECOND, 3 * SECOND)


def test_the_age_of_two_sources_is_that_of_the_older_and_unknown_without_one_of_them() -> None:
    said = Acknowledged(binlog_position(1, 65_000))

    found = measure_lags(
        TWO_SOURCES, two_sources(acknowledged=Sample(said, NOW - 4 * SECOND, BUDGET)), NOW
    )
    silent = measure_lags(TWO_SOURCES, two_sources(acknowledged=Missing("down")), NOW)

    assert (found.hops[0].age, silent.hops[0].age) == (4 * SECOND, None)


def test_a_watermark_does_not_go_back_within_an_epoch() -> None:
    first = lags(samples())

    again = measure_lags(
        TABLE, samples(landed=healthy_checkpoint(batch=51, through=600)), NOW + SECOND, first
    )

    assert again.watermark(Stage.LANDED) == first.watermark(Stage.LANDED)


@pytest.mark.parametrize(
    "landed",
    [
        pytest.param(
            healthy_checkpoint(through=600, epochs={"shop": Epoch(2, "A", binlog_position(1, 0))}),
            id="a new epoch",
        ),
        pytest.param(healthy_checkpoint(batch=3, through=600), id="a lane begun anew"),
    ],
)
def test_a_new_history_starts_its_own_watermark(landed: object) -> None:
    first = lags(samples())

    again = measure_lags(TABLE, samples(landed=landed), NOW + SECOND, first)  # type: ignore[arg-type]

    assert again.watermark(Stage.LANDED) == NOW - 100 * SECOND


def test_a_mirror_taken_back_is_as_late_as_it_is() -> None:
    steps = extend_batches(
        (), to_landed_batch(healthy_checkpoint(batch=40, through=600), {"shop": fence_series()})
    )
    first = lags(samples(steps=steps))

    again = measure_lags(
        TABLE, samples(steps=steps, standing=MirrorPosition(9, 40)), NOW + SECOND, first
    )

    assert again.watermark(Stage.MIRROR) == NOW - 100 * SECOND


def test_a_mirror_taken_back_takes_nothing_back_of_what_has_landed() -> None:
    steps = extend_batches(
        (), to_landed_batch(healthy_checkpoint(batch=40, through=600), {"shop": fence_series()})
    )
    first = lags(samples(steps=steps))
    less = samples(
        steps=steps, landed=healthy_checkpoint(through=600), standing=MirrorPosition(9, 40)
    )

    again = measure_lags(TABLE, less, NOW + SECOND, first)

    assert again.watermark(Stage.LANDED) == first.watermark(Stage.LANDED)


def test_a_collectors_watermark_does_not_go_back_while_nobody_knows_what_has_landed() -> None:
    first = lags(samples())
    less = Acknowledged(binlog_position(1, 60_000))

    again = measure_lags(
        TABLE, samples(landed=Missing("down"), acknowledged=less), NOW + SECOND, first
    )

    assert again.hops[0].watermark == first.hops[0].watermark


def test_a_watermark_of_a_clock_that_went_back_is_of_no_time_yet() -> None:
    first, before = lags(samples()), NOW - 30 * SECOND
    early = samples(fences=fence_series(until=before), now=before)

    again = measure_lags(TABLE, early, before, first)

    landed = again.watermark(Stage.LANDED)
    assert landed == Missing("watermark 20 s ahead of the clock (source shop)")


def test_a_sample_missing_for_a_while_does_not_forget_the_watermark() -> None:
    first = lags(samples())
    gone = measure_lags(TABLE, samples(landed=Missing("down")), NOW + SECOND, first)

    again = measure_lags(
        TABLE, samples(landed=healthy_checkpoint(batch=51, through=600)), NOW + 2 * SECOND, gone
    )

    assert again.watermark(Stage.LANDED) == first.watermark(Stage.LANDED)


def test_the_age_shown_is_that_of_the_oldest_sample() -> None:
    found = lags(samples(ages={"acknowledged": 3 * SECOND, "mirror": 2 * SECOND}))

    assert [each.age for each in found.hops] == [3 * SECOND, timedelta(), 2 * SECOND]


def test_thinned_steps_only_make_old_answers_cautious() -> None:
    steps: tuple[LandedBatch, ...] = ()
    for batch in range(1, 200):
        steps = extend_batches(
            steps,
            to_landed_batch(
                healthy_checkpoint(batch=batch, through=batch), {"shop": fence_series()}
            ),
            limit=32,
        )

    standing = MirrorPosition(1, 150)
    found = lags(
        samples(steps=steps, landed=healthy_checkpoint(batch=200, through=200), standing=standing)
    )

    assert len(steps) <= 33
    assert found.watermark(Stage.MIRROR) <= fence(150, fence_series()[149].at).at  # type: ignore[operator]


numbers = st.integers(0, 700)


@given(numbers, numbers, numbers, st.integers(1, 50), st.integers(0, 20))
def test_lags_sum_exactly_to_now_minus_watermark(
    acknowledged: int, through: int, older: int, applied: int, age: int
) -> None:
    steps = extend_batches(
        (),
        to_landed_batch(healthy_checkpoint(batch=applied, through=older), {"shop": fence_series()}),
    )
    taken = samples(
        acknowledged=Acknowledged(binlog_position(1, acknowledged * 100)),
        landed=healthy_checkpoint(through=through),
        steps=steps,
        standing=MirrorPosition(7, applied),
        ages={"acknowledged": timedelta(seconds=age)},
    )

    found = lags(taken)

    for stage in Stage:
        total, watermark = found.total(stage), found.watermark(stage)
        if not isinstance(total, Missing) and not isinstance(watermark, Missing):
            assert total == NOW - watermark
            assert all(each.lag >= timedelta() for each in found.up_to(stage))  # type: ignore[operator]


@given(st.lists(st.tuples(numbers, st.integers(50, 60)), min_size=2, max_size=6))
def test_watermarks_are_monotone_whatever_is_sampled(rounds: list[tuple[int, int]]) -> None:
    earlier, seen, batch = None, [], 50
    for number, ahead in rounds:
        batch = max(batch, ahead)
        landed = healthy_checkpoint(batch=batch, through=number)
        earlier = measure_lags(
            TABLE, samples(landed=landed, standing=MirrorPosition(1, batch)), NOW, earlier
        )
        seen.append(earlier.watermark(Stage.MIRROR))

    known = [each for each in seen if not isinstance(each, Missing)]

    assert known == sorted(known)
