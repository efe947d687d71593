"""Landing, applying and upkeep of one lane side by side, on real tables, each in its thread."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from demo.processes import wait_until
from pipeline.apply.catalog import Catalog
from pipeline.apply.maintenance import LakeMaintenance
from pipeline.apply.merge_job import JobGroup, MergeOutcome, run_group
from pipeline.apply.merge_run import MergeQueue, MergeRequest, MergeRunner, every_tier
from pipeline.backfill.runner import BackfillRunner
from pipeline.changelog import maintenance, scan
from pipeline.delta.store import Store
from pipeline.lane import Lane
from pipeline.model import Op, Order
from pipeline.reports import MergeReport
from pipeline.settings import Router, SourceSettings, TableRule
from pipeline.sources.row_reader import RowReader
from pipeline.start import with_progress
from pipeline.tables.delta.table_format import DeltaMirrors
from tests.builders.change_log import read_table
from tests.builders.harness import NOW, LandingHarness
from tests.pipeline.reading import readings

SOON = 60


@dataclass(eq=False)
class Beside:
    """A lane over the harness's topics; its clock goes on by a minute with each look."""

    harness: LandingHarness
    divided: bool = False
    paused: dict[int, tuple[threading.Event, threading.Event]] = field(default_factory=dict)
    looks: int = 0
    turns: list[MergeReport] = field(default_factory=list)

    def __post_init__(self) -> None:
        settings, log = self.harness.settings, self.harness.log
        mirrors = DeltaMirrors(None)
        passes = MergeRunner(settings, log(), here, self.clock, mirrors)
        urgent = None
        if self.divided:
            urgent = MergeRunner(settings, log(), here, self.clock, mirrors, passes.mirrors)
        upkeep = LakeMaintenance(settings, log(), passes.mirrors, self.clock)
        rules = (TableRule(r"db\.t", "db.t", tier=0),) if self.divided else ()
        catalog, known = Catalog(Router(rules), readings("a", "b")), log()
        if known.look() is not None:
            catalog.add(known.schema_changes(-1))
        again = BackfillRunner(settings, (), log(), nobody, lambda _: (), self.clock)
        self.lane = Lane(self.harness.loop, passes, upkeep, again, catalog, urgent=urgent)

    def clock(self) -> datetime:
        """A run that is to pause does so at its first look."""
        self.looks += 1
        if (pause := self.paused.pop(threading.get_ident(), None)) is not None:
            begun, ended = pause
            begun.set()
            assert ended.wait(SOON)
        return NOW + timedelta(minutes=self.looks)

    def land(self, first: int, until: int) -> None:
        """One batch for each row."""
        for number in range(first, until):
            self.harness.topics.put("a", 100 + number, "a", key=number)
            self.lane.land(frozenset())

    @contextmanager
    def merging(self) -> Iterator[None]:
        """A merge run, of the tables that are not of tier 0 alone, that ends with the block."""
        begun, ended = threading.Event(), threading.Event()

        def merge() -> None:
            self.paused[threading.get_ident()] = begun, ended
            self.apply()

        with ThreadPoolExecutor(1) as pool:
            run = pool.submit(merge)
            try:
                assert begun.wait(SOON)
                yield
            finally:
                ended.set()
            run.result(SOON)

    def apply(self) -> None:
        self.turns += self.lane.apply(MergeRequest())

    def changes(self) -> int:
        """Rows that have landed, and that the base of a new table is complete."""
        return len(self.harness.landed(Op.CREATE, Op.SETTLE))

    def rows(self) -> dict[int, str]:
        found = read_table(self.harness.settings.mirror("db.t"))
        rows = found.select("SELECT id, name FROM t")
        assert len({row["id"] for row in rows}) == len(rows), "duplicates"
        return {row["id"]: row["name"] for row in rows}


def here(groups: Sequence[JobGroup]) -> list[Mapping[str, MergeOutcome]]:
    return [run_group(group) for group in groups]


