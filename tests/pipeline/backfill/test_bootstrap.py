"""A table is read again in parts and landed by a real loop, whatever is lost meanwhile."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pytest

from pipeline.apply.catalog import Catalog
from pipeline.apply.landed_state import LandedState
from pipeline.apply.mirror import MirrorSide
from pipeline.backfill.dry_run import MirrorIds
from pipeline.backfill.runner import BackfillRunner
from pipeline.backfill.task import (
    BackfillFailure,
    BackfillResult,
    BackfillTask,
    ReadLimits,
    try_task,
)
from pipeline.backfill_state import BackfillRequest, BackfillState
from pipeline.errors import ConfigError, TooManyRowsError, UnreachableError
from pipeline.model import Head, Op, Shard
from pipeline.schema.model import Notation, TableDescription
from pipeline.settings import Router, SourceSettings, TableRule
from pipeline.sources.mysql.position import binlog_position
from pipeline.sources.row_reader import ROWS, KeyTexts, ReadFence, RowsAsked, RowsRead
from pipeline.standards.table_standards import Standards
from tests.builders.harness import LandingHarness
from tests.pipeline.reading import readings

WISH = BackfillRequest("x", "db.t")
NAME = "a/db.t"


@dataclass(eq=False)
class Rows:
    """A table of numbers from 0 on, on a server whose log ends at ``end``."""

    notations: ClassVar[frozenset[Notation]] = frozenset((Notation.CONNECT,))
    count: int
    end: int = 1_000
    most: int = 1_000_000
    keyless: bool = False
    down: bool = False
    broken: bool = False
    identity: str = "server"
    reads: list[RowsAsked] = field(default_factory=list)
    there: tuple[Shard, ...] = ()
    told: TableDescription | None = None
    name: str = "again"

    def __call__(self, settings: SourceSettings) -> "Rows":
        return self

    def shards(self) -> tuple[Shard, ...]:
        return self.there

    def describe(self, shard: Shard) -> TableDescription | None:
        return self.told

    def fence(self, at_least: int, at: datetime) -> ReadFence:
        if self.keyless:
            raise ConfigError("commits in another order")
        self.end += 10
        head = binlog_position(7, self.end)
        return ReadFence(Head(self.identity, head), at_least, head)

    def bounds(self, shard: Shard, key: Sequence[str], pieces: int) -> tuple[KeyTexts, ...]:
        return ((str(self.count // 2),),)

    def read(self, fence: ReadFence, asked: RowsAsked) -> RowsRead:
        self.reads.append(asked)
        if self.down:
            raise UnreachableError("down")
        if self.broken and (int(asked.after[0]) if asked.after else 0) >= 24:
            raise UnreachableError("one range hangs")
        if asked.limit > self.most:
            raise TooManyRowsError("slow")
        first = int(asked.after[0]) + 1 if asked.after else 0
        until = int(asked.until[0]) + 1 if asked.until else self.count
        numbers = range(first, until)[: asked.limit]
        rows = {
            "key_values": [f'["{n}"]' for n in numbers],
            "after": [json.dumps({"id": n, "name": self.name}) for n in numbers],
        }
        last = (str(numbers[-1]),) if numbers else None
        return RowsRead(pa.RecordBatch.from_pydict(rows, ROWS), last, len(numbers) < asked.limit)

    def keys_of(self, shard: Shard, key: Sequence[str], ids: Sequence[int]) -> tuple[str, ...]:
        return tuple(f'["{one}"]' for one in ids)

    def close(self) -> None: ...


@dataclass(eq=False)
class Beside:
    """A landing loop, and a re-reading that lands by it."""

    harness: LandingHarness
    rows: Rows
    number: int = 0
    wishes: tuple[BackfillRequest, ...] = (WISH,)
    router: Router = field(default_factory=Router)
    mirror: MirrorSide | None = None

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        """As after kill -9: nothing is remembered but what the lake says."""
        old = self.harness
        self.harness = LandingHarness(old.home, old.topics, old.server, standards=old.standards)
        feeds = self.harness.loop.feeds
        self.again = BackfillRunner(
            self.harness.settings,
            feeds,
            self.harness.log(),
            self.rows,
            self.work,
            lambda: self.harness.now,
            ReadLimits(rows=7, select=3),
            MirrorIds(lambda _: self.mirror),
        )
        self.harness.loop.backfills = self.again.offer.news

    def work(self, tasks: Sequence[BackfillTask]) -> list[BackfillResult | BackfillFailure]:
        return [try_task(task) for task in tasks]

    def round(self) -> BackfillState:
        """A change, a batch, and what is read on after it."""
        self.number += 1
        self.harness.topics.write_heartbeat("a", self.number, pos=self.rows.end + 1)
        self.rows.end += 5
        self.harness.server.end = self.rows.end
        self.harness.land()
        return self.state()

    def states(self) -> tuple[BackfillState, ...]:
        log = self.harness.log()
        catalog = Catalog(self.router, readings("a", "b"), Standards(self.harness.standards))
        log.look()
        catalog.add(log.schema_changes(-1))
        return self.again.run(LandedState(self.harness.checkpoint, catalog), self.wishes)

    def state(self) -> BackfillState:
        (state,) = self.states()
        return state

    def until_done(self) -> BackfillState:
        for _ in range(40):
            state = self.round()
            if state.done is not None:
                return state
        raise AssertionError(state)

    def landed(self) -> list[int]:
        return [json.loads(row["after"])["id"] for row in self.harness.landed(Op.READ)]


def harness_with_row(home: Path) -> LandingHarness:
    """db.t has a row, in a log that goes on behind it."""
    harness = LandingHarness(home)
    harness.server.end = 900
    harness.topics.alter("a", 10, "name")
    harness.topics.put("a", 500, "live", key=3)
    harness.land()
    return harness


@pytest.fixture
def beside(tmp_path: Path) -> Beside:
    return Beside(harness_with_row(tmp_path), Rows(50))


def test_all_rows_are_landed_once_and_make_a_base(beside: Beside) -> None:
    state = beside.until_done()

    assert state.rows == 50
    assert sorted(beside.landed()) == list(range(50))
    (settle,) = beside.harness.landed(Op.SETTLE)
    orders = {tuple(row["order"].values()) for row in beside.harness.landed(Op.READ)}
    assert orders == {tuple(settle["order"].values())}
    assert beside.harness.checkpoint.bases[Shard.parse(NAME)].parts in orders
    assert beside.harness.checkpoint.complete[Shard.parse(NAME)] == state.done


@pytest.mark.parametrize("every", [2, 3, 5])
def test_after_kills_no_row_is_missing_or_landed_twice(beside: Beside, every: int) -> None:
    for number in range(60):
        state = beside.round()
        if state.done is not None:
            break
        if number % every == 1:
            beside.start()

    assert state.done is not None
    assert sorted(beside.landed()) == list(range(50))


def test_a_server_that_is_slow_is_asked_for_fewer_rows(beside: Beside) -> None:
    beside.rows.most, beside.again.limits = 12, ReadLimits(rows=1_000, select=96)

    assert beside.until_done().rows == 50
    assert min(one.limit for one in beside.rows.reads) == 12


def test_a_server_that_is_quick_again_is_asked_for_more_rows(beside: Beside) -> None:
    beside.rows.count, beside.rows.most = 3_000, 12
    beside.again.limits = ReadLimits(rows=100, select=96)
    for _ in range(4):
        beside.round()
    beside.rows.most = 1_000

    beside.until_done()

    assert 96 in [one.limit for one in beside.rows.reads[-3:]]


def test_a_part_ends_where_its_rows_come_to_more_bytes_than_its_share(beside: Beside) -> None:
    beside.again.limits = ReadLimits(rows=1_000, select=12, bytes=100)

    assert beside.until_done().rows == 50
    assert {one.limit for one in beside.rows.reads} == {12, 10}


def test_one_part_that_fails_costs_the_others_nothing_and_is_tried_ever_more_rarely(
    beside: Beside,
) -> None:
    beside.rows.broken = True
    for _ in range(20):
        state = beside.round()

    tried = [one for one in beside.rows.reads if one.after and int(one.after[0]) >= 24]
    assert set(range(25)) <= set(beside.landed())
    assert state.why == "one range hangs"
    assert 2 < len(tried) < 10
    beside.rows.broken = False
    assert beside.until_done().rows == 50


def test_what_nobody_foresaw_is_told_and_ends_nothing(beside: Beside) -> None:
    def strange(tasks: Sequence[BackfillTask]) -> list[BackfillResult | BackfillFailure]:
        raise ValueError("strange")

    beside.again.work = strange
    beside.round()
    beside.round()
    beside.round()

    assert "ValueError: strange" in beside.round().why


def test_a_source_that_is_no_longer_in_the_config_is_refused_in_words(beside: Beside) -> None:
    beside.again.readers.feeds = ()

    state = beside.round()

    assert (state.refused, "source:a is no longer in the config" in state.why) == (True, True)


def test_a_part_whose_file_upkeep_took_is_read_again(beside: Beside) -> None:
    while not any(one.file for one in beside.again.offer.news().rows):
        beside.round()
    for one in beside.again.offer.news().rows:
        assert one.file is not None
        beside.harness.log().store.remove(one.file.path)

    beside.state()

    assert sorted({*beside.landed()}) != list(range(50))
    assert beside.until_done().rows == 50
    assert sorted(beside.landed()) == list(range(50))


def test_a_server_that_is_down_is_waited_for_and_landing_goes_on(beside: Beside) -> None:
    beside.rows.down = True
    beside.round()
    batch = beside.round()

    assert "down" in beside.round().why
    assert beside.harness.checkpoint.batch > (batch.done or 0)
    beside.rows.down = False
    assert beside.until_done().rows == 50


def test_what_can_never_be_read_is_refused_with_words(beside: Beside) -> None:
    beside.rows.keyless = True

    state = beside.round()

    assert (state.refused, state.why) == (True, "commits in another order")


def test_a_new_epoch_begins_it_anew(beside: Beside) -> None:
    for _ in range(5):
        beside.round()
    before = beside.harness.checkpoint.backfills[Shard.parse(NAME)]
    beside.rows.identity = beside.harness.server.identity = "other"

    beside.until_done()

    after = beside.harness.checkpoint.backfills[Shard.parse(NAME)]
    assert before.rows > 0
    assert (after.order.epoch, after.identity, after.rows) == (2, "other", 50)


def test_a_statement_meanwhile_begins_it_anew(beside: Beside) -> None:
    for _ in range(5):
        beside.round()
    before = beside.harness.checkpoint.backfills[Shard.parse(NAME)]
    beside.rows.end += 20
    beside.harness.topics.alter("a", beside.rows.end, "name", "note")

    beside.until_done()

    assert beside.harness.checkpoint.backfills[Shard.parse(NAME)].order > before.order


def test_a_table_that_nothing_is_known_of_waits(beside: Beside) -> None:
    log = LandedState(beside.harness.checkpoint, Catalog(Router(), readings("a", "b")))

    (state,) = beside.again.run(log, (BackfillRequest("y", "db.nothing"),))

    assert (state.refused, state.shard) == (False, "")
    assert state.why == "no shard of db.nothing is known: nothing of it has landed"


def test_a_table_whose_topic_we_may_not_see_gets_no_base(beside: Beside) -> None:
    """Else what is written to it after its base would be missed, and nothing would tell."""
    beside.harness.topics.forbidden = frozenset({"a.db.t"})

    for _ in range(20):
        state = beside.round()

    assert Shard.parse(NAME) not in beside.harness.checkpoint.bases
    assert "all rows are read" in state.why


def test_a_table_that_the_collector_leaves_out_gets_no_base(beside: Beside) -> None:
    beside.harness.server.left_out = frozenset({"db.t"})
    beside.harness.now = beside.harness.now.replace(year=2027)

    for _ in range(20):
        beside.round()

    assert Shard.parse(NAME) not in beside.harness.checkpoint.bases


def test_nothing_is_read_before_all_below_its_place_has_landed(beside: Beside) -> None:
    """Else its rows would know nothing of a statement below it that lands later."""
    altered = beside.rows.end + 1
    beside.rows.end += 5
    for _ in range(2):
        beside.harness.land()
        state = beside.state()
    assert (
        beside.harness.checkpoint.backfills[Shard.parse(NAME)].order.pos > altered,
        beside.rows.reads,
    ) == (
        True,
        [],
    )
    assert "when all earlier changes have landed" in state.why

    beside.harness.topics.alter("a", altered, "name", key=("name",))
    state = beside.until_done()

    assert state.rows == 50
    assert {one.key for one in beside.rows.reads} == {("name",)}


def test_a_log_that_began_again_under_its_name_is_seen_though_landing_sees_nothing(
    beside: Beside,
) -> None:
    beside.harness.server.end = beside.rows.end = 90_000
    beside.harness.topics.put("a", 89_000, "live", key=4)
    beside.harness.land()
    beside.rows.end = 150

    state = beside.state()

    assert "a new epoch begins" in state.why
    assert not beside.again.offer.news().any


def test_one_that_was_cancelled_makes_no_base_and_is_told_of_until_it_is_forgotten(
    beside: Beside,
) -> None:
    for _ in range(4):
        beside.round()
    assert beside.again.offer.news().rows
    beside.wishes = ()

    (gone,) = beside.states()
    assert (gone.id, gone.shard, gone.why) == ("x", NAME, "it was cancelled")
    beside.harness.land()

    assert beside.states() == ()
    assert not beside.again.offer.news().any
    assert beside.harness.checkpoint.backfills[Shard.parse(NAME)].id == ""
    assert Shard.parse(NAME) not in beside.harness.checkpoint.bases


def test_a_key_that_is_named_in_another_order_is_told_as_its_rows_are(beside: Beside) -> None:
    """Else one row would have two keys."""
    beside.router = Router((TableRule("db.t", "db.t", key=("id", "name")),))
    beside.harness.topics.alter("a", beside.rows.end, "name", key=("name", "id"))

    beside.until_done()

    assert {one.key for one in beside.rows.reads} == {("name", "id")}


def test_a_key_in_an_order_that_nobody_tells_is_refused(beside: Beside) -> None:
    beside.router = Router((TableRule("db.t", "db.t", key=("name", "id")),))
    for _ in range(3):
        state = beside.round()

    assert state.refused
    assert "the order of their values is unknown" in state.why


def test_a_table_that_waits_for_its_collector_makes_no_batches(beside: Beside) -> None:
    beside.harness.topics.forbidden = frozenset({"a.db.t"})
    for _ in range(20):
        beside.round()
    before = beside.harness.checkpoint

    for _ in range(3):
        beside.harness.land()

    assert before.backfills[Shard.parse(NAME)].closing is not None
    assert beside.harness.checkpoint.batch == before.batch


def masked(column: str) -> str:
    return "column.mask.*" if column == "db.t.name" else ""


def test_what_the_collector_masks_is_not_read_as_the_source_has_it(beside: Beside) -> None:
    beside.harness.server.alters = masked

    state = beside.round()

    assert state.refused
    assert "the collector omits or changes db.t.name (column.mask.*)" in state.why
    assert beside.rows.reads == []


def test_nothing_is_read_while_nobody_tells_what_the_collector_masks(beside: Beside) -> None:
    beside.harness.server.silent = True
    silent = beside.round()
    beside.harness.server.silent = False

    assert "whether the collector alters columns is not known" in silent.why
    assert not silent.refused
    assert beside.until_done().done is not None
