"""A log is reset on the same server, and the collector begins with a snapshot of the new log."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pipeline.landing.epochs import EPOCH_ALONE
from pipeline.landing.order_check import highest_by_source
from pipeline.model import Acknowledged, Fence, Missing, Op, Order, Shard, SourcePartition
from tests.builders.harness import NOW, LandingHarness, Server, place, record
from tests.pipeline.schema_messages import described, message

OLD, NEW = 7, 1  # log files
UUID = "11111111-1111-1111-1111-111111111111"
SNAPSHOT = 800  # its position in the new log


@dataclass(eq=False)
class Stopped(Server):
    """A server whose collector has stored the offset ``said``, if any."""

    said: Acknowledged | Missing | None = None

    def acknowledged(self) -> Any:
        return super().acknowledged() if self.said is None else self.said


def send_schema(harness: LandingHarness, log: int, pos: int, *columns: str) -> None:
    """The statements with which Debezium begins a snapshot of all tables."""
    at, held = place("t", pos, log=log, snapshot="true"), harness.topics.held.setdefault("a", [])
    told = ", ".join(["id BIGINT!", *(f"{name} VARCHAR:80" for name in columns)])
    drop = message("DROP DATABASE IF EXISTS `db`", source=at | {"table": ""})
    text = "CREATE TABLE t"
    create = message(text, described(text, "t", told), source=at)
    held += [(b"{}", one.encode()) for one in (drop, create)]


def send_rows(harness: LandingHarness, log: int, pos: int, rows: Mapping[int, str]) -> None:
    """The rows of ``db.t`` as a snapshot reads them."""
    held = harness.topics.held.setdefault("a.db.t", [])
    for number, (key, name) in enumerate(rows.items(), 1):
        flag = "last_in_data_collection" if number == len(rows) else "true"
        source = place("t", pos, log=log, snapshot=flag)
        value = {"after": {"id": key, "name": name}, "source": source, "op": "r"}
        held.append(record(key, value))


@pytest.fixture
def server() -> Stopped:
    return Stopped(log=OLD, end=10_000, executed=f"{UUID}:1-60")


@pytest.fixture
def harness(tmp_path: Path, server: Stopped) -> LandingHarness:
    """A snapshot and some changes of the old log have landed, up to its end."""
    made = LandingHarness(tmp_path, server=server, names="a")
    send_schema(made, OLD, 100, "name")
    send_rows(made, OLD, 100, {1: "first", 6: "first"})
    made.topics.write_heartbeat("a", 1, pos=100, log=OLD, read=True)
    made.topics.write_heartbeat("a", 2, pos=200, log=OLD)
    made.topics.put("a", 300, "second", log=OLD, key=1)
    made.land()
    made.topics.write_heartbeat("a", 3, pos=400, log=OLD)
    made.land()
    assert made.checkpoint.bases.keys() == {Shard("a", "db.t")}
    assert made.checkpoint.covers(fence(server, 3))
    return made


def fence(server: Stopped, number: int) -> Fence:
    return Fence("a", number, NOW, server.head())


def reset(server: Stopped) -> None:
    """RESET MASTER beside a stopped collector whose offsets are forgotten."""
    server.log, server.end, server.executed = NEW, SNAPSHOT, f"{UUID}:1-4"
    server.said = Missing("no offset is stored")


def test_a_reset_that_is_seen_while_nothing_lands_is_recorded_without_rows(
    harness: LandingHarness, server: Stopped
) -> None:
    """The new log outgrows the old one before the collector goes on: then nothing shows it."""
    reset(server)
    early = harness.land()
    harness.now += EPOCH_ALONE
    recorded = harness.land()

    server.end, server.executed = 50_000, f"{UUID}:1-90"
    later = harness.land()

    assert (early.batch, later.batch) == (None, None)
    assert recorded.batch == harness.checkpoint.batch
    assert harness.checkpoint.epochs["a"].number == 2
    assert "a" not in harness.checkpoint.acknowledged


def test_only_a_batch_with_a_statement_of_a_snapshot_compares_what_has_landed(
    harness: LandingHarness, server: Stopped, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[Mapping[SourcePartition, Order]]()

    def count(high: Mapping[SourcePartition, Order]) -> dict[str, Order]:
        asked.append(high)
        return highest_by_source(high)

    monkeypatch.setattr("pipeline.landing.judge.highest_by_source", count)
    for number in (4, 5):
        harness.topics.write_heartbeat("a", number, pos=100 * number + 100, log=OLD)
        assert harness.land().batch is not None
    harness.topics.alter("a", 650, "name", "note", log=OLD)
    assert harness.land().batch is not None
    without = len(asked)
    send_schema(harness, OLD, 700, "name")

    assert harness.land().batch is not None
    assert (without, len(asked)) == (0, 1)


def test_rows_of_the_old_log_that_come_soon_after_a_reset_belong_to_the_old_epoch(
    harness: LandingHarness, server: Stopped
) -> None:
    """Else the rows of the new log, which are below them, would be disorder."""
    reset(server)
    harness.land()
    harness.topics.put("a", 500, "late", log=OLD, key=2)
    late = harness.land()
    harness.topics.put("a", 900, "new", log=NEW, key=3)
    new = harness.land()

    assert (late.holds, new.holds) == ((), ())
    assert [epoch for epoch, _, _ in harness.rows("a")] == [1, 1, 2]


def snapshot_parts(harness: LandingHarness) -> list[Callable[[], None]]:
    """What the collector sends of its snapshot of the new log, in this order."""
    return [
        lambda: send_schema(harness, NEW, SNAPSHOT, "name", "colour"),
        lambda: send_rows(harness, NEW, SNAPSHOT, {1: "third"}),
        lambda: harness.topics.write_heartbeat("a", 4, pos=SNAPSHOT, log=NEW, read=True),
    ]


@pytest.mark.parametrize("first", [1, 2, 3], ids=lambda n: f"{n} parts at the first look")
@pytest.mark.parametrize("executed", [f"{UUID}:1-4", ""], ids=["GTIDs", "no GTIDs"])
def test_wherever_batches_cut_it_the_snapshot_after_a_reset_is_a_base(
    harness: LandingHarness, server: Stopped, first: int, executed: str
) -> None:
    """Nothing is proven before the table has its base, and it gets one."""
    reset(server)
    server.executed = executed
    goal = fence(server, 4)
    proven: list[bool] = []

    for number, send in enumerate(snapshot_parts(harness), 1):
        send()
        if number >= first:
            assert harness.land().holds == ()
            proven.append(harness.checkpoint.covers(goal))
    server.said = None
    for number in range(5, 9):
        harness.topics.write_heartbeat("a", number, pos=number * 1000, log=NEW)
        server.end = number * 1000 + 100
        assert harness.land().holds == ()

    mark = harness.checkpoint
    assert True not in proven
    assert mark.covers(goal)
    assert mark.bases == {Shard("a", "db.t"): Order(2, NEW, SNAPSHOT)}
    assert mark.gaps == {}
    assert {
        row["order"]["epoch"] for row in harness.landed(Op.DDL) if "colour" in row["after"]
    } == {2}
