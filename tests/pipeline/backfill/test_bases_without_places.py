"""Where changes have no position in the log, rows read begin at the newest heartbeat."""

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

import pytest

from pipeline.backfill_state import RowSelection, SelectedKey
from pipeline.checkpoint import Checkpoint, Gap
from pipeline.formats.canal_json import CanalJson
from pipeline.formats.canal_types import describe_column
from pipeline.formats.format import Format
from pipeline.heartbeats import CALM_HEARTBEATS, HeartbeatHistory
from pipeline.landing.batch_stats import BatchStats
from pipeline.landing.heartbeats import follow_histories
from pipeline.model import Op, Order, Ordering, Origin, Shard, ShardId, TopicPartition
from pipeline.schema.model import Notation, TableDescription
from tests.builders import batch_context, orders_at
from tests.builders.harness import LandingHarness, Server, Topics, load_gaps
from tests.pipeline.backfill.test_bootstrap import NAME, WISH, Beside, Rows
from tests.pipeline.formats.canal_writer import CanalTable
from tests.pipeline.test_heartbeats import landed_heartbeat

TABLE = CanalTable("db", "t", {"id": "int", "name": "varchar(9)"}, ("id",))
BEATS = CanalTable("sluice", "heartbeat", {"source": "varchar(64)", "n": "bigint"}, ("source",))
COLUMNS = tuple(
    describe_column(name, text, at) for at, (name, text) in enumerate(TABLE.types.items(), 1)
)
TOLD = TableDescription(ShardId("db", "t"), "alter", COLUMNS, ("id",))


@dataclass(eq=False)
class TextRows(Rows):
    """The same rows as the server's own texts."""

    notations: ClassVar[frozenset[Notation]] = frozenset((Notation.TEXTS,))


@dataclass(eq=False)
class CanalHarness(LandingHarness):
    """One source, whose statements and rows canal sends through one topic."""

    names: str = "a"

    def format(self, name: str) -> Format:
        return CanalJson("UTC")

    def send(self, *values: bytes) -> None:
        self.topics.held.setdefault("a", []).extend((b"", value) for value in values)


def named_row(number: int, name: str = "live") -> dict[str, str]:
    return {"id": str(number), "name": name}


def heartbeat(number: int) -> bytes:
    return BEATS.insert({"source": "a", "n": str(number)})


@dataclass(eq=False)
class CanalBeside(Beside):
    """A heartbeat a round, and whatever else canal sends before it."""

    sent: list[bytes] = field(default_factory=list)

    def start(self) -> None:
        home, topics, server = self.harness.home, self.harness.topics, self.harness.server
        super().start()
        self.harness = CanalHarness(home, topics, server)
        self.again.feeds = self.harness.loop.feeds
        self.again.readers.feeds = self.harness.loop.feeds
        self.harness.loop.backfills = self.again.offer.news

    def write_heartbeat(self) -> None:
        self.number += 1
        self.rows.end += 5
        self.harness.server.end = self.rows.end
        self.harness.topics.held.setdefault("a", []).append((b"", heartbeat(self.number)))

    def round(self) -> "object":  # type: ignore[override]
        self.write_heartbeat()
        self.harness.land()
        return self.state()


@pytest.fixture
def beside(tmp_path: Path) -> CanalBeside:
    server = Server(end=900)
    harness = CanalHarness(tmp_path, Topics(), server)
    rows = TextRows(50, told=TOLD)
    made = CanalBeside(harness, rows)
    made.harness.topics.held["a"] = [(b"", TABLE.insert(named_row(3)))]
    return made


def test_a_table_has_a_base_at_the_heartbeat_that_landed_before_it_was_read(
    beside: CanalBeside,
) -> None:
    beside.write_heartbeat()
    beside.harness.land()
    began = len(beside.harness.topics.held["a"]) - 1
    beside.state()  # it begins here

    state = beside.until_done()

    orders = {tuple(one["order"].values()) for one in beside.harness.landed(Op.READ)}
    assert state.rows == 50
    assert orders == {(1, 0, began, 0)}
    assert beside.harness.checkpoint.bases[Shard.parse(NAME)] == Order(1, 0, began, 0)


