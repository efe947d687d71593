"""What is kept of mirrors: remembered texts, and how high each has come."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from pipeline.apply.landed_state import HighestOrders
from pipeline.apply.mirror import images_of
from pipeline.image import Image, images_property
from pipeline.model import Order, SourcePartition, TopicPartition
from tests.builders import orders_at

NOW = datetime(2026, 3, 29, tzinfo=UTC)


@dataclass
class Seen:
    """As much of a mirror as is looked at."""

    uri: str
    remembered: dict[str, str] = field(default_factory=dict)


def seen_table(uri: str, version: int) -> Any:
    image = Image(NOW, version, 1, (), {}, NOW, NOW + timedelta(days=7))
    return Seen(uri, images_property([image]))


def test_images_are_read_once_for_each_text() -> None:
    first = images_of(seen_table("a", 1))

    assert images_of(seen_table("a", 1)) is first
    assert [one.version for one in images_of(seen_table("a", 2))] == [2]
    assert [one.version for one in images_of(seen_table("b", 1))] == [1]
    assert images_of(Seen("a")) == ()  # type: ignore[arg-type]


def test_what_a_mirror_remembered_before_is_not_kept() -> None:
    first = images_of(seen_table("of many days", 0))

    images_of(seen_table("of many days", 1))

    assert images_of(seen_table("of many days", 0)) is not first


T, U = TopicPartition("s.t", 0), TopicPartition("s.u", 0)


class Counted(Mapping[SourcePartition, Order]):
    """A mark's highest orders that count how often they are gone through."""

    def __init__(self, high: Mapping[SourcePartition, Order]) -> None:
        self.high, self.walks = high, 0

    def __getitem__(self, at: SourcePartition) -> Order:
        return self.high[at]

    def __iter__(self) -> Iterator[SourcePartition]:
        self.walks += 1
        return iter(self.high)

    def __len__(self) -> int:
        return len(self.high)


def _high(**orders: int) -> dict[SourcePartition, Order]:
    return orders_at({f"s/s.{topic}:0": Order(1, 1, pos) for topic, pos in orders.items()})


def test_a_mirror_is_as_high_as_the_mark_of_its_batch_in_its_own_topics() -> None:
    highs = HighestOrders()
    highs.note_landed(3, _high(t=10, u=20))
    highs.note_landed(4, _high(t=10, u=30))
    highs.note_landed(5, _high(t=50, u=30))

    highs.note_applied("t", 4, frozenset({"s.t"}))
    highs.note_applied("u", 3, frozenset({"s.u"}))

    assert highs.find_orders("t", 4) == {T: Order(1, 1, 10)}
    assert highs.find_orders("u", 3) == {U: Order(1, 1, 20)}
    assert highs.find_orders("u", 4) is None


def test_a_batch_whose_mark_was_not_seen_says_nothing() -> None:
    highs = HighestOrders()
    highs.note_landed(3, _high(t=10))
    highs.note_landed(5, _high(t=50))

    highs.note_applied("t", 4, frozenset({"s.t"}))

    assert highs.find_orders("t", 4) == {}


def test_old_marks_are_forgotten_and_what_still_counts_of_them_is_not() -> None:
    highs = HighestOrders()
    for batch in range(5_000):
        highs.note_landed(batch, _high(t=batch, u=7))

    highs.note_applied("t", 3_999, frozenset({"s.t"}))
    highs.note_applied("u", 4_000, frozenset({"s.t", "s.u"}))

    assert highs.find_orders("t", 3_999) == {}
    assert highs.find_orders("u", 4_000) == {T: Order(1, 1, 4_000), U: Order(1, 1, 7)}
    steps = highs._topics["s.t"][T]
    assert len(steps.batches) <= 2_000


def test_a_mirror_costs_its_own_partitions_and_not_all_that_there_are() -> None:
    highs, high = HighestOrders(), Counted(_high(**{f"t{i}": i for i in range(1_000)}))
    highs.note_landed(1, high)
    walked = high.walks

    for number in range(1_000):
        highs.note_applied(f"t{number}", 1, frozenset({f"s.t{number}"}))

    assert high.walks == walked
    assert highs.find_orders("t9", 1) == {TopicPartition("s.t9", 0): Order(1, 1, 9)}


def test_a_mark_in_which_nothing_rose_is_not_kept() -> None:
    highs, high = HighestOrders(), _high(**{f"t{i}": i for i in range(100)})
    for batch in range(50):
        mark = dict(high)
        highs.note_landed(batch, mark)

    kept = [steps for own in highs._topics.values() for steps in own.values()]
    assert sum(len(steps.batches) for steps in kept) == 100
