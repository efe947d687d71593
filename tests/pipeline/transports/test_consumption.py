"""How reading is cut into ranges and batches, and which settings it refuses.  No broker."""

from collections.abc import Sequence

import numpy as np
import pytest
from confluent_kafka import Message

from pipeline.errors import ConfigError
from pipeline.transports.kafka import Gathering, consume_ranges
from pipeline.transports.transport import Cursor, OffsetRange, RangeRead, split_ranges

SOME = [OffsetRange("t", 0, 0, 1)]


@pytest.mark.parametrize(
    ("setting", "value", "said"),
    [
        pytest.param("sasl.mechanism", "GSSAPI", "Kerberos", id="the wheel has no Kerberos"),
        pytest.param("sasl.mechanisms", "gssapi", "Kerberos", id="by its other name"),
        pytest.param("check.crcs", "false", "check.crcs: is set by Sluice", id="rule 14"),
        pytest.param("enable.auto.commit", "true", "enable.auto.commit: is set", id="rule 13"),
        pytest.param("isolation.level", "read_committed", "isolation.level: is set", id="rule 5"),
    ],
)
def test_rule_20_a_setting_that_is_not_the_operators_is_refused_by_name(
    setting: str, value: str, said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        consume_ranges({"bootstrap.servers": "localhost:1", setting: value}, SOME)


def test_rule_20_a_setting_that_the_client_does_not_know_is_refused_by_name() -> None:
    reading = consume_ranges({"bootstrap.servers": "localhost:1", "request_timeout_ms": "5"}, SOME)

    with pytest.raises(ConfigError, match="request_timeout_ms"):
        list(reading)


def test_nothing_to_read_needs_no_broker() -> None:
    nothing = [OffsetRange("t", 0, 7, 7), OffsetRange("t", 1, 0, 0)]
    reading = consume_ranges({"bootstrap.servers": "localhost:1"}, nothing)

    assert list(reading) == []
    assert [(one.asked, one.count) for one in reading.read] == [(one, 0) for one in nothing]


def cursor(first: int, until: int, *, partition: int = 0, size: int = 0) -> Cursor:
    return Cursor(OffsetRange("t", partition, first, until, size=size), first)


def advance(one: Cursor, offsets: list[int], epochs: list[int] | None = None) -> int:
    return one.advance(np.array(offsets), np.array(epochs or [0] * len(offsets)))


@pytest.mark.parametrize(
    ("came", "kept", "done"),
    [
        pytest.param([[5, 6], [7, 8, 9]], 5, True, id="its last offset is there"),
        pytest.param([[5, 6, 9]], 3, True, id="holes inside are no matter"),
        pytest.param([[5, 6], [12]], 2, True, id="a record beyond says that there is no more"),
        pytest.param([[5, 6, 8, 10, 11]], 3, True, id="what lies beyond is not in the range"),
        pytest.param([[5, 6, 7, 8]], 4, False, id="one short is not done"),
    ],
)
def test_rule_1_a_range_is_done_by_a_record_at_or_beyond_its_last_offset(
    came: list[list[int]], kept: int, done: bool
) -> None:
    one = cursor(5, 10)

    assert sum(advance(one, offsets) for offsets in came) == kept
    assert one.done is done


@pytest.mark.parametrize(
    ("end", "done"),
    [
        pytest.param(9, False, id="a log that has shrunk is no answer"),
        pytest.param(10, True, id="holes up to the end"),
        pytest.param(11, True, id="an end beyond"),
    ],
)
def test_rule_1_a_range_is_done_by_the_partitions_end_only_from_until_on(
    end: int, done: bool
) -> None:
    one = cursor(5, 10)

    one.reach(end)

    assert one.done is done


def test_rule_9_a_range_tells_first_last_count_and_each_change_of_epoch() -> None:
    one = cursor(5, 100)
    assert one.result == RangeRead(one.range)

    advance(one, [7, 8, 9], [1, 1, 3])
    advance(one, [10, 12], [3, 4])
    advance(one, [99, 100, 101], [2, 9, 9])

    assert one.result == RangeRead(one.range, 7, 99, 6, (1, 3, 4, 2))


def test_rule_8_a_range_without_a_record_tells_no_epoch() -> None:
    one = cursor(5, 10)

    advance(one, [10], [7])

    assert one.done
    assert one.result == RangeRead(one.range)


def test_rule_16_ranges_are_assigned_together_up_to_a_number_of_bytes() -> None:
    sizes = [40, 40, 40, 500, 20, 20, 20, 20, 20]
    cursors = [cursor(0, 5, partition=n, size=size) for n, size in enumerate(sizes)]

    groups = list(split_ranges(cursors, 100))

    assert [[c.range.size for c in group] for group in groups] == [
        [40, 40],
        [40],
        [500],
        [20, 20, 20, 20, 20],
    ]


def test_a_range_of_unknown_size_counts_by_its_offsets() -> None:
    few, many = cursor(0, 5), cursor(0, 5_000_000, partition=1)

    assert len(list(split_ranges([few, few, many], 2**20))) == 3
    assert many.range.expected > 2**30


def test_a_partition_stands_once_in_an_assignment_and_empty_ranges_in_none() -> None:
    parts = [cursor(0, 5), cursor(5, 5, partition=1), cursor(5, 9), cursor(0, 3, partition=1)]

    groups = list(split_ranges(parts, 2**30))

    assert [[str(c.range) for c in group] for group in groups] == [
        ["t:0 [0, 5)"],
        ["t:0 [5, 9)", "t:1 [0, 3)"],
    ]


RANGES = (OffsetRange("t", 4, 0, 100), OffsetRange("u", 7, 0, 100))


def message(key: bytes | None, value: bytes | None) -> Message:
    return Message(key=key, value=value, timestamp=(1, 5), headers=[("h", b"1")])


def add(gathering: Gathering, messages: Sequence[Message], numbers: Sequence[int]) -> int:
    offsets = np.arange(len(gathering), len(gathering) + len(messages), dtype=np.int64)
    return gathering.add(messages, offsets, np.array(numbers, np.int64))


def test_a_batch_holds_all_that_was_added_in_its_order() -> None:
    gathering = Gathering(RANGES)
    add(gathering, [message(b"k", b"one"), message(None, None)], [0, 1])
    add(gathering, [message(b"", b"two")], [0])

    batch = gathering.emptied()

    batch.validate(full=True)
    assert [list(row.values()) for row in batch.to_pylist()] == [
        [b"k", b"one", "t", 4, 0],
        [None, None, "u", 7, 1],
        [b"", b"two", "t", 4, 2],
    ]


def test_its_size_is_that_of_keys_and_values() -> None:
    gathering = Gathering(RANGES)

    added = add(
        gathering, [message(b"k", b"one"), message(None, None), message(b"k", None)], [0] * 3
    )

    assert (added, gathering.size, len(gathering)) == (5, 5, 3)


def test_nothing_stays_of_a_batch_that_was_taken() -> None:
    gathering = Gathering(RANGES, ("timestamp",))
    add(gathering, [message(b"k", b"one")], [0])
    gathering.emptied()

    assert (gathering.size, len(gathering)) == (0, 0)
    add(gathering, [message(b"k", b"two")], [1])
    assert gathering.emptied()["value"].to_pylist() == [b"two"]


def test_times_and_headers_come_where_they_are_asked_for() -> None:
    gathering = Gathering(RANGES, ("timestamp", "headers"))
    add(gathering, [message(b"k", b"one")], [0])

    batch = gathering.emptied()

    assert batch["timestamp"].cast("int64").to_pylist() == [5_000]
    assert batch["headers"].to_pylist() == [[{"name": "h", "value": b"1"}]]
