"""Whoever is silent is `None` or `Missing` to landing; the server asked is the collector's."""

from dataclasses import dataclass, field, replace
from typing import cast

import pytest
from structlog.testing import capture_logs

from pipeline.collectors.collector import Collector
from pipeline.errors import UnreachableError
from pipeline.formats.debezium_json import DebeziumJson
from pipeline.landing.hazards import hazard_id
from pipeline.landing.listing import LandingSource
from pipeline.model import Acknowledged, CaptureScope, Head, Missing, ShardId
from pipeline.settings import CollectorSettings, SourceSettings
from pipeline.sources.mysql.dialect import MYSQL
from pipeline.sources.mysql.position import binlog_position
from pipeline.sources.source import Source
from pipeline.transports.topics import UNCLEAN, TopicFacts, find_topic_hazards

SOURCE = SourceSettings(
    *("shop", "set", 1, "u", CollectorSettings("http://c", "shop"), "shop"),
    follow_hosts=("one", "two", "db", "down"),
)
HERE = binlog_position(1, 100)


@dataclass(eq=False)
class Server:
    """One that knows where it was dialled, and that nobody uses any more once it is closed."""

    host: str
    closed: bool = False
    published: CaptureScope | None = None

    def sends(self) -> CaptureScope | None:
        if self.host == "down":
            raise UnreachableError("down: connection refused")
        return self.published

    def head(self) -> Head:
        if self.host == "down":
            raise UnreachableError("down: connection refused")
        return Head(self.host, HERE)

    def close(self) -> None:
        self.closed = True


@dataclass(eq=False)
class Site:
    """A collector that reads ``host``, and every server that was ever dialled."""

    host: str = "one"
    silent: bool = False
    servers: list[Server] = field(default_factory=list)

    def address(self) -> tuple[str, int]:
        self._speak()
        return self.host, 3306

    def acknowledged(self) -> Acknowledged | Missing:
        self._speak()
        return Acknowledged(HERE)

    def captures(self) -> CaptureScope:
        self._speak()
        return CaptureScope(lambda shard: shard.database == self.host)

    def connect(self, settings: SourceSettings) -> Source:
        self.servers.append(Server(settings.host))
        return cast(Source, self.servers[-1])

    def feed(self, settings: SourceSettings = SOURCE) -> LandingSource:
        return LandingSource(settings, cast(Collector, self), DebeziumJson(), self.connect, MYSQL)

    def _speak(self) -> None:
        if self.silent:
            raise UnreachableError("connector shop: connection refused")


def test_a_server_that_the_collector_has_left_is_hung_up() -> None:
    site = Site()
    feed = site.feed()

    told = [feed.head(), feed.head()]
    site.host = "two"
    told.append(feed.head())

    assert told == [Head("one", HERE), Head("one", HERE), Head("two", HERE)]
    assert [(one.host, one.closed) for one in site.servers] == [("one", True), ("two", False)]


def test_while_the_collector_is_silent_the_server_that_was_asked_last_is() -> None:
    site = Site()
    feed = site.feed()
    feed.head()
    site.silent = True

    assert feed.head() == Head("one", HERE)
    assert site.feed().head() == Head("set", HERE), "nobody was asked before"
    assert isinstance(feed.acknowledged(), Missing)


@pytest.mark.parametrize(
    ("follow", "host", "identity"),
    [
        pytest.param(True, "down", None, id="a server that is down has no head"),
        pytest.param(False, "down", "set", id="two networks: the configured address counts"),
    ],
)
def test_where_the_head_is_asked_for(*, follow: bool, host: str, identity: str | None) -> None:
    settings = SourceSettings(
        *("shop", "set", 1, "u", SOURCE.collector, "shop"),
        follow_collector=follow,
        follow_hosts=("down",),
    )

    found = Site(host).feed(settings).head()

    assert (found.identity if found else None) == identity


def test_what_a_collector_captures_is_remembered_while_it_is_silent() -> None:
    site = Site("db")
    feed, unheard = site.feed(), Site(silent=True).feed()

    before = feed.captures()
    site.silent = True

    assert isinstance(before, CaptureScope)
    assert [before(ShardId.parse(name)) for name in ("db.t", "other.t")] == [True, False]
    assert (feed.captures(), feed.last_scope) == (
        Missing("connector shop: connection refused"),
        before,
    )
    assert (unheard.captures(), unheard.last_scope) == (
        Missing("connector shop: connection refused"),
        None,
    )


