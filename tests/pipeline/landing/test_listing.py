"""What there is to land is asked of all sources at once; one that hangs is left out of it.

If anybody waited for one who hangs, a test would not end.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import cast

import pytest
from structlog.testing import capture_logs

from pipeline.collectors.collector import Collector
from pipeline.errors import ConfigError, UnreachableError
from pipeline.formats.debezium_json import DebeziumJson
from pipeline.landing.listing import LandingSource, Listing, Upstream, find_owner
from pipeline.model import Acknowledged, CaptureScope, Head, Missing, PartitionEnd, TopicPartition
from pipeline.settings import CollectorSettings, SourceSettings
from pipeline.sources.mysql.dialect import MYSQL
from pipeline.sources.mysql.position import binlog_position
from pipeline.sources.source import Source
from pipeline.transports.transport import Transport
from tests.checks.samples import NOW
from tests.counting import count_matches
from tests.pipeline.hanging import Hanging

NAMES = ("calm", "hung", "shop")
CALM = {"calm", "shop"}
ACKNOWLEDGED = Acknowledged(binlog_position(1, 10))
SETTINGS = SourceSettings("", "set", 1, "u", CollectorSettings("http://c", "c"), "")


@dataclass(eq=False)
class Server:
    """A server and its collector; ``ails`` happens where the word is said."""

    word: str = ""
    ails: Callable[[], object] = lambda: None
    offset: Acknowledged | Missing = ACKNOWLEDGED
    heads: int = 0

    def address(self) -> tuple[str, int]:
        return "set", 1

    def sends(self) -> None:
        """All there is."""

    def head(self) -> Head:
        self.heads += 1
        self._say(f"head {self.heads}")
        return Head("server", binlog_position(1, 10))

    def acknowledged(self) -> Acknowledged | Missing:
        self._say("acknowledged")
        return self.offset

    def captures(self) -> CaptureScope:
        self._say("lists")
        return CaptureScope(lambda _: True)

    def _say(self, word: str) -> None:
        if word == self.word:
            self.ails()


@dataclass(eq=False)
class Topics:
    """One topic of each source, led in ``epoch``; ``new`` ones came once beginnings were told."""

    names: Sequence[str] = tuple(f"{name}.d.t" for name in NAMES)
    new: frozenset[str] = frozenset()
    forbidden: frozenset[str] = frozenset()
    epoch: int = -1

    def topics(self, _: str) -> Sequence[str]:
        return self.names

    def ends(self, topics: Sequence[str]) -> dict[TopicPartition, PartitionEnd]:
        return {TopicPartition(name, 0): PartitionEnd(5, "", self.epoch) for name in topics}

    def beginnings(self, topics: Sequence[str]) -> dict[TopicPartition, PartitionEnd]:
        return {TopicPartition(name, 0): PartitionEnd(0) for name in topics if name not in self.new}

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Each ends at 100 times its number."""
        return {at: 100 * epoch for at, epoch in epochs.items()}

    def hidden(self, topics: Iterable[str]) -> frozenset[str]:
        return self.forbidden & frozenset(topics)


@dataclass(eq=False)
class Site:
    """Three sources, and what is asked of them time and again."""

    hung: Server
    hanging: Hanging
    topics: Topics = field(default_factory=Topics)

    def __post_init__(self) -> None:
        servers = {name: self.hung if name == "hung" else Server() for name in NAMES}
        feeds = [_feed(name, server) for name, server in servers.items()]
        self.upstream = Upstream.of(feeds, cast(Transport, self.topics), lambda: NOW)
        asking = (self.upstream.before, self.upstream.after)
        for one in asking:
            one.patience = timedelta(seconds=3)
        self.hanging.watched(*asking)

    def list(self, w: Mapping[TopicPartition, PartitionEnd] | None = None) -> Listing:
        return self.upstream.list(w or {})


def _feed(name: str, server: Server, prefix: str = "") -> LandingSource:
    settings = replace(SETTINGS, name=name, prefix=prefix or name)
    source, collector = cast(Source, server), cast(Collector, server)
    return LandingSource(settings, collector, DebeziumJson(), lambda _: source, MYSQL)


@pytest.mark.parametrize("word", ["head 1", "acknowledged", "lists", "head 2"])
def test_f21_a_source_that_hangs_is_left_out_and_the_others_land(
    hanging: Hanging, word: str
) -> None:
    site = Site(Server(word, hanging), hanging)

    for _ in range(3):
        listing = site.list()

        assert listing.heads.keys() == CALM
        assert listing.acknowledged.keys() == ({*NAMES} if word == "head 2" else CALM)
        assert set(listing.source_of.values()) == {*NAMES}
    assert len(hanging.stuck) == 1


def test_what_was_said_too_late_for_one_listing_is_not_taken_for_the_next(
    hanging: Hanging,
) -> None:
    first = Hanging()

    def late() -> None:
        with suppress(UnreachableError):
            first()

    site = Site(Server("acknowledged", late), first)
    site.list()
    first.release()
    site.hung.ails = hanging
    hanging.watched(site.upstream.before)

    assert site.list().acknowledged.keys() == CALM


def test_a_source_that_refuses_stops_no_other(hanging: Hanging) -> None:
    def refuse() -> None:
        raise ConfigError("source:hung: access denied")

    listing = Site(Server("head 1", refuse), hanging).list()

    assert listing.heads.keys() == listing.acknowledged.keys() == CALM


ALL = {*NAMES}


