from collections.abc import Sequence

import numpy as np
from confluent_kafka import Message

from pipeline.transports.kafka import Gathering
from pipeline.transports.transport import OffsetRange

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