def test_what_its_server_does_not_send_is_not_captured_whatever_the_lists_say() -> None:
    site = Site("db")
    feed = site.feed()
    plain = feed.captures()
    site.servers[-1].published = CaptureScope(
        lambda shard: shard.relation == "t", "t alone", said_by="publication shop"
    )

    told = feed.captures()

    assert isinstance(plain, CaptureScope)
    assert isinstance(told, CaptureScope)
    assert [told(ShardId.parse(name)) for name in ("db.t", "db.u", "other.t")] == [1, 0, 0]
    assert plain.text != told.text
    assert told.said_by == "the collector's lists or publication shop"
    site.host = "down"
    assert feed.captures() == Missing("down: connection refused")
    assert feed.last_scope == told


def test_lists_of_a_collector_that_has_just_said_nothing_do_not_count() -> None:
    site = Site()
    feed = site.feed()
    site.silent = True
    feed.acknowledged()
    site.silent = False

    assert isinstance(feed.captures(), Missing)
    feed.acknowledged()
    assert isinstance(feed.captures(), CaptureScope)


def test_f160_a_server_that_the_config_does_not_name_is_never_dialled() -> None:
    site = Site("rogue")
    feed = site.feed()

    told = feed.captures()

    assert isinstance(told, Missing)
    assert "reads rogue:3306" in told.why
    assert "add it to follow_hosts of shop" in told.why
    assert feed.head() is None
    with pytest.raises(UnreachableError, match="follow_hosts"):
        feed.connected()
    assert site.servers == []


def test_f160_a_collector_that_moves_to_an_unnamed_server_makes_its_source_unknown() -> None:
    site = Site("one")
    feed = site.feed()
    feed.head()
    site.host = "rogue"

    assert feed.head() is None
    assert isinstance(feed.captures(), Missing)
    assert [one.host for one in site.servers] == ["one"]


ALL_SHARDS = {"db.t", "db.a_b", "db.a b", '"x.y".t', "db.u"}


class Cluster:
    """Topics with settings; ``settings`` are those of ``shop.db.t``, None: Kafka is silent."""

    def __init__(self) -> None:
        self.settings: dict[str, str] | None = {}
        self.asked = 0
        self.now = 0.0
        self.unreported: set[str] = set()
        self.gone: set[str] = set()

    def describe(self, pattern: str) -> list[TopicFacts]:
        self.asked += 1
        if self.settings is None:
            raise UnreachableError("Kafka at k:9092: NoBrokersAvailable")
        named = {"shop.db.t": self.settings, "shop.db.u": {}, "other.db.t": COMPACT}
        return [
            TopicFacts(name, 1, is_described=False)
            if name in self.unreported
            else TopicFacts(name, 1, settings)
            for name, settings in named.items()
            if name not in self.gone
        ]

    def told(self, feed: LandingSource, after: float = 31.0) -> list[str]:
        self.now += after
        capture = feed.captures()
        assert isinstance(capture, CaptureScope)
        return [one.what.partition(": ")[2].partition(":")[0] for one in capture.hazards]


COMPACT = {"cleanup.policy": "compact"}


def watched() -> tuple[Cluster, LandingSource]:
    cluster = Cluster()
    return cluster, replace(Site().feed(), describe=cluster.describe, clock=lambda: cluster.now)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        pytest.param({}, [], id="none"),
        pytest.param({"cleanup.policy": "delete"}, [], id="deleted by time"),
        pytest.param({"retention.ms": "1"}, [], id="a short retention is a gap, by offsets"),
        pytest.param(COMPACT, ["cleanup.policy=compact"], id="compacted"),
        pytest.param(
            {"cleanup.policy": "compact,delete"}, ["cleanup.policy=compact,delete"], id="both"
        ),
        pytest.param(
            {"unclean.leader.election.enable": "true"},
            ["unclean.leader.election.enable=true"],
            id="any broker may lead",
        ),
    ],
)
def test_f102_settings_of_its_topics_are_told(
    settings: dict[str, str], expected: list[str]
) -> None:
    cluster, feed = watched()
    before = cluster.told(feed)
    cluster.settings = settings

    assert (before, cluster.told(feed)) == ([], expected)