def test_what_was_sent_before_loses_against_it_and_what_came_after_wins(
    beside: CanalBeside,
) -> None:
    beside.harness.topics.held["a"] += [(b"", TABLE.insert(named_row(4, "older")))]
    beside.write_heartbeat()
    beside.harness.land()
    beside.state()  # it begins here
    beside.harness.topics.held["a"] += [(b"", TABLE.insert(named_row(5, "newer")))]
    beside.until_done()

    base = beside.harness.checkpoint.bases[Shard.parse(NAME)]
    places = {
        json.loads(one["after"])["name"]: Order(*one["order"].values())
        for one in beside.harness.landed(Op.CREATE)
    }
    assert places["older"] < base < places["newer"]


def test_before_any_heartbeat_has_landed_nothing_is_read(beside: CanalBeside) -> None:
    beside.harness.land()

    state = beside.state()

    assert state.why == "source:a: no heartbeat of its log has landed yet"
    assert not beside.rows.reads


def test_while_the_log_is_sent_again_nothing_begins(beside: CanalBeside) -> None:
    for _ in range(3):
        beside.write_heartbeat()
    beside.number = 1
    beside.write_heartbeat()
    beside.harness.land()

    assert "being sent again" in beside.state().why


def test_a_heartbeat_below_what_came_before_it_is_no_place_for_a_base(beside: CanalBeside) -> None:
    """Versions that each table counts for itself: rows that stand would win over the base."""
    beside.write_heartbeat()
    beside.harness.land()
    checkpoint = beside.harness.checkpoint
    low = replace(checkpoint.heartbeat_histories["a"], clear=False)
    beside.harness.loop.checkpoint = replace(checkpoint, heartbeat_histories={"a": low})

    assert "make all senders use one version sequence" in beside.state().why
    assert not beside.rows.reads


@pytest.mark.parametrize(("landed", "clear"), [(2, True), (3, False), (4, False)])
def test_a_heartbeat_is_clear_above_all_that_came_in_batches_before(
    landed: int, *, clear: bool
) -> None:
    before = Checkpoint(
        "main", 4, high=orders_at({"a/a.t:0": Order(1, 0, landed), "b/b.t:0": Order(1, 0, 99)})
    )
    made = replace(before, batch=5, high=orders_at({"a/a.t:0": Order(1, 0, 50)}))

    found = follow_histories(
        made,
        batch_context(
            before,
            stats=BatchStats(landed_heartbeats={"a": (landed_heartbeat(7, 3),)}),
            orderings={"a": Ordering.SEQUENCE},
        ),
    )
    later = follow_histories(
        replace(found, batch=6),
        batch_context(
            made, stats=BatchStats(landed_heartbeats={"a": ()}), orderings={"a": Ordering.SEQUENCE}
        ),
    )

    assert found.heartbeat_histories["a"].clear == later.heartbeat_histories["a"].clear == clear


@pytest.mark.parametrize("origin", [Origin.REPAIR, Origin.REPLAY])
def test_only_a_whole_table_is_read_again(beside: CanalBeside, origin: Origin) -> None:
    beside.wishes = (replace(WISH, origin=origin, rows=RowSelection((SelectedKey('["3"]'),))),)
    beside.write_heartbeat()
    beside.harness.land()

    state = beside.state()

    assert "cannot be ordered among changes that are ordered by partition_offset" in state.why
    assert "sluice bootstrap" in state.why
    assert state.refused


def test_a_piece_of_the_log_that_was_never_sent_is_a_gap_of_all_tables(beside: CanalBeside) -> None:
    beside.write_heartbeat()
    beside.number += 3
    beside.write_heartbeat()
    beside.harness.land()

    (gap,) = beside.harness.gaps()
    assert gap.shards == (NAME,)
    assert "heartbeats 2 to 4 of source a are missing" in gap.why


