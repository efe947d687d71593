"""What there is to land is asked of all sources at once; one that hangs is left out of it.

If anybody waited for one who hangs, a test would not end.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import cast

import pytest

from pipeline.collectors.collector import Capture, Collector
from pipeline.errors import ConfigError, UnreachableError
from pipeline.formats.debezium_json import DebeziumJson
from pipeline.landing.listing import Listing, Upstream
from pipeline.landing.source_feed import Feed
from pipeline.model import Acknowledged, Head, PartitionEnd, TopicPartition
from pipeline.settings import CollectorSettings, SourceSettings
from pipeline.sources.mysql.dialect import MYSQL
from pipeline.sources.mysql.position import binlog_position
from pipeline.sources.source import Source
from pipeline.transports.transport import Transport
from tests.checks.samples import NOW
from tests.pipeline.hanging import Hanging

NAMES = ("calm", "hung", "shop")
CALM = {"calm", "shop"}
SETTINGS = SourceSettings("", "set", 1, "u", CollectorSettings("http://c", "c"), "")


@dataclass(eq=False)
class Server:
    """A server and its collector; ``ails`` happens where the word is said."""

    word: str = ""
    ails: Callable[[], object] = lambda: None
    heads: int = 0

    def address(self) -> tuple[str, int]:
        return "set", 1

    def head(self) -> Head:
        self.heads += 1
        self._say(f"head {self.heads}")
        return Head("server", binlog_position(1, 10))

    def acknowledged(self) -> Acknowledged:
        self._say("acknowledged")
        return Acknowledged(binlog_position(1, 10))

    def captures(self) -> Capture:
        self._say("lists")
        return Capture(lambda _: True)

    def _say(self, word: str) -> None:
        if word == self.word:
            self.ails()


class Topics:
    """One topic of each source."""

    def topics(self, _: str) -> Sequence[str]:
        return [f"{name}.d.t" for name in NAMES]

    def ends(self, topics: Sequence[str]) -> dict[TopicPartition, PartitionEnd]:
        return {TopicPartition(topic, 0): PartitionEnd(5) for topic in topics}

    beginnings = ends

    def epoch_ends(self, _: object) -> dict[TopicPartition, int]:
        return {}


@dataclass(eq=False)
class Site:
    """Three sources, and what is asked of them time and again."""

    hung: Server
    hanging: Hanging

    def __post_init__(self) -> None:
        """All but one answer at once."""
        servers = {name: self.hung if name == "hung" else Server() for name in NAMES}
        feeds = [_feed(name, server) for name, server in servers.items()]
        self.upstream = Upstream.of(feeds, cast(Transport, Topics()), lambda: NOW)
        asking = (self.upstream.before, self.upstream.after)
        for one in asking:
            one.patience = timedelta(seconds=3)
        self.hanging.watched(*asking)

    def list(self) -> Listing:
        return self.upstream.list({})


def _feed(name: str, server: Server) -> Feed:
    settings = replace(SETTINGS, name=name, prefix=name)
    source, collector = cast(Source, server), cast(Collector, server)
    return Feed(settings, collector, DebeziumJson(), lambda _: source, MYSQL)


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