def test_f102_topics_are_asked_for_twice_a_minute_and_what_they_told_is_kept() -> None:
    cluster, feed = watched()
    cluster.settings = dict(COMPACT)
    told = [cluster.told(feed, after=2.0) for _ in range(30)]
    asked = cluster.asked
    cluster.settings = None
    told.append(cluster.told(feed))

    assert told == [["cleanup.policy=compact"]] * 31
    assert asked == 2


@pytest.mark.parametrize(
    ("topic", "routed", "shards"),
    [
        pytest.param("shop.db.t", False, {"db.t"}, id="its own table"),
        pytest.param("shop.db.a_b", False, {"db.a_b", "db.a b"}, id="spelled alike"),
        pytest.param("shop.x.y.t", False, {'"x.y".t'}, id="a dot in a name"),
        pytest.param("shop", False, ALL_SHARDS, id="statements"),
        pytest.param("shop.db.t", True, ALL_SHARDS, id="rows are routed"),
        pytest.param("shop.transaction", False, set(), id="no rows"),
    ],
)
def test_f102_a_topics_setting_concerns_the_tables_that_are_sent_into_it(
    topic: str, shards: set[str], *, routed: bool
) -> None:
    topics = [TopicFacts(topic, 1, COMPACT), TopicFacts("shop.db.z", 1, {})]
    found = list(find_topic_hazards(topics, "shop", frozenset({"shop.transaction"}), routed=routed))

    assert {name for name in ALL_SHARDS if any(one.affects(name) for one in found)} == shards


def _default(*names: str, value: str = "true") -> list[TopicFacts]:
    settings = {UNCLEAN.name: value}
    return [TopicFacts(f"shop.db.{one}", 1, settings, frozenset(settings)) for one in names]


def _ids(topics: list[TopicFacts]) -> set[str]:
    return {
        hazard_id("shop", one) for one in find_topic_hazards(topics, "shop", OTHERS, routed=False)
    }


OTHERS = frozenset({"shop.transaction"})


def test_f102_what_is_the_default_of_the_brokers_is_told_once() -> None:
    topics = [*_default("t", "u", "v"), TopicFacts("shop.transaction")]

    (found,) = find_topic_hazards(topics, "shop", OTHERS, routed=False)

    assert found.what.startswith(f"default for topics of shop: {UNCLEAN.name}=true: ")
    assert found.fix.endswith(f"--entity-default --add-config {UNCLEAN.name}=false")
    assert {name for name in ALL_SHARDS if found.affects(name)} == {"db.t", "db.u"}


def test_f102_a_default_of_the_topic_of_statements_concerns_all_tables() -> None:
    statements = replace(_default("t")[0], name="shop")

    (alone,) = find_topic_hazards([statements], "shop", OTHERS, routed=False)
    (found,) = find_topic_hazards([*_default("t", "u"), statements], "shop", OTHERS, routed=False)

    for one in (alone, found):
        assert all(one.affects(name) for name in ALL_SHARDS)


def test_f102_a_topic_with_a_setting_of_its_own_is_not_in_the_default() -> None:
    topics = [*_default("t", "u"), TopicFacts("shop.db.a_b", 1, {UNCLEAN.name: "false"})]

    (found,) = find_topic_hazards(topics, "shop", OTHERS, routed=False)

    assert {name for name in ALL_SHARDS if found.affects(name)} == {"db.t", "db.u"}


@pytest.mark.parametrize("added", [{UNCLEAN.name: "false"}, {UNCLEAN.name: "true"}, COMPACT, {}])
def test_f102_a_topic_that_is_added_gives_no_other_topic_a_new_id(added: dict[str, str]) -> None:
    own = [TopicFacts(f"shop.db.{one}", 1, COMPACT) for one in "xy"]
    before = [*_default("t", "u"), *own]

    assert len(_ids(before)) == 3
    assert _ids(before) < _ids([*before, TopicFacts("shop.db.a", 1, {**COMPACT, **added})])
    assert _ids(before) == _ids([*before, *_default("a")])


