from datetime import UTC, datetime, timedelta

import pytest

from pipeline.checkpoint import Checkpoint
from pipeline.lags.retention import (
    BacklogSample,
    Limit,
    Retention,
    collected_through,
    has_landed,
    log_kept,
    of_backlog,
    topic_kept,
)
from pipeline.model import Acknowledged, Missing, PartitionEnd, TopicPartition
from pipeline.sources.mysql.position import binlog_position
from pipeline.sources.source import LogBacklog
from tests.builders.values import fence

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


@pytest.mark.parametrize(
    ("kept", "read", "left", "tight"),
    [
        pytest.param(7 * DAY, NOON, 7 * DAY, False, id="all of it, when all was read just now"),
        pytest.param(7 * DAY, NOON - 5 * DAY, 2 * DAY, False, id="what landing's delay leaves"),
        pytest.param(7 * DAY, NOON - 7 * DAY + 5 * HOUR, 5 * HOUR, True, id="under six hours"),
        pytest.param(7 * DAY, NOON - 9 * DAY, timedelta(), True, id="nothing: some may be gone"),
        pytest.param(4 * HOUR, NOON - HOUR, 3 * HOUR, False, id="kept shortly, read in time"),
        pytest.param(4 * HOUR, NOON - 3 * HOUR, HOUR, True, id="kept shortly, half of it gone"),
        pytest.param(None, NOON - 90 * DAY, None, False, id="kept without end"),
        pytest.param(7 * DAY, None, None, False, id="nobody knows what was read"),
        pytest.param(Missing("silent"), NOON, None, False, id="nobody knows how long"),
    ],
)
def test_what_is_left_is_what_is_kept_less_the_age_of_the_oldest_unread(
    kept: Limit, read: datetime | None, left: timedelta | None, tight: bool
) -> None:
    retention = Retention("topic", "shop.users", kept, read)

    assert retention.left(NOON) == left
    assert retention.tight(NOON) is tight


@pytest.mark.parametrize(
    ("settings", "kept"),
    [
        pytest.param({"retention.ms": "3600000"}, HOUR, id="a time"),
        pytest.param({"retention.ms": "-1"}, None, id="no limit"),
        pytest.param({"retention.ms": str(2**63 - 1)}, None, id="longer than anybody waits"),
        pytest.param({"cleanup.policy": "compact", "retention.ms": "1"}, None, id="compacted only"),
        pytest.param(
            {"cleanup.policy": "compact,delete", "retention.ms": "3600000"}, HOUR, id="and deleted"
        ),
    ],
)
def test_a_topic_keeps_for_as_long_as_its_settings_say(
    settings: dict[str, str], kept: timedelta | None
) -> None:
    assert topic_kept(settings) == kept


@pytest.mark.parametrize(
    ("told", "kept"),
    [
        pytest.param(3 * DAY, 3 * DAY, id="a time"),
        pytest.param(timedelta(days=36_500), None, id="a hundred years are as good as no end"),
        pytest.param(None, None, id="no end"),
        pytest.param(Missing("no word"), Missing("no word"), id="nobody told"),
    ],
)
def test_a_log_is_kept_for_as_long_as_its_source_says(told: Limit, kept: Limit) -> None:
    assert log_kept(told) == kept


@pytest.mark.parametrize(
    ("said", "identity", "through"),
    [
        pytest.param((7, 250), "server", NOON + 2 * HOUR, id="the newest fence it has passed"),
        pytest.param((7, 50), "server", None, id="none yet"),
        pytest.param((8, 4), "server", NOON + 3 * HOUR, id="all, and they still come"),
        pytest.param((8, 4), "other", None, id="fences of another server say nothing"),
    ],
)
def test_a_collector_needs_nothing_from_before_the_newest_fence_it_has_passed(
    said: tuple[int, int], identity: str, through: datetime | None
) -> None:
    fences = [fence(number, NOON + number * HOUR, identity="server", log=7) for number in (1, 2, 3)]

    assert (
        collected_through(fences, [Acknowledged(binlog_position(*said))], identity, NOON) == through
    )


def test_when_heartbeats_have_stopped_nobody_knows_what_waits() -> None:
    stopped = NOON + 4 * HOUR

    assert (
        collected_through(
            [fence(3, NOON + 3 * HOUR, identity="server", log=7)],
            [Acknowledged(binlog_position(8, 4))],
            "server",
            stopped,
        )
        is None
    )


@pytest.mark.parametrize(
    ("w", "end", "there"),
    [
        pytest.param(PartitionEnd(5, "id"), PartitionEnd(5, "id"), True, id="at the end"),
        pytest.param(PartitionEnd(4, "id"), PartitionEnd(5, "id"), False, id="one before it"),
        pytest.param(PartitionEnd(9, "old"), PartitionEnd(5, "new"), False, id="another topic"),
        pytest.param(PartitionEnd(9, "old"), PartitionEnd(0, "new"), True, id="another, empty one"),
    ],
)
def test_a_topic_is_landed_when_w_has_come_to_its_end(
    w: PartitionEnd, end: PartitionEnd, there: bool
) -> None:
    checkpoint = Checkpoint("main", 1, offsets={TopicPartition("t", 0): w})

    assert has_landed(checkpoint, TopicPartition("t", 0), end) is there


GIB = 2**30


@pytest.mark.parametrize(
    ("grown", "held", "left", "wanted"),
    [
        pytest.param([1, 1], 1, 9, timedelta(minutes=90), id="at the rate it grows"),
        pytest.param([4, 1], 1, 8, timedelta(minutes=20), id="at the fastest it has grown"),
        pytest.param([1, 1], 1, 0, timedelta(), id="some is lost already"),
        pytest.param([], 1, 0, timedelta(), id="lost, and asked once"),
        pytest.param([0, 0], 1, 9, None, id="it stands still"),
        pytest.param([], 1, 9, "how fast", id="asked once"),
        pytest.param([-5], 1, 9, "how fast", id="another server's log"),
        pytest.param([1, 1], 1, None, "disk may fill", id="nothing limits it"),
    ],
)
def test_a_log_kept_by_size_lasts_as_long_as_it_may_grow(
    grown: list[int], held: int, left: int | None, wanted: timedelta | str | None
) -> None:
    samples, written, at = [], 100, NOON
    for step in (0, *grown):
        written, at = written + step, at + timedelta(minutes=10)
        room = None if left is None else left * GIB
        samples.append(BacklogSample(at, LogBacklog("slot", written * GIB, held * GIB, room)))

    found = of_backlog(samples)

    if isinstance(wanted, str):
        assert isinstance(found.kept, Missing)
        assert wanted in found.kept.why
        assert found.unknown
    else:
        assert found.left(at) == wanted
        assert found.tight(at) == (wanted is not None and wanted < (found.needed or timedelta()))
    assert found.backlog == samples[-1].backlog


def test_little_room_is_tight_in_time_and_what_is_lost_stays_so() -> None:
    def sampled(minutes: int, written: int, left: int) -> BacklogSample:
        at = NOON + timedelta(minutes=minutes)
        return BacklogSample(at, LogBacklog("slot", written * GIB, 60 * GIB, left * GIB))

    wide = of_backlog([sampled(0, 0, 60), sampled(10, 1, 60)])
    near = of_backlog([sampled(0, 0, 30), sampled(10, 1, 30)])
    lost = of_backlog([sampled(0, 0, 0), sampled(10, 1, 0)])

    at = NOON + timedelta(minutes=10)
    assert not wide.tight(at)
    assert near.tight(at)
    assert lost.tight(at)
