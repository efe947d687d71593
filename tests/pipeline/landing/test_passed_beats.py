"""Where versions are not one sequence over the whole source, no change is lost to a base unseen."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from pipeline.formats.debezium_json import DebeziumJson
from pipeline.formats.format import Format
from pipeline.landing.heartbeats import HeartbeatLowWatermark
from pipeline.landing.listing import Listing
from pipeline.model import Op, Ordering
from tests.pipeline.landing.desk import Desk

SEQUENCE = {"a": Ordering.SEQUENCE}


@dataclass(frozen=True, slots=True)
class Counted(DebeziumJson):
    """Its places are the sender's own sequence."""

    ordering: ClassVar[Ordering] = Ordering.SEQUENCE


@dataclass(eq=False)
class CountedDesk(Desk):
    def format(self, name: str) -> Format:
        return Counted()

    def beat(self, number: int, version: int) -> None:
        """A heartbeat comes out, and then the log goes on."""
        self.topics.beat("a", number, pos=version)
        self.land()
        self.server.end += 10


@pytest.fixture
def desk(tmp_path: Path) -> CountedDesk:
    made = CountedDesk(tmp_path, names="a")
    made.topics.put("a", 5, "first")
    for number in range(1, 6):
        made.beat(number, 100 * number)
    return made


def test_a_version_below_a_heartbeat_that_is_passed_holds_the_source(desk: CountedDesk) -> None:
    """Its partition has shown nothing as high: it is counted by its own row."""
    desk.topics.put("a", 6, "lost, if a base stands above it")

    (hold,) = desk.land().holds

    assert hold.reason == "disorder"
    assert "a.db.t:0 offset 1 stands below what was landed and repeats nothing" in hold.detail
    assert len(desk.landed()) == 1


def test_what_a_topic_holds_when_it_is_met_may_be_older(desk: CountedDesk) -> None:
    """It was there before, and nobody let us read it; from then on it is as any other."""
    desk.topics._insert("a", ("db", "new"), {"id": 1}, (7, 6), None)
    assert not desk.land().holds
    desk.beat(6, 600)
    desk.beat(7, 700)
    desk.beat(8, 800)

    desk.topics._insert("a", ("db", "new"), {"id": 2}, (7, 7), None)

    assert [one.reason for one in desk.land().holds] == ["disorder"]


def test_one_above_it_lands_and_so_does_what_is_sent_again(desk: CountedDesk) -> None:
    desk.topics.put("a", 5, "first")  # again
    desk.topics.put("a", 900, "new")

    assert not desk.land().holds
    assert len(desk.landed()) == 3


def test_a_message_that_was_logged_before_the_newest_heartbeat_may_come_after_it(
    desk: CountedDesk,
) -> None:
    """Another partition was slower: nobody has acknowledged yet that all before it has arrived."""
    desk.server.silent = True
    desk.beat(6, 600)
    desk.topics.put("a", 550, "slower")

    assert not desk.land().holds
    desk.server.silent = False
    desk.beat(7, 700)
    desk.beat(8, 800)
    desk.topics.put("a", 560, "too late")
    assert [one.reason for one in desk.land().holds] == ["disorder"]


def test_a_person_lets_it_through_as_a_new_log(desk: CountedDesk) -> None:
    desk.topics.put("a", 6, "lower")
    (hold,) = desk.land().holds

    assert not desk.land(hold.id).holds
    assert [one["order"]["epoch"] for one in desk.landed(Op.CREATE)] == [1, 2]
    desk.topics.put("a", 7, "of the new log")
    assert not desk.land().holds


@pytest.mark.parametrize("ordering", [Ordering.LOG, Ordering.OFFSET])
def test_other_orders_have_none(desk: CountedDesk, ordering: Ordering) -> None:
    passed = HeartbeatLowWatermark()
    for number in (6, 7, 8):
        desk.beat(number, 100 * number)
        found = passed.floors(desk.loop.checkpoint, listing(desk), {"a": ordering})

        assert not found


def test_after_a_restart_it_is_found_out_anew(desk: CountedDesk) -> None:
    checkpoint, passed = desk.loop.checkpoint, HeartbeatLowWatermark()

    first = passed.floors(checkpoint, listing(desk), SEQUENCE)
    desk.beat(6, 600)
    then = passed.floors(desk.loop.checkpoint, listing(desk), SEQUENCE)

    assert first == {}
    order = checkpoint.beats["a"].order
    assert then == {"a/a.db.t:0": order, "a/a.sluice.heartbeat:0": order}


def listing(desk: CountedDesk) -> Listing:
    return desk.loop.upstream.list(desk.loop.checkpoint.offsets)
