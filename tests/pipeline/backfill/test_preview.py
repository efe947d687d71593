"""A dry run tells what a repair would change, and changes nothing."""

from collections.abc import Callable
from dataclasses import InitVar, dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from pipeline.apply.catalog import Catalog
from pipeline.apply.landed_state import LandedState
from pipeline.apply.mirror import MirrorSide
from pipeline.backfill import dry_run as preview
from pipeline.backfill.dry_run import NOT_YET, Previews, preview_repair
from pipeline.backfill_state import (
    BackfillRequest,
    BackfillState,
    RepairPreview,
    RowSelection,
    SelectedKey,
    SelectedRange,
)
from pipeline.checkpoint import Checkpoint, Epoch
from pipeline.errors import ConfigError, UnreachableError
from pipeline.model import Acknowledged, Op, Order, Shard, Table
from pipeline.settings import Router, StandardRule
from pipeline.sources.mysql.position import binlog_position
from pipeline.sources.row_reader import ReadFence, RowsAsked, RowsRead
from pipeline.standards.mask import LetterMask
from pipeline.standards.table_standards import NO_STANDARDS, Standards
from tests.builders.harness import LandingHarness
from tests.pipeline.backfill.test_bootstrap import Beside
from tests.pipeline.backfill.test_repair import HeldIds, SomeRows, make, repair
from tests.pipeline.reading import readings
from tests.pipeline.schema_messages import described, message

AT = Order(1, 7, 500)
OLD, NEW = (
    {"order": dict(zip(("epoch", "log", "pos", "row"), o, strict=True))}
    for o in ((1, 7, 400, 0), (1, 7, 600, 0))
)


def mirror_row(**changed: Any) -> dict[str, Any]:
    return {"id": 1, "name": "a", "_sluice": OLD} | changed


@pytest.mark.parametrize(
    ("source", "there", "found"),
    [
        pytest.param({"id": 1, "name": "a"}, mirror_row(), (0, 0, 0), id="alike"),
        pytest.param({"id": 1, "name": "b"}, mirror_row(), (0, 0, 1), id="different"),
        pytest.param({"id": 1, "name": None}, mirror_row(), (0, 0, 1), id="null"),
        pytest.param({"id": 1, "name": "b"}, mirror_row(_sluice=NEW), (0, 0, 0), id="newer there"),
        pytest.param({"id": 1, "name": "b"}, mirror_row(_sluice=None), (0, 0, 1), id="adopted"),
        pytest.param({"id": 1, "name": "a"}, None, (1, 0, 0), id="missing"),
        pytest.param(None, mirror_row(), (0, 1, 0), id="extra"),
        pytest.param(None, mirror_row(_sluice=NEW), (0, 0, 0), id="made since"),
        pytest.param(
            {"id": 1, "name": float("nan")}, mirror_row(name=float("nan")), (0, 0, 0), id="nan"
        ),
        pytest.param(
            {"id": 1, "name": '{"a":1}'}, mirror_row(name='{"a": 1}'), (0, 0, 0), id="json"
        ),
        pytest.param({"id": 1, "name": "{a"}, mirror_row(name="{b"), (0, 0, 1), id="no json"),
        pytest.param(
            {"id": 1, "name": Decimal("1.0")},
            mirror_row(name=Decimal("1.00")),
            (0, 0, 0),
            id="number",
        ),
    ],
)
def test_rows_are_compared_as_of_the_fence(
    source: dict[str, Any] | None, there: dict[str, Any] | None, found: tuple[int, int, int]
) -> None:
    made = preview_repair({1: source} if source else {}, {1: there} if there else {}, AT)

    assert (made.missing, made.extra, made.different) == found
    assert len(made.keys) == sum(found)


class HeldRows(HeldIds):
    def rows_of(self, shard: Shard, column: str, span: tuple[int, int]) -> list[dict[str, Any]]:
        return [
            {"id": n, "name": "again" if n % 2 else "old", "_sluice": OLD}
            for n in self.ids(shard, column, span, 1_000)
        ]


def states(beside: Beside, previews: Previews) -> BackfillState:
    beside.number += 1
    beside.harness.topics.write_heartbeat("a", beside.number, pos=beside.rows.end + 1)
    beside.rows.end += 5
    beside.harness.server.end = beside.rows.end
    beside.harness.land()
    log = beside.harness.log()
    log.look()
    catalog = Catalog(beside.router, readings("a", "b"))
    catalog.add(log.schema_changes(-1))
    landed = LandedState(beside.harness.checkpoint, catalog)
    (state,) = previews.run(landed, beside.again.tables(landed, beside.wishes))
    return state