def test_f102_what_was_accepted_of_one_topic_covers_no_other() -> None:
    one = TopicFacts("shop.db.junk", 1, COMPACT)

    assert len(_ids([one])) == 1
    assert len(_ids([one, TopicFacts("shop.db.money", 1, COMPACT)]) - _ids([one])) == 1


def _since_restart(answers: dict[float, bool]) -> list[bool]:
    """Whether Kafka is not answered for, after each of its *answers*, by when they come."""
    cluster, feed = watched()
    found = []
    for cluster.now, answered in answers.items():
        cluster.settings = {} if answered else None
        told = feed.captures()
        assert isinstance(told, CaptureScope)
        found.append(told.unanswered == {"Kafka"})
    return found


@pytest.mark.parametrize(
    ("answers", "unanswered"),
    [
        pytest.param({0: False, 200: False}, [True, True], id="it never answers"),
        pytest.param({0: True, 31: True, 62: True}, [True, True, False], id="it answers"),
        pytest.param({200: False, 231: True, 262: True}, [True] * 3, id="it has just begun to"),
        pytest.param(
            {0: True, 62: True, 93: False, 124: True, 186: True},
            [True, False, True, True, False],
            id="it was silent in between",
        ),
    ],
)
def test_f102_only_topics_that_were_described_for_a_while_have_lost_a_setting(
    answers: dict[float, bool], unanswered: list[bool]
) -> None:
    assert _since_restart(answers) == unanswered


def test_f102_where_nobody_describes_topics_nobody_is_unanswered() -> None:
    told = Site().feed().captures()

    assert isinstance(told, CaptureScope)
    assert told.unanswered == frozenset()


def test_f102_a_topic_that_is_not_told_hides_no_harmful_setting_of_another() -> None:
    cluster, feed = watched()
    cluster.settings, cluster.unreported = dict(COMPACT), {"shop.db.u"}

    with capture_logs() as logs:
        told = [cluster.told(feed), cluster.told(feed)]

    assert told == [["cleanup.policy=compact"]] * 2
    (warned,) = [one for one in logs if one["log_level"] == "warning"]
    assert warned["error"] == "settings of shop.db.u are unknown; grant DescribeConfigs"


def test_f102_a_harmful_setting_is_told_on_while_its_topic_is_not_told() -> None:
    cluster, feed = watched()
    cluster.settings = dict(COMPACT)
    cluster.told(feed)
    cluster.settings, cluster.unreported = {}, {"shop.db.t"}

    assert [cluster.told(feed, after=100.0) for _ in range(3)] == [["cleanup.policy=compact"]] * 3


def test_f102_a_hazard_of_before_a_restart_lasts_until_its_topic_is_told_for_a_while() -> None:
    cluster, feed = watched()
    own = [TopicFacts(f"shop.db.{one}", 1, COMPACT) for one in "tu"]
    of_t, of_u = find_topic_hazards(own, "shop", OTHERS, routed=False)
    cluster.unreported = {"shop.db.u"}
    lasting = list[tuple[bool, bool]]()
    for told_again in (False, False, False, True, True, True):
        cluster.unreported = set() if told_again else {"shop.db.u"}
        cluster.told(feed)
        assert feed.last_scope is not None
        lasting.append(
            (bool(feed.last_scope.unreported(of_t)), bool(feed.last_scope.unreported(of_u)))
        )

    assert lasting == [*[(False, True)] * 5, (False, False)]
    assert feed.last_scope is not None
    assert feed.last_scope.unanswered == frozenset()


def test_f102_a_topic_that_is_deleted_is_no_longer_untold() -> None:
    cluster, feed = watched()
    (of_t,) = find_topic_hazards(
        [TopicFacts("shop.db.t", 1, COMPACT)], "shop", OTHERS, routed=False
    )
    cluster.unreported = {"shop.db.t"}
    cluster.told(feed)
    cluster.gone = {"shop.db.t"}
    lasting = list[bool]()
    for _ in range(3):
        cluster.told(feed)
        assert feed.last_scope is not None
        lasting.append(bool(feed.last_scope.unreported(of_t)))

    assert lasting == [True, True, False]


def test_topics_of_heartbeats_and_transactions_hold_rows_of_no_table() -> None:
    assert Site().feed().names.others >= {"shop.transaction", "shop.sluice.heartbeat"}
