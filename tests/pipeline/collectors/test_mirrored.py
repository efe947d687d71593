"""Behind a mirror nothing counts as acknowledged before every partition of it has come through."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.collectors.collector import Collector
from pipeline.collectors.connect.collector import ConnectCollector
from pipeline.collectors.mirrormaker import Mirrored, behind_mirror
from pipeline.errors import UnreachableError
from pipeline.formats.debezium_json import DebeziumJson
from pipeline.landing.listing import LandingSource
from pipeline.model import Acknowledged, CaptureScope, Head, Missing, PartitionEnd, TopicPartition
from pipeline.settings import CollectorSettings, MirrorSettings, SourceSettings
from pipeline.sources.mysql.dialect import MYSQL
from pipeline.sources.mysql.position import binlog_position
from pipeline.sources.positions import locate_position
from pipeline.sources.source import Source
from pipeline.transports.transport import Transport

SOURCE = SourceSettings("shop", "h", 1, "u", CollectorSettings("http://c", "shop"), "shop")
USERS, BEATS = TopicPartition("shop.shop.users", 0), TopicPartition("shop.sluice.heartbeat", 0)
TOPICS = SOURCE.every_topic(())
OTHERS = TopicPartition("bank.bank.accounts", 0)


@dataclass
class World:
    """A cluster with its collector, and a mirror that stores what it has carried over."""

    there: dict[TopicPartition, int] = field(default_factory=lambda: {USERS: 4, BEATS: 2})
    first: dict[TopicPartition, int] = field(default_factory=dict)
    over: dict[TopicPartition, int] = field(default_factory=dict)
    said: Acknowledged | Missing = Acknowledged(binlog_position(1, 100))  # noqa: RUF009  - it is frozen
    ids: dict[str, str] = field(default_factory=dict)
    silent: bool = False

    def captures(self) -> CaptureScope:
        return CaptureScope(lambda _: True)

    def topics(self, pattern: str) -> Mapping[str, str]:
        """All of them, with their ids."""
        return {at.topic: self.ids.get(at.topic, "one") for at in self.there}

    def ends(self, topics: Iterable[str]) -> Mapping[TopicPartition, PartitionEnd]:
        """Where they end."""
        chosen = set(topics)
        return {at: PartitionEnd(n) for at, n in self.there.items() if at.topic in chosen}

    def beginnings(self, topics: Iterable[str]) -> Mapping[TopicPartition, PartitionEnd]:
        """Where they begin."""
        return {at: PartitionEnd(self.first.get(at, 0)) for at in self.ends(topics)}

    def carried(self) -> Mapping[TopicPartition, int]:
        """What the mirror has stored."""
        if self.silent:
            raise UnreachableError("connector mirror: connection refused")
        return dict(self.over)

    def acknowledged(self) -> Acknowledged | Missing:
        """What the collector has stored."""
        return self.said

    def address(self) -> tuple[str, int]:
        """The server that the collector reads."""
        return "h", 1

    def sends(self) -> None:
        """All there is."""

    def head(self) -> Head:
        """The end of its log."""
        return Head("A", binlog_position(1, 100))

    def carry(self, *partitions: TopicPartition) -> None:
        """Bring *partitions*, all by default, over to their ends."""
        self.over |= {at: self.there[at] - 1 for at in partitions or self.there if self.there[at]}

    def write(self, pos: int) -> None:
        """One more record everywhere, and the collector has acknowledged it."""
        self.there = {at: end + 1 for at, end in self.there.items()}
        self.said = Acknowledged(binlog_position(1, pos))


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def mirrored(world: World) -> Mirrored:
    return standing_in(world)


def standing_in(
    world: World, source: SourceSettings = SOURCE, topics: str = TOPICS, alias: str = ""
) -> Mirrored:
    """*world* is the collector, its cluster and the mirror at once."""
    collector, upstream = cast(Collector, world), cast(Transport, world)
    return Mirrored(source, collector, upstream, cast(ConnectCollector, world), topics, alias)


def test_an_idle_source_is_known_to_have_come_through_at_once(
    world: World, mirrored: Mirrored
) -> None:
    world.carry()

    assert mirrored.acknowledged() == Acknowledged(binlog_position(1, 100))


def test_under_load_the_older_position_counts_once_its_ends_are_carried_over(
    world: World, mirrored: Mirrored
) -> None:
    assert isinstance(mirrored.acknowledged(), Missing)
    world.carry()
    world.write(pos=200)

    assert mirrored.acknowledged() == Acknowledged(binlog_position(1, 100))
    world.carry()
    world.write(pos=300)
    assert mirrored.acknowledged() == Acknowledged(binlog_position(1, 200))


def test_one_partition_says_nothing_about_another(world: World, mirrored: Mirrored) -> None:
    world.carry(BEATS)

    found = mirrored.acknowledged()

    assert isinstance(found, Missing)
    assert str(USERS) in found.why


def test_a_partition_that_holds_nothing_is_not_waited_for(world: World, mirrored: Mirrored) -> None:
    world.there[TopicPartition("shop.shop.users", 1)] = 0
    world.carry()

    assert mirrored.acknowledged() == Acknowledged(binlog_position(1, 100))


def test_only_the_sources_own_topics_count_by_the_names_they_have_here(world: World) -> None:
    here = SourceSettings("shop", "h", 1, "u", SOURCE.collector, "dc1.shop")
    topics = here.every_topic(())
    world.there[OTHERS] = 9
    world.carry(USERS, BEATS)

    assert standing_in(world, here, topics, "dc1").acknowledged() == Acknowledged(
        binlog_position(1, 100)
    )
    no_alias = standing_in(world, here, topics)
    assert isinstance(no_alias.acknowledged(), Missing)


def _create_anew(world: World) -> None:
    world.ids[USERS.topic] = "two"


def _delete_too_early(world: World) -> None:
    world.there[USERS], world.first[USERS] = 90, 50


def _begin_again(world: World) -> None:
    world.there[USERS] = 1


@pytest.mark.parametrize(
    ("harm", "why"),
    [
        pytest.param(_create_anew, "created again", id="a topic under another id"),
        pytest.param(_delete_too_early, "deleted up to 50", id="retention was faster"),
        pytest.param(_begin_again, "more of", id="the mirror's memory is of another topic"),
    ],
)
def test_a_mirror_that_cannot_have_carried_all_is_never_believed_again(
    world: World, mirrored: Mirrored, harm: object, why: str
) -> None:
    world.carry()
    mirrored.acknowledged()

    assert callable(harm)
    harm(world)
    found = mirrored.acknowledged()
    world.carry()

    assert isinstance(found, Missing)
    assert why in found.why
    assert isinstance(mirrored.acknowledged(), Missing)


def test_a_position_that_goes_back_forgets_what_another_log_has_proven(
    world: World, mirrored: Mirrored
) -> None:
    world.carry()
    mirrored.acknowledged()

    world.write(pos=50)

    assert isinstance(mirrored.acknowledged(), Missing)


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(Missing("no offset yet"), id="nothing is stored"),
        pytest.param(
            Acknowledged(binlog_position(1, 100), snapshot=True), id="a snapshot proves nothing"
        ),
    ],
)
def test_what_the_collector_cannot_say_no_mirror_says_for_it(
    world: World, mirrored: Mirrored, said: Acknowledged | Missing
) -> None:
    world.said = said

    assert mirrored.acknowledged() == said


def test_a_mirror_that_does_not_answer_proves_nothing_new(world: World, mirrored: Mirrored) -> None:
    world.silent = True

    with pytest.raises(UnreachableError):
        mirrored.acknowledged()


def test_a_position_waits_for_as_long_as_the_mirror_stands_still(
    world: World, mirrored: Mirrored
) -> None:
    found = [mirrored.acknowledged() for _ in range(3)]

    assert [type(one) for one in found] == [Missing] * 3


def test_landing_believes_the_mirror_not_the_collector(world: World, mirrored: Mirrored) -> None:
    feed = LandingSource(
        SOURCE,
        cast(Collector, world),
        DebeziumJson(),
        lambda _: cast(Source, world),
        MYSQL,
        mirrored,
    )

    assert isinstance(feed.acknowledged(), Missing)
    world.carry()
    assert feed.acknowledged() == Acknowledged(binlog_position(1, 100))
    world.silent = True
    assert isinstance(feed.acknowledged(), Missing)


def test_a_source_without_a_mirror_needs_no_one_to_speak_for_its_collector(world: World) -> None:
    between = MirrorSettings("127.0.0.1:9", "http://127.0.0.1:9", "mirror", "dc1")
    behind = SourceSettings("s", "h", 1, "u", SOURCE.collector, "dc1.s", mirrored=between)

    assert behind_mirror(SOURCE, cast(Collector, world), TOPICS) is None
    assert isinstance(behind_mirror(behind, cast(Collector, world), TOPICS), Mirrored)


@given(
    st.lists(
        st.sampled_from(
            ["write users", "write beats", "acknowledge", "carry users", "carry beats", "ask"]
        ),
        min_size=20,
        max_size=60,
    )
)
def test_whatever_is_called_arrived_is_there(steps: list[str]) -> None:
    world = World(there={USERS: 0, BEATS: 0}, said=Missing("no offset yet"))
    mirrored, written = standing_in(world), 0
    below: dict[int, dict[TopicPartition, int]] = {}  # position -> ends when it was acknowledged
    for step in steps:
        verb, _, what = step.partition(" ")
        at = USERS if what == "users" else BEATS
        if verb == "write":
            world.there[at] += 1
            written += 1
        elif verb == "acknowledge":
            world.said = Acknowledged(binlog_position(1, written))
            below.setdefault(written, dict(world.there))
        elif verb == "carry" and world.over.get(at, -1) < world.there[at] - 1:
            world.over[at] = world.over.get(at, -1) + 1
        elif verb == "ask" and isinstance(found := mirrored.acknowledged(), Acknowledged):
            needed = below[locate_position(found.position)[1]]
            assert needed.keys() == {USERS, BEATS}
            assert all(world.over.get(at, -1) >= end - 1 for at, end in needed.items())