@pytest.mark.parametrize(
    ("word", "heads", "acknowledged", "captures"),
    [
        pytest.param("head 1", CALM, ALL, ALL, id="its server"),
        pytest.param("acknowledged", ALL, CALM, CALM, id="its collector"),
        pytest.param("lists", ALL, CALM, CALM, id="its collector, of what it sends"),
        pytest.param("head 2", CALM, ALL, ALL, id="its server, after the ends"),
    ],
)
def test_of_a_source_that_does_not_answer_only_what_it_told_is_listed(
    hanging: Hanging, word: str, heads: set[str], acknowledged: set[str], captures: set[str]
) -> None:
    """Nothing that nobody has said: a listing holds positions and lists, and no other word."""

    def refuse() -> None:
        raise UnreachableError("connection refused")

    listing = Site(Server(word, refuse), hanging).list()

    assert listing.heads.keys() == heads
    assert all(isinstance(one, Head) for both in listing.heads.values() for one in both)
    assert listing.acknowledged.keys() == acknowledged
    assert listing.captures.keys() == captures


def test_a_collector_that_runs_and_has_no_offset_yet_has_acknowledged_nothing(
    hanging: Hanging,
) -> None:
    listing = Site(Server(offset=Missing("no offset yet")), hanging).list()

    assert listing.acknowledged.keys() == CALM
    assert listing.captures.keys() == ALL


@pytest.mark.parametrize("word", ["head 1", "head 2"])
def test_who_says_nothing_is_logged_once_until_he_speaks_again(hanging: Hanging, word: str) -> None:
    def refuse() -> None:
        raise ConfigError("source:hung: access denied")

    site = Site(Server(word, refuse), hanging)
    told = list[int]()
    for one in (word, word, "nothing", word, word):
        site.hung.word, site.hung.heads = one, 0
        with capture_logs() as logs:
            site.list()
        told.append(sum(one["event"] == "not_asked" for one in logs))

    assert told == [1, 0, 0, 1, 0]


CALM_AT = TopicPartition("calm.d.t", 0)


@pytest.mark.parametrize(
    ("read", "leads", "asked"),
    [
        pytest.param(2, 3, {CALM_AT: 200}, id="another leader"),
        pytest.param(0, 1, {CALM_AT: 0}, id="after the very first"),
        pytest.param(3, 3, {}, id="the same"),
        pytest.param(-1, 3, {}, id="nobody knows by whom it was read"),
    ],
)
def test_where_a_leader_epoch_ends_is_asked_where_another_leads(
    hanging: Hanging, read: int, leads: int, asked: dict[TopicPartition, int]
) -> None:
    site = Site(Server(), hanging, Topics(epoch=leads))

    listing = site.list({CALM_AT: PartitionEnd(5, "", read)})

    assert listing.epoch_ends == asked


def test_what_was_read_and_is_not_listed_may_be_hidden(hanging: Hanging) -> None:
    topics = Topics(forbidden=frozenset({"calm.d.secret", "calm.d.t", "calm.d.unread"}))
    came = {
        TopicPartition.parse(name): PartitionEnd(5)
        for name in ("calm.d.t:0", "calm.d.secret:1", "calm.d.gone:0")
    }

    assert Site(Server(), hanging, topics).list(came).hidden == {"calm.d.secret"}


def test_topics_of_nobody_and_partitions_without_a_beginning_are_not_listed(
    hanging: Hanging,
) -> None:
    """One whose beginning is not told is listed the next time."""
    topics = Topics(names=("calm.d.t", "calm.d.new", "other.d.t"), new=frozenset({"calm.d.new"}))

    listing = Site(Server(), hanging, topics).list()

    assert listing.source_of == {"calm.d.t": "calm", "calm.d.new": "calm"}
    assert listing.ends.keys() == listing.beginnings.keys() == {CALM_AT}


def test_what_is_asked_after_the_ends_has_half_the_time(hanging: Hanging) -> None:
    """It is one of two questions that go to a server, and none to a collector."""
    upstream = Upstream.of((), cast(Transport, Topics()), lambda: NOW)

    assert upstream.after.patience * 2 == upstream.before.patience


def test_what_topics_are_called_is_known_of_their_source_alone(hanging: Hanging) -> None:
    upstream = Site(Server(), hanging).upstream

    found = upstream.names("shop.d.t")

    assert found is not None
    assert (found.source, found.statements) == ("shop", "shop")
    assert upstream.names("other.d.t") is None


SHOP, EUROPE = _feed("shop", Server()), _feed("europe", Server(), "shop.eu")


@pytest.mark.parametrize(
    ("topic", "feed"),
    [
        ("shop.db.t", SHOP),
        ("shop.eu.db.t", EUROPE),
        ("shop.eu", EUROPE),
        ("shop", SHOP),
        ("blog.db.t", None),
    ],
)
def test_of_several_sources_a_topic_is_of_the_longest_prefix(
    topic: str, feed: LandingSource | None
) -> None:
    for feeds in ((SHOP, EUROPE), (EUROPE, SHOP)):
        assert find_owner(topic, feeds) is feed


def test_the_patterns_of_all_sources_are_tried_once_for_each_topic(hanging: Hanging) -> None:
    site = Site(Server(), hanging)

    first = count_matches(site.list)
    again = count_matches(site.list)
    site.topics.names = (*site.topics.names[1:], "shop.d.new")
    changed = count_matches(site.list)

    assert (first, again, changed) == (len(NAMES) ** 2, 0, len(NAMES))
    assert site.list().source_of == {"hung.d.t": "hung", "shop.d.t": "shop", "shop.d.new": "shop"}
    assert count_matches(lambda: site.upstream.names("shop.d.new")) == 0


def test_a_topic_that_two_sources_claim_alike_is_an_error_that_names_both() -> None:
    with pytest.raises(ConfigError, match=r"shop\.db\.t is claimed by shop and twin; give them"):
        find_owner("shop.db.t", (SHOP, _feed("twin", Server(), "shop")))
