"""backfill/readers.py: whose rows may be read, behind which places, and of which tables."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from pipeline.apply.catalog import Catalog
from pipeline.backfill.readers import AGAIN, RowReaders
from pipeline.backfill_state import Backfill, BackfillRequest
from pipeline.checkpoint import Checkpoint, Epoch, Existence
from pipeline.errors import ConfigError, ProofError, UnreachableError
from pipeline.formats.canal_json import CanalJson
from pipeline.formats.debezium_json import DebeziumJson
from pipeline.formats.format import Format
from pipeline.formats.maxwell_json import MaxwellJson
from pipeline.heartbeats import HeartbeatHistory
from pipeline.model import (
    Acknowledged,
    Head,
    Order,
    Origin,
    PartitionEnd,
    Shard,
    ShardId,
    TopicPartition,
)
from pipeline.schema.model import ColumnDescription, Notation, TableDescription, TableSchema
from pipeline.settings import Router, SourceSettings, TableRule
from pipeline.sources.mysql.position import binlog_position
from pipeline.sources.row_reader import ReadFence
from tests.builders.harness import LandingHarness, Server, Topics
from tests.builders.values import by_shard
from tests.pipeline.backfill.test_bootstrap import Rows
from tests.pipeline.reading import readings
from tests.pipeline.schema_messages import described, message

SHARD, OTHER = Shard("a", "db.t"), Shard("b", "db.t")
LANDED = Checkpoint("main", 5, epochs={"a": Epoch(1, "server", binlog_position(7, 900))})


@dataclass(eq=False)
class Moving(Server):
    """A server whose collector is reconfigured to another one."""

    host: str = "127.0.0.1"

    def address(self) -> tuple[str, int]:
        return self.host, 1


@dataclass(eq=False)
class Asked(Rows):
    """Notes what it is asked, and where it is."""

    settings: SourceSettings | None = None
    described: list[Shard] = field(default_factory=list)
    listings: int = 0
    silent: bool = False
    closed: bool = False

    def describe(self, shard: Shard) -> TableDescription | None:
        self.described.append(shard)
        return self.told

    def shards(self) -> tuple[Shard, ...]:
        self.listings += 1
        if self.silent:
            raise UnreachableError("down")
        return self.there

    def close(self) -> None:
        self.closed = True


@dataclass(eq=False)
class Opened:
    """Readers of the two sources, as they are opened."""

    readers: list[Asked] = field(default_factory=list)
    like: Asked = field(default_factory=lambda: Asked(50))

    def __call__(self, settings: SourceSettings) -> Asked:
        self.readers.append(replace(self.like, settings=settings, described=[]))
        return self.readers[-1]


@pytest.fixture
def harness(tmp_path: Path) -> LandingHarness:
    made = LandingHarness(tmp_path, Topics(), Moving(end=900))
    for feed in made.loop.feeds:
        feed.settings = replace(feed.settings, follow_hosts=("replica",))
    return made


@pytest.fixture
def opened() -> Opened:
    return Opened()


@pytest.fixture
def readers(harness: LandingHarness, opened: Opened) -> RowReaders:
    return RowReaders(harness.loop.feeds, opened, lambda: harness.now)


def set_format(readers: RowReaders, form: Format) -> None:
    for feed in readers.feeds:
        feed.format = form


def test_f113_a_reader_is_kept_until_its_collector_reads_another_server(
    harness: LandingHarness, readers: RowReaders, opened: Opened
) -> None:
    first = readers.of("a")
    assert readers.of("a") is first
    assert isinstance(harness.server, Moving)
    harness.server.host = "replica"

    second, other = readers.of("a"), readers.of("b")

    told = [(one.settings.name, one.settings.host) for one in opened.readers if one.settings]
    assert told == [("a", "127.0.0.1"), ("a", "replica"), ("b", "replica")]
    assert [one.closed for one in opened.readers] == [True, False, False]
    assert readers.of("a") is second is not other
    readers.close()
    assert [one.closed for one in opened.readers] == [True, True, True]


def test_f113_the_fence_of_another_server_is_refused(readers: RowReaders, opened: Opened) -> None:
    assert readers.fence("a", LANDED, "server").head.identity == "server"
    opened.readers[0].identity = "other"

    with pytest.raises(ProofError) as refused:
        readers.fence("a", LANDED, "server")

    assert str(refused.value) == "source:a: the server has changed; a new epoch begins"


def fence_at(pos: int) -> ReadFence:
    head = binlog_position(7, pos)
    return ReadFence(Head("server", head), 1, head)


@pytest.mark.parametrize(
    ("end", "before", "why"),
    [
        pytest.param(100, None, "from 7/900 to 7/110", id="landing saw it further"),
        pytest.param(2_000, fence_at(2_500), "from 7/2500 to 7/2010", id="a fence was further"),
        pytest.param(100, fence_at(2_500), "from 7/900 to 7/110", id="both did"),
    ],
)
def test_f113_a_log_that_went_back_under_the_same_name_is_refused(
    readers: RowReaders, opened: Opened, end: int, before: ReadFence | None, why: str
) -> None:
    opened.like.end = end

    with pytest.raises(ProofError) as refused:
        readers.fence("a", LANDED, "server", before)

    assert str(refused.value) == (
        f"source:a: the server has changed: log went back {why}; a new epoch begins"
    )


@pytest.mark.parametrize(
    "checkpoint", [LANDED, Checkpoint("main", 5)], ids=["landed", "nothing seen of it"]
)
def test_f113_a_log_that_goes_on_behind_the_fence_before_is_read(
    readers: RowReaders, checkpoint: Checkpoint
) -> None:
    fence = readers.fence("a", checkpoint, "server", fence_at(1_000))

    assert fence.head.position == binlog_position(7, 1_010)


@pytest.mark.parametrize(("landed", "number"), [({}, 0), ({"a": 0}, 1), ({"a": 41, "b": 90}, 42)])
def test_f113_a_fence_is_a_heartbeat_above_all_that_have_landed(
    readers: RowReaders, landed: dict[str, int], number: int
) -> None:
    found = readers.fence("a", replace(LANDED, heartbeats=landed), "server")

    assert found.number == number


OFFSETS = {
    TopicPartition("a.db.t", 0): PartitionEnd(1),
    TopicPartition("b.db.t", 0): PartitionEnd(1),
    TopicPartition("b.db.u", 0): PartitionEnd(1),
}


@pytest.mark.parametrize(
    ("form", "notation", "origin", "offsets", "why"),
    [
        pytest.param(
            DebeziumJson(), Notation.CONNECT, Origin.REPAIR, OFFSETS, "", id="rows by their places"
        ),
        pytest.param(
            CanalJson("UTC"), Notation.TEXTS, Origin.SNAPSHOT, OFFSETS, "", id="one partition"
        ),
        pytest.param(
            CanalJson("UTC"),
            Notation.TEXTS,
            Origin.REPAIR,
            {},
            "one by one cannot be ordered",
            id="no places",
        ),
        pytest.param(
            CanalJson("UTC"),
            Notation.TEXTS,
            Origin.SNAPSHOT,
            {
                TopicPartition("a.db.t", 0): PartitionEnd(1),
                TopicPartition("a.db.u", 0): PartitionEnd(1),
            },
            "changes of several partitions",
            id="two topics",
        ),
        pytest.param(
            DebeziumJson(),
            Notation.CONNECT,
            Origin.SNAPSHOT,
            {
                TopicPartition("a.db.t", 0): PartitionEnd(1),
                TopicPartition("a.db.t", 1): PartitionEnd(1),
            },
            "",
            id="places need no one partition",
        ),
        pytest.param(
            MaxwellJson(),
            Notation.CONNECT,
            Origin.SNAPSHOT,
            {},
            "would have other texts",
            id="other spellings",
        ),
        pytest.param(MaxwellJson(), Notation.PLAIN, Origin.SNAPSHOT, {}, "", id="the same"),
    ],
)
def test_f113_rows_are_read_where_they_can_be_put_among_changes(
    readers: RowReaders,
    monkeypatch: pytest.MonkeyPatch,
    *,
    form: Format,
    notation: Notation,
    origin: Origin,
    offsets: dict[TopicPartition, PartitionEnd],
    why: str,
) -> None:
    monkeypatch.setattr(Asked, "notations", frozenset((notation,)))
    set_format(readers, form)

    said = refused_by(readers, origin, replace(LANDED, offsets=offsets))

    assert why in said
    assert bool(said) == bool(why)


def refused_by(readers: RowReaders, origin: Origin, checkpoint: Checkpoint) -> str:
    try:
        readers.require_comparable(SHARD, origin, checkpoint)
    except ConfigError as error:
        return str(error)
    return ""


TRAIL = HeartbeatHistory(7, Order(1, 0, 40), 7, 4)


def test_f113_where_changes_have_places_rows_begin_at_that_of_the_fence(
    readers: RowReaders,
) -> None:
    found = readers.begins_at(
        SHARD, replace(LANDED, heartbeat_histories={"a": TRAIL}), fence_at(1_000)
    )

    assert found == Order(1, 7, 1_000)


@pytest.mark.parametrize(
    ("trail", "why"),
    [
        pytest.param(TRAIL, "", id="calm"),
        pytest.param(None, "no heartbeat of its log has landed yet", id="none yet"),
        pytest.param(
            replace(TRAIL, order=Order(2, 0, 40)), "no heartbeat of its log", id="of another epoch"
        ),
        pytest.param(replace(TRAIL, last=6), "its log is being sent again", id="sent again"),
        pytest.param(replace(TRAIL, leaps=1), "its log is being sent again", id="by two"),
        pytest.param(
            replace(TRAIL, clear=False), "a lower version than landed changes", id="too low"
        ),
    ],
)
def test_f113_without_places_rows_begin_at_a_heartbeat_above_all_before_it(
    readers: RowReaders, trail: HeartbeatHistory | None, why: str
) -> None:
    set_format(readers, CanalJson("UTC"))
    checkpoint = replace(LANDED, heartbeat_histories={} if trail is None else {"a": trail})

    try:
        found, said = readers.begins_at(SHARD, checkpoint, fence_at(1_000)), ""
    except ProofError as error:
        found, said = None, str(error)

    assert found == (None if why else TRAIL.order)
    assert why in said


@pytest.mark.parametrize(
    ("form", "landed"), [(DebeziumJson(), [True, False]), (CanalJson("UTC"), [True, True])]
)
def test_f113_all_below_a_place_in_the_log_must_have_landed(
    readers: RowReaders, form: Format, landed: list[bool]
) -> None:
    set_format(readers, form)
    checkpoint = replace(LANDED, acknowledged={"a": Acknowledged(binlog_position(7, 1_000))})

    found = [readers.has_landed(SHARD, Order(1, 7, pos), checkpoint) for pos in (500, 2_000)]

    assert found == landed


def test_f113_what_is_altered_on_the_way_is_refused_column_by_column(
    harness: LandingHarness, readers: RowReaders
) -> None:
    asked = list[str]()

    def alters(column: str) -> str:
        asked.append(column)
        return "column.exclude.list" if column == "db.t.name" else ""

    readers.require_sent_as_it_is(SHARD)
    harness.server.alters = alters
    with pytest.raises(ConfigError, match=r"changes db\.t\.name \(column\.exclude\.list\)"):
        readers.require_sent_as_it_is(SHARD)
    readers.require_sent_as_it_is(Shard("a", "db.u"))

    assert asked == ["db.t.id", "db.t.name", "db.u.id", "db.u.name"]


def test_f113_where_nobody_tells_what_is_altered_nothing_is_read(
    harness: LandingHarness, readers: RowReaders
) -> None:
    harness.server.silent = True

    with pytest.raises(ProofError, match="whether the collector alters columns is not known"):
        readers.require_sent_as_it_is(SHARD)


TOLD = TableDescription(
    ShardId("db", "t"), "alter", (ColumnDescription("id", "BIGINT", position=1),), ("id",)
)
READ = Backfill("x", Origin.SNAPSHOT, Order(1, 7, 600), "server", 6)


EMPTY = Catalog(Router(), readings("a", "b"))


def declaring(statement: str, columns: str) -> Catalog:
    """A landed statement about ``db.t`` of both sources."""
    made = Catalog(Router(), readings("a", "b"))
    text = message(statement, described(statement, "t", columns))
    made.add([(source, Order(1, 7, 10), text) for source in "ab"])
    return made


def test_f113_columns_are_those_of_the_log_before_those_of_the_source(
    readers: RowReaders, opened: Opened
) -> None:
    opened.like.told = TOLD
    checkpoint = replace(LANDED, backfills={SHARD: READ})
    landed = declaring("CREATE TABLE t (id BIGINT, note TEXT)", "id BIGINT, note TEXT")

    declared = readers.schema(SHARD, landed, checkpoint)
    assert declared is not None
    assert ([one.name for one in declared.columns], opened.readers) == (["id", "note"], [])

    shown = [readers.schema(SHARD, EMPTY, checkpoint) for _ in range(2)]
    assert shown == [TableSchema("db.t", READ.order, declared.columns[:1], ("id",))] * 2
    assert opened.readers[0].described == [SHARD]
    assert readers.schema(SHARD, EMPTY, LANDED) is None


def test_f113_without_a_word_of_the_log_or_the_source_there_are_no_columns(
    readers: RowReaders, opened: Opened
) -> None:
    checkpoint = replace(LANDED, backfills={SHARD: READ})

    assert readers.schema(SHARD, EMPTY, checkpoint) is None
    assert opened.readers[0].described == [SHARD]
    opened.readers[0].told = TOLD
    readers.describe(SHARD)
    assert readers.schema(SHARD, EMPTY, checkpoint) is not None


ROUTES = Router((TableRule("db.t_1", "db.t"), TableRule("db.tmp", ignore=True)))


def wishes(*tables: str) -> Sequence[BackfillRequest]:
    return [BackfillRequest(f"wish of {name}", name) for name in tables]


def test_f113_tables_that_anything_landed_tells_of_need_no_word_of_a_source(
    readers: RowReaders, opened: Opened
) -> None:
    opened.like.there = (SHARD,)
    checkpoint = replace(
        LANDED,
        shards={
            Shard.parse("a/db.t"): "db.t",
            Shard.parse("a/db.t_1"): "db.t",
            Shard.parse("a/db.tmp"): None,
            Shard.parse("a/db.gone"): "db.gone",
        },
        existing={
            Shard.parse("a/db.gone"): Existence(Order(1, 7, 1), there=False),
            Shard.parse("a/db.empty"): Existence(Order(1, 7, 1), there=True),
        },
        backfills={
            Shard("b", "db.begun"): replace(READ, id="wish of db.begun"),
            Shard("b", "db.other"): replace(READ, id="another"),
        },
    )

    found = readers.folding(wishes("db.t", "db.empty", "db.begun"), checkpoint, ROUTES)

    assert found == by_shard(
        {
            "a/db.t": "db.t",
            "a/db.t_1": "db.t",
            "a/db.tmp": None,
            "a/db.empty": "db.empty",
            "b/db.begun": "db.begun",
        }
    )
    assert opened.readers == []


def test_f113_sources_are_asked_for_tables_of_which_nothing_has_landed(
    readers: RowReaders, opened: Opened
) -> None:
    names = ("db.new", "db.other", "db.t_1", "db.tmp")
    opened.like.there = tuple(Shard("a", name) for name in names)
    checkpoint = replace(LANDED, shards={Shard.parse("b/db.t"): "db.t"})

    found = readers.folding(wishes("db.new", "db.t"), checkpoint, ROUTES)

    assert found == by_shard({"b/db.t": "db.t", "a/db.new": "db.new"})


def test_f113_a_source_that_is_silent_hides_no_table_of_another(
    harness: LandingHarness, readers: RowReaders
) -> None:
    first, second = readers.of("a"), readers.of("b")
    assert isinstance(first, Asked)
    assert isinstance(second, Asked)
    first.silent, second.there = True, (OTHER,)

    with capture_logs() as logged:
        found = readers.folding(wishes("db.t"), LANDED, ROUTES)

    assert found == {Shard("b", "db.t"): "db.t"}
    assert [(one["source"], one["why"]) for one in logged] == [("a", "down")]
    assert (first.listings, second.listings) == (1, 1)


def test_f113_sources_are_asked_for_tables_once_in_a_while(
    harness: LandingHarness, readers: RowReaders, opened: Opened
) -> None:
    opened.like.there = (SHARD,)
    second, listings = timedelta(seconds=1), list[int]()
    for pause in (timedelta(), AGAIN - second, second, AGAIN - second, second):
        harness.now += pause
        assert readers.folding(wishes("db.t"), LANDED, ROUTES) == {SHARD: "db.t"}
        listings.append(opened.readers[0].listings)

    assert listings == [1, 1, 2, 2, 3]


def test_f113_a_source_that_is_not_in_the_config_is_named(readers: RowReaders) -> None:
    with pytest.raises(ConfigError, match="source:c is no longer in the config"):
        readers.settings("c")