def nobody(settings: SourceSettings) -> RowReader:
    raise AssertionError(f"nothing is read again of {settings.name}")


def lane_with_rows(home: Path, *, divided: bool = False) -> Beside:
    """The table was created, and two rows have landed."""
    made = Beside(LandingHarness(home), divided)
    made.harness.topics.alter("a", 10, "name", kind="CREATE")
    made.land(0, 2)
    return made


@pytest.fixture
def beside(tmp_path: Path) -> Beside:
    return lane_with_rows(tmp_path)


@contextmanager
def going(work: Future[None]) -> Iterator[None]:
    """What is done meanwhile; the work's own error comes out in the end."""
    yield
    work.result(SOON)


def test_f49_landing_waits_for_no_merge_and_merges_and_upkeep_wait_for_each_other(
    beside: Beside,
) -> None:
    lane = beside.lane
    with ThreadPoolExecutor(3) as pool:
        with beside.merging():
            waiting = pool.submit(lane.apply, MergeRequest()), pool.submit(lane.maintain, {})
            pool.submit(beside.land, 2, 3).result(SOON)
            assert not any(one.done() for one in waiting)
        for one in waiting:
            one.result(SOON)
    beside.apply()

    assert beside.rows() == {0: "a", 1: "a", 2: "a"}


def test_a_pass_knows_a_batch_and_its_schemas_or_neither(beside: Beside) -> None:
    old = beside.lane.known
    beside.harness.topics.alter("a", 500, "name", "note")

    beside.lane.land(frozenset())
    new = beside.lane.known

    found = [known.catalog.newest("a", "db.t") for known in (old, new)]
    assert [schema and len(schema.columns) for schema in found] == [2, 3]
    assert (old.checkpoint.batch, new.checkpoint.batch) == (1, 2)


def test_schemas_of_batches_that_another_process_landed_are_read_back(beside: Beside) -> None:
    """As after a commit whose outcome was not known: the batch is there, and nobody has seen it."""
    other = LandingHarness(beside.harness.home, beside.harness.topics, beside.harness.server)
    beside.harness.topics.alter("a", 500, "name", "note")
    beside.harness.land_unknown()
    other.land()

    beside.land(50, 51)

    schema = beside.lane.known.catalog.newest("a", "db.t")
    assert schema is not None
    assert [column.name for column in schema.columns] == ["id", "name", "note"]
    assert beside.lane.checkpoint.batch == 3


