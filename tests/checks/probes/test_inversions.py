"""Where offsets are the order, an older row over a newer one is told by the messages' clock."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from checks.model import NotYet, Outcome, Verdict
from checks.probes.inversions import MOST_KEPT, Inversions
from checks.run import Check, run_probe
from checks.world import KeyTimes, ShardBase, World
from pipeline.model import Order, Ordering, Table
from tests.checks.samples import TABLE

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
SHARD = str(TABLE.shards[0])
PROBE = Inversions()


@dataclass
class Landed:
    """Batches of one change each: a key, and minutes after noon."""

    changes: list[tuple[str, float]] = field(default_factory=list)
    order: Ordering = Ordering.OFFSET
    memory: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    read: dict[str, ShardBase] = field(default_factory=dict)
    outdated: bool = False  # the memory is of another log
    reads: int = 0

    def land(self, key: str, minute: float) -> None:
        self.changes.append((key, minute))

    def ruled(self, probe: Inversions = PROBE) -> tuple[str, tuple[str, ...]]:
        answer = run_probe(Check("inversions", probe, TABLE), cast("World", self))
        assert isinstance(answer, Verdict)
        return str(answer.ruling.outcome), answer.ruling.keys

    def ordering(self, table: Table) -> Ordering:
        return self.order

    def bases(self, table: Table) -> Mapping[str, ShardBase]:
        return self.read

    def landed_batch(self) -> int:
        return len(self.changes) - 1

    @property
    def now(self) -> datetime:
        return NOON

    def clock(self) -> datetime:
        return NOON

    def recall(
        self, table: Table, check: str, *, lasting: bool = False
    ) -> Mapping[str, Any] | None:
        return None if self.outdated and not lasting else self.memory.get(check)

    def remember(self, table: Table, check: str, memory: Mapping[str, Any]) -> None:
        self.memory[check] = memory
        self.outdated = False

    def log(self) -> SimpleNamespace:
        return SimpleNamespace(key_times=self._key_times)

    def _key_times(
        self,
        table: Table,
        after: int,
        until: int,
        keys: Sequence[str],
        *,
        fell_by: timedelta,
        most: int,
    ) -> tuple[KeyTimes, ...]:
        self.reads += 1
        found: dict[str, KeyTimes] = {}
        for batch, (key, minute) in enumerate(self.changes):
            if not after < batch <= until:
                continue
            at = NOON + minute * MINUTE
            latest = max(at, found[key].latest) if key in found else at
            found[key] = KeyTimes(key, latest, at, SHARD, Order(1, 0, batch))
        told = (
            one for one in found.values() if one.latest - one.newest > fell_by or one.key in keys
        )
        return tuple(told)[:most]


def test_s10_a_row_that_goes_over_a_newer_one_is_an_incident_until_a_newer_one_stands() -> None:
    world = Landed()
    for key, minute in [("a", 0), ("b", 1), ("a", 10)]:
        world.land(key, minute)
    assert world.ruled() == ("pass", ())

    world.land("a", 0)  # sent again

    assert world.ruled() == ("fail", ("a",))
    world.land("b", 11)
    assert world.ruled() == ("fail", ("a",))
    world.land("a", 10)  # and the newer one after it
    assert world.ruled() == ("pass", ())


def test_what_fell_is_remembered_when_it_is_no_longer_looked_at() -> None:
    world, probe = Landed(), Inversions(back=2)
    world.land("a", 10)
    world.land("a", 0)
    assert world.ruled(probe) == ("fail", ("a",))
    for minute in range(5):
        world.land("b", 20 + minute)
        assert world.ruled(probe) == ("fail", ("a",))

    world.land("a", 9)
    assert world.ruled(probe) == ("pass", ())
    world.land("a", 5)
    assert world.ruled(probe) == ("fail", ("a",))


def test_what_fell_outlives_a_change_log_that_was_replaced() -> None:
    world = Landed()
    world.land("a", 10)
    world.land("a", 0)
    assert world.ruled() == ("fail", ("a",))
    world.changes, world.outdated = [("b", 20)], True

    assert [world.ruled() for _ in range(2)] == [("fail", ("a",))] * 2

    world.read = {SHARD: ShardBase(Order(1, 0, 2), since=2)}
    assert world.ruled() == ("pass", ())


@pytest.mark.parametrize("back", [500, 2], ids=["still looked at", "remembered"])
def test_a_row_that_came_again_and_is_gone_is_over_with_a_base_that_was_read_since(
    back: int,
) -> None:
    """Nothing of it comes any more: the base has no such row."""
    world, probe = Landed([("a", 10), ("a", 0)]), Inversions(back=back)
    assert world.ruled(probe) == ("fail", ("a",))
    world.land("b", 20)
    world.land("b", 21)
    assert world.ruled(probe) == ("fail", ("a",))

    world.read = {SHARD: ShardBase(Order(1, 0, 1), since=2)}  # at the row's own place
    assert world.ruled(probe) == ("fail", ("a",))
    world.read = {SHARD: ShardBase(Order(1, 0, 2), since=2)}

    assert world.ruled(probe) == ("pass", ())
    world.land("b", 22)
    assert world.ruled(probe) == ("pass", ())


@pytest.mark.parametrize(
    ("minutes", "outcome"),
    [
        pytest.param((0, 5, 5), "pass", id="two of one time"),
        pytest.param((5, 4.1), "pass", id="a statement that waited for a lock"),
        pytest.param((5, 4), "pass", id="just as much as may be"),
        pytest.param((5, 3.9), "fail", id="more than that"),
    ],
)
def test_a_small_fall_means_nothing(minutes: Sequence[float], outcome: str) -> None:
    world = Landed()
    for minute in minutes:
        world.land("a", minute)

    assert world.ruled()[0] == outcome


def test_more_small_falls_than_are_kept_do_not_hide_a_large_one() -> None:
    small = [(f"a{n}", minute) for n in range(MOST_KEPT) for minute in (5, 4.5)]
    world = Landed([*small, ("b", 5), ("b", 0)])

    assert world.ruled(Inversions(back=3 * MOST_KEPT)) == ("fail", ("b",))


@pytest.mark.parametrize("ordering", [Ordering.LOG, Ordering.SEQUENCE])
def test_no_clock_decides_where_offsets_are_not_the_order(ordering: Ordering) -> None:
    world = Landed([("a", 9), ("a", 0)], ordering)

    assert world.ruled() == ("pass", ())
    assert world.memory == {}


def test_before_anything_has_landed_there_is_nothing_to_say() -> None:
    assert isinstance(PROBE.measure(TABLE, cast("World", Landed())), NotYet)


def test_a_fail_names_the_first_key_and_both_times() -> None:
    world = Landed([("a", 9), ("a", 0), ("b", 9), ("b", 1)])
    reading = PROBE.measure(TABLE, cast("World", world))
    assert not isinstance(reading, NotYet)

    ruling = PROBE.judge(reading, [])

    assert (ruling.outcome, ruling.code) == (Outcome.FAIL, "clock_fell")
    assert ruling.reason.startswith("2 keys: the newest change of a is dated 2026-03-01T12:00:00")
    assert reading.value == 2.0
    assert PROBE.judge(replace(reading, found=()), []).outcome is Outcome.PASS


def test_the_log_is_read_only_if_a_batch_has_landed_since() -> None:
    world = Landed([("a", 9), ("a", 0)])
    first = world.ruled()

    assert [world.ruled() for _ in range(2)] == [first] * 2
    assert world.reads == 1

    world.land("a", 1)
    world.ruled()
    assert world.reads == 2