@pytest.mark.parametrize(
    ("topic", "batch", "told"),
    [
        pytest.param(
            "canal", 5, "because canal:0 [10, 20) was deleted before it landed", id="before"
        ),
        pytest.param("canal", 3, "although a later one landed", id="before another heartbeat came"),
        pytest.param("other", 5, "although a later one landed", id="of another topic"),
    ],
)
def test_heartbeats_that_may_have_stood_in_what_was_deleted_are_told_so(
    topic: str, batch: int, told: str
) -> None:
    gone = Gap(f"{topic}:0:10@{batch}", topic, 0, 10, 20, "deleted", (), (NAME,), batch)
    before = Checkpoint(
        "main",
        5,
        shards={Shard.parse(NAME): "a.t"},
        heartbeat_histories={"a": HeartbeatHistory(3, Order(1, 0, 3), 3, 4)},
    )
    made = replace(before, batch=6, gaps={gone.id: gone})
    own = replace(landed_heartbeat(9, 30), topic="canal")

    found = follow_histories(
        made,
        batch_context(
            before,
            stats=BatchStats(landed_heartbeats={"a": (own,)}),
            orderings={"a": Ordering.OFFSET},
        ),
    )

    (gap,) = (one for one in load_gaps(found) if one.id != gone.id)
    assert gap.why.startswith("heartbeats 4 to 8 of source a are missing")
    assert told in gap.why


def test_a_new_base_closes_it(beside: CanalBeside) -> None:
    beside.write_heartbeat()
    beside.number += 3
    beside.write_heartbeat()
    beside.harness.land()

    beside.until_done()

    assert not beside.harness.checkpoint.gaps


def test_what_two_have_sent_is_a_gap_until_a_base_that_begins_after_it(beside: CanalBeside) -> None:
    for number in (5, 6, 7, 3, 8):  # one goes on at 8 while the other is behind
        beside.number = number - 1
        beside.write_heartbeat()
        beside.harness.land()

    (gap,) = beside.harness.gaps()
    waiting = beside.round()

    assert "source a is sent by two collectors" in gap.why
    assert gap.shards == (NAME,)
    assert "being sent again" in getattr(waiting, "why", "")
    for _ in range(CALM_HEARTBEATS):
        beside.round()
    beside.until_done()
    assert not beside.harness.checkpoint.gaps


def test_the_newest_sign_of_two_is_what_a_base_must_come_after(beside: CanalBeside) -> None:
    for number in (5, 6, 7, 3, 8, 4, 9):
        beside.number = number - 1
        beside.write_heartbeat()
        beside.harness.land()

    (gap,) = beside.harness.gaps()

    assert gap.batch == beside.harness.checkpoint.batch


def test_where_changes_have_places_in_the_log_no_heartbeat_is_followed() -> None:
    beats = {"a": (landed_heartbeat(3, 1), landed_heartbeat(9, 2)), "b": (landed_heartbeat(3, 3),)}

    made = follow_histories(
        Checkpoint("main", 4),
        batch_context(
            Checkpoint("main", 3),
            stats=BatchStats(landed_heartbeats=beats),
            orderings={"a": Ordering.LOG, "b": Ordering.SEQUENCE},
        ),
    )

    assert made.heartbeat_histories == {
        "b": HeartbeatHistory(3, Order(1, 0, 3), 3, 4, topic="canal", behind=4)
    }
    assert not made.gaps


def test_what_its_heartbeats_showed_before_is_forgotten_once_changes_have_places() -> None:
    """Nothing raises such a trail any more, and what it kept from being READY would never be."""
    before = Checkpoint(
        "main", 4, heartbeat_histories={"a": HeartbeatHistory(9, Order(1, 0, 3), 7, 4)}
    )

    assert not follow_histories(
        before,
        batch_context(
            before, stats=BatchStats(landed_heartbeats={}), orderings={"a": Ordering.LOG}
        ),
    ).heartbeat_histories
    assert (
        follow_histories(
            before,
            batch_context(
                before, stats=BatchStats(landed_heartbeats={}), orderings={"a": Ordering.OFFSET}
            ),
        ).heartbeat_histories
        == before.heartbeat_histories
    )


def test_from_several_partitions_no_offset_says_where_rows_begin(beside: CanalBeside) -> None:
    beside.write_heartbeat()
    beside.harness.land()
    checkpoint = beside.harness.checkpoint
    more = {TopicPartition("a", 1): checkpoint.offsets[TopicPartition("a", 0)]}

    beside.harness.loop.checkpoint = replace(checkpoint, offsets={**checkpoint.offsets, **more})

    assert "changes of several partitions" in beside.state().why