@pytest.mark.parametrize(
    ("wished", "preview", "why"),
    [
        pytest.param(
            RowSelection(ranges=(SelectedRange(3, 8),)),
            RepairPreview(2, 1, 1, ("missing: 4", "missing: 8", "extra: 5", "different: 6")),
            "",
            id="told",
        ),
        pytest.param(RowSelection(keys=(SelectedKey('["7"]'),)), None, "a dry run", id="keys"),
        pytest.param(
            RowSelection(ranges=(SelectedRange(0, 40),), most=9), None, "--most 9", id="too many"
        ),
    ],
)
def test_nothing_lands_of_a_dry_run(
    tmp_path: Path, wished: RowSelection, preview: RepairPreview | None, why: str
) -> None:
    held = HeldRows([3, 5, 6, 7])
    beside = make(tmp_path, repair(wished), held)
    mirror, feeds = cast(MirrorSide, held), beside.harness.loop.feeds
    previews = Previews(feeds, beside.rows, lambda _: mirror, lambda: datetime.now(UTC))
    for _ in range(9):
        state = states(beside, previews)
        if state.done is not None or state.refused:
            break

    assert (state.preview, state.refused) == (preview, preview is None)
    assert why in state.why
    assert beside.harness.landed(Op.READ, Op.DELETE) == []
    assert beside.harness.checkpoint.backfills == {}


def looking(path: Path, wished: RowSelection) -> tuple[Beside, Previews]:
    held = HeldRows([3, 5, 6, 7])
    beside = make(path, repair(wished), held)
    mirror, feeds = cast(MirrorSide, held), beside.harness.loop.feeds
    return beside, Previews(feeds, beside.rows, lambda _: mirror, lambda: datetime.now(UTC))


def test_a_table_whose_shards_are_gone_is_told_so(tmp_path: Path) -> None:
    beside, previews = looking(tmp_path, RowSelection(ranges=(SelectedRange(3, 8),)))
    landed = LandedState(beside.harness.checkpoint, Catalog(beside.router, readings("a", "b")))

    (state,) = previews.run(landed, [(beside.wishes[0], Table("db.t", (), ("id",), "id"))])

    assert "no shard of the table is known" in state.why
    assert state.done is None