def test_a_batch_without_a_statement_costs_no_look_at_the_schemas(
    beside: Beside, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(beside.harness.loop.log, "schema_changes", asked.append)
    known = beside.lane.known.catalog

    beside.land(2, 4)

    assert asked == []
    assert beside.lane.known.catalog is known


def test_f43_a_statement_that_lands_has_no_older_ones_read_again(
    beside: Beside, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["name"]
    for number in range(5):
        names.append(f"c{number}")
        beside.harness.topics.alter("a", 500 + number, *names)
        beside.lane.land(frozenset())
    log, told = beside.harness.loop.log, list[list[tuple[str, Order, str]]]()
    read, opened, files = log.schema_changes, scan.open_file, list[str]()

    def changes(after: int) -> list[tuple[str, Order, str]]:
        files.clear()
        told.append(read(after))
        return told[-1]

    def noted(store: Store, path: str) -> AbstractContextManager[object]:
        files.append(path)
        return opened(store, path)

    monkeypatch.setattr(log, "schema_changes", changes)
    monkeypatch.setattr(scan, "open_file", noted)
    beside.harness.topics.alter("a", 600, *names, "last")

    beside.lane.land(frozenset())

    assert [len(rows) for rows in told] == [1]
    assert len(files) == 1
    schema = beside.lane.known.catalog.newest("a", "db.t")
    assert schema is not None
    assert [column.name for column in schema.columns] == ["id", *names, "last"]


@pytest.mark.thorough
def test_merging_while_landing_goes_on_reads_every_change_once(beside: Beside) -> None:
    beside.apply()
    with ThreadPoolExecutor(1) as pool:
        work = pool.submit(beside.land, 2, 30)
        with going(work):
            while not work.done():
                beside.apply()
    beside.apply()

    assert [turn.hold for turn in beside.turns if turn.hold] == []
    assert sum(turn.account.read for turn in beside.turns) == beside.changes() == 31
    assert beside.rows() == dict.fromkeys(range(30), "a")


@pytest.mark.thorough
def test_no_row_is_lost_or_doubled_when_upkeep_and_merging_go_on_under_a_landing(
    beside: Beside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "TOGETHER", 8)
    monkeypatch.setattr("pipeline.tables.delta.rewrite.TOGETHER", 3)
    ended = threading.Event()

    def keep() -> None:
        while not ended.is_set():
            beside.lane.maintain({})

    with ThreadPoolExecutor(2) as pool:
        landing, keeping = pool.submit(beside.land, 2, 30), pool.submit(keep)
        try:
            with going(landing):
                while not landing.done():
                    beside.apply()
        finally:
            ended.set()
        keeping.result(SOON)
    beside.apply()

    log = beside.harness.log()
    log.look()
    assert [turn.hold for turn in beside.turns if turn.hold] == []
    assert beside.harness.batches() == list(range(30))
    assert [offset for _, _, offset in beside.harness.rows("a")] == list(range(30))
    assert sum(turn.account.read for turn in beside.turns) == beside.changes() == 31
    assert beside.rows() == dict.fromkeys(range(30), "a")
    assert len(log.snapshot.files) < 30, "it was compacted meanwhile"


def test_tier_0_is_merged_in_a_line_of_its_own_whatever_the_other_is_at(tmp_path: Path) -> None:
    beside = lane_with_rows(tmp_path, divided=True)
    lane = beside.lane

    assert lane.apply(MergeRequest()) == ()
    beside.harness.topics.insert("a", ("db", "u"), {"id": 1, "name": "a"}, (7, 300))
    beside.lane.land(frozenset())
    with beside.merging(), ThreadPoolExecutor(1) as pool:
        turns = pool.submit(lane.apply, MergeRequest(), urgent=True).result(SOON)
    lane.maintain({})

    assert [turn.table for turn in turns] == ["db.t"]
    assert beside.rows() == {0: "a", 1: "a"}


def test_who_waits_for_the_mirrors_comes_next(beside: Beside) -> None:
    """A plain lock goes to whoever takes it again at once: maintenance of thousands of mirrors."""
    next_, taken = threading.Lock(), list[str]()
    queue = MergeQueue("apply", beside.lane.runner, every_tier, threading.Lock(), next_)

    def merge() -> None:
        with queue.lock():
            taken.append("a merge run")

    with ThreadPoolExecutor(1) as pool:
        with queue.lock():
            waiting = pool.submit(merge)
            wait_until(next_.locked, timedelta(seconds=SOON), "a merge run that waits")
        for _ in range(20):
            with queue.lock():
                taken.append("a mirror")
        waiting.result(SOON)

    assert taken == ["a merge run", *["a mirror"] * 20]


def test_a_merge_waits_for_one_mirrors_upkeep_no_longer_than_its_caller_would(
    beside: Beside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or Spark's OPTIMIZE of a large mirror would have the process killed as late, for ever."""
    monkeypatch.setattr("pipeline.apply.merge_run.LOCK_PATIENCE", timedelta(milliseconds=1))

    with beside.merging(), ThreadPoolExecutor(1) as pool:
        turns = pool.submit(beside.lane.apply, MergeRequest()).result(SOON)

    assert turns == ()
    beside.land(2, 3)
    assert beside.lane.apply(MergeRequest()) != ()


def test_reading_what_has_landed_gives_a_sign_of_life_for_each_thousand() -> None:
    told: list[str] = []

    assert list(with_progress(range(2_500), told.append)) == list(range(2_500))

    assert [text.split()[0] for text in told] == ["0", "1,000", "2,000", "all"]