def test_a_round_has_its_time_and_each_shard_its_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bases and repairs are read by the same line: it is not to wait for a large dry run."""
    monkeypatch.setattr(preview, "ROUND", -1.0)
    beside, previews = looking(tmp_path, RowSelection(ranges=(SelectedRange(3, 8),)))
    table = Table("db.t", (Shard("a", "db.t"), Shard("a", "db.u")), ("id",), "id")
    landed = LandedState(beside.harness.checkpoint, Catalog(beside.router, readings("a", "b")))

    rounds = [previews.run(landed, [(beside.wishes[0], table)]) for _ in range(4)]

    turns = [[one.shard for one in told if one.why != preview.QUEUED] for told in rounds]
    assert turns == [["a/db.t"], ["a/db.u"], ["a/db.t"], ["a/db.u"]]


def order_of(pos: int) -> dict[str, Any]:
    return {"order": dict(zip(("epoch", "log", "pos", "row"), (1, 7, pos, 0), strict=True))}


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        pytest.param("[1, 2]", "[1,2]", True, id="a list"),
        pytest.param("[1]", "[2]", False, id="another list"),
        pytest.param('"a"', '"a" ', False, id="texts are not read as JSON"),
        pytest.param(1, "1", False, id="a number and its text"),
        pytest.param("{}", None, False, id="a text and nothing"),
        pytest.param(float("nan"), 1.0, False, id="no number and one"),
        pytest.param(1.0, float("nan"), False, id="one and no number"),
    ],
)
def test_f113_values_are_compared_by_what_they_mean(one: Any, other: Any, *, alike: bool) -> None:
    made = preview_repair({1: {"id": 1, "name": one}}, {1: mirror_row(name=other)}, AT)

    assert made.different == (not alike)


def test_f113_a_row_that_came_at_the_fence_is_compared() -> None:
    there = {1: mirror_row(_sluice=order_of(500)), 2: mirror_row(_sluice=order_of(501))}

    assert preview_repair({}, there, AT) == RepairPreview(0, 1, 0, ("extra: 1",))


def test_f113_the_first_of_each_kind_are_named() -> None:
    source = {n: {"id": n, "name": "new"} for n in range(99, -1, -1)}
    there = {n: mirror_row(id=n) for n in range(120, 70, -1)}

    made = preview_repair(source, there, AT)

    assert (made.missing, made.extra, made.different) == (71, 21, 29)
    assert made.keys == (
        *(f"missing: {n}" for n in range(20)),
        *(f"extra: {n}" for n in range(100, 120)),
        *(f"different: {n}" for n in range(71, 91)),
    )


@dataclass(eq=False)
class Served(SomeRows):
    """Rows that are gone or not, and how often somebody hung up."""

    hung_up: int = 0
    numbers: list[int] = field(default_factory=list)

    def fence(self, at_least: int, at: datetime) -> ReadFence:
        self.numbers.append(at_least)
        return super().fence(at_least, at)

    def close(self) -> None:
        self.hung_up += 1


TABLE = Table("db.t", (Shard("a", "db.t"),), ("id",), "id")
HEAD = binlog_position(7, 5_000)
LANDED = Checkpoint(
    "main",
    9,
    acknowledged={"a": Acknowledged(HEAD), "b": Acknowledged(HEAD)},
    heartbeats={"a": 41},
    epochs={"a": Epoch(1, "server", HEAD), "b": Epoch(1, "server", HEAD)},
    tables={"db.t": 4},
)
WISHED = RowSelection(ranges=(SelectedRange(3, 8),))
TOLD = RepairPreview(2, 1, 1, ("missing: 4", "missing: 8", "extra: 5", "different: 6"))


@dataclass(eq=False)
class Looks:
    """Dry runs of ``db.t``, of which all was landed but what *mark* says, and a mirror."""

    home: InitVar[Path]
    rows: Served = field(default_factory=lambda: Served(50, gone=frozenset({5})))
    held: HeldRows | None = field(default_factory=lambda: HeldRows([3, 5, 6, 7]))
    checkpoint: Checkpoint = LANDED
    standards: Standards = NO_STANDARDS

    def __post_init__(self, home: Path) -> None:
        self.harness = LandingHarness(home)
        self.previews = Previews(
            self.harness.loop.feeds,
            lambda _: self.rows,
            lambda _: cast("MirrorSide | None", self.held),
            lambda: self.harness.now,
        )

    def run(self, *wishes: BackfillRequest, table: Table = TABLE) -> tuple[BackfillState, ...]:
        catalog = Catalog(Router(), readings("a", "b"), self.standards)
        text = described("CREATE TABLE t", "t", "id BIGINT!, name VARCHAR:80")
        for source in "ab":
            catalog.add([(source, Order(1, 7, 10), message("CREATE TABLE t", text))])
        return self.previews.run(
            LandedState(self.checkpoint, catalog), [(w, table) for w in wishes]
        )

    def look(self, rows: RowSelection = WISHED, **more: Any) -> BackfillState:
        (state,) = self.run(repair(rows), **more)
        return state


@pytest.fixture
def looks(tmp_path: Path) -> Looks:
    return Looks(tmp_path)


def test_f113_a_dry_run_ends_with_the_batch_that_it_speaks_of(looks: Looks) -> None:
    state = looks.look()

    assert state == BackfillState("x", "db.t", "a/db.t", done=9, preview=TOLD)
    assert (looks.rows.hung_up, looks.rows.numbers) == (1, [42])
    assert looks.held is not None
    assert looks.held.asked == [(3, 9), (3, 9)]  # for what is gone, and to compare


def test_f113_what_was_looked_at_in_another_round_stays_told(
    looks: Looks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preview, "ROUND", -1.0)
    table = replace(TABLE, shards=(Shard("a", "db.t"), Shard("b", "db.t")))

    rounds = [looks.run(repair(WISHED), table=table) for _ in range(3)]

    assert [{one.shard: one.done for one in told} for told in rounds] == [
        {"a/db.t": 9, "b/db.t": None},
        {"a/db.t": 9, "b/db.t": 9},
        {"a/db.t": 9, "b/db.t": 9},
    ]


def test_f113_before_any_heartbeat_has_landed_the_fence_is_the_first(looks: Looks) -> None:
    looks.checkpoint = replace(LANDED, heartbeats={})
    looks.look()

    assert looks.rows.numbers == [0]


def test_f113_it_waits_at_its_fence_until_all_below_it_has_landed(looks: Looks) -> None:
    looks.checkpoint = replace(LANDED, acknowledged={"a": Acknowledged(binlog_position(7, 1_010))})
    waiting = [looks.look() for _ in range(2)]
    reads = len(looks.rows.reads)
    looks.checkpoint = LANDED
    state = looks.look()

    assert [(one.why, one.refused, one.done) for one in waiting] == [(NOT_YET, False, None)] * 2
    assert (reads, looks.rows.numbers, looks.rows.hung_up) == (0, [42], 3)
    assert (state.done, state.preview) == (9, TOLD)


@pytest.mark.parametrize(
    "epoch", [Epoch(2, "server", HEAD), Epoch(1, "other", HEAD)], ids=["another log", "a server"]
)
def test_f113_another_server_has_it_begin_anew(looks: Looks, epoch: Epoch) -> None:
    looks.checkpoint = replace(LANDED, acknowledged={})
    looks.look()
    looks.checkpoint = replace(LANDED, epochs={"a": epoch})
    looks.rows.identity = epoch.identity

    states = [looks.look() for _ in range(2)]

    assert states[0].why == "source:a: the server has changed; the dry run starts again"
    assert (states[0].refused, states[1].preview) == (False, TOLD)


@pytest.mark.parametrize(
    ("mark", "error", "why", "refused"),
    [
        pytest.param(replace(LANDED, epochs={}), None, "is not known yet", False, id="no epoch"),
        pytest.param(LANDED, UnreachableError("down"), "down", False, id="no answer"),
        pytest.param(LANDED, ConfigError("no right"), "no right", True, id="no right"),
        pytest.param(LANDED, ValueError("odd"), "ValueError: odd; see the log", True, id="odd"),
    ],
)
def test_f113_what_stands_in_the_way_of_one_is_told_and_costs_no_other(
    looks: Looks, mark: Checkpoint, error: Exception | None, why: str, *, refused: bool
) -> None:
    def failing(*_: object) -> tuple[()]:
        if error is not None:
            raise error
        return ()

    looks.checkpoint = mark
    table = replace(TABLE, shards=(Shard("a", "db.t"), Shard("b", "db.t")))
    good = looks.rows
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            looks.previews,
            "open_rows",
            lambda its: Failing(50, raising=failing) if its.name == "a" else good,
        )
        with capture_logs() as logged:
            first, second = looks.run(repair(WISHED), table=table)

    assert (why in first.why, first.refused, first.done) == (True, refused, None)
    assert second.done == (None if error is None else 9)
    events = [one["event"] for one in logged]
    assert events == (["preview_failed"] if isinstance(error, ValueError) else [])


@dataclass(eq=False)
class Failing(Served):
    """Reads nothing."""

    raising: Callable[..., object] = tuple

    def read(self, fence: ReadFence, asked: RowsAsked) -> RowsRead:
        self.raising()
        raise AssertionError("it raises")


def test_f113_a_table_without_a_mirror_lacks_all_rows(looks: Looks) -> None:
    looks.held, looks.checkpoint = None, replace(LANDED, tables={})

    state = looks.look()

    assert (state.preview and state.preview.missing) == 5


def test_f113_all_rows_of_a_range_are_read_however_few_come_at_once(
    looks: Looks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preview, "AT_ONCE", 2)

    state = looks.look(RowSelection(ranges=(SelectedRange(3, 8),), most=6))

    assert state.preview == TOLD
    assert [(one.after, one.limit) for one in looks.rows.reads] == [
        (("2",), 2),
        (("4",), 2),
        (("6",), 2),
        (("8",), 2),
    ][: len(looks.rows.reads)]
    assert len(looks.rows.reads) > 2


@pytest.mark.parametrize(("most", "refused"), [(10, False), (9, True)])
def test_f113_rows_that_were_read_in_other_ranges_count(
    looks: Looks, most: int, *, refused: bool
) -> None:
    wished = RowSelection(ranges=(SelectedRange(10, 14), SelectedRange(20, 24)), most=most)

    state = looks.look(wished)

    assert state.refused is refused
    assert ("rows of db.t, more than --most 9" in state.why) is refused


def test_f113_values_are_compared_as_the_lake_is_to_have_them(looks: Looks) -> None:
    rule = StandardRule("db.t", ("id",), (("mask", LetterMask(("name",))),))
    looks.standards = Standards((rule,))

    state = looks.look(RowSelection(ranges=(SelectedRange(3, 3),)))

    assert state.preview == RepairPreview(0, 0, 1, ("different: 3",))


def test_f113_what_is_asked_for_no_more_is_forgotten(looks: Looks) -> None:
    other = replace(repair(WISHED), id="y")
    looks.run(repair(WISHED), other)
    looks.run(other)
    reads, fences = len(looks.rows.reads), len(looks.rows.numbers)

    looks.run(other)
    assert (len(looks.rows.reads), len(looks.rows.numbers)) == (reads, fences)
    looks.run(repair(WISHED), other)
    assert len(looks.rows.reads) > reads
    assert len(looks.rows.numbers) == fences + 1


def test_f113_a_fence_of_a_wish_that_is_gone_is_forgotten(looks: Looks) -> None:
    looks.checkpoint = replace(LANDED, acknowledged={})
    looks.look()
    looks.run()
    looks.look()

    assert looks.rows.numbers == [42, 42]


def test_f113_a_wish_that_comes_back_asks_its_mirror_anew(looks: Looks) -> None:
    assert looks.held is not None
    looks.look()
    looks.run()
    looks.held.asked.clear()
    looks.rows.end -= 10  # nothing was written meanwhile: its fence is where the first was

    looks.look()

    assert looks.held.asked == [(3, 9), (3, 9)]  # for what is gone, and to compare
