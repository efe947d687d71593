"""The landing loop over topics in memory and a real change log: each record lands once, in order.

Rows that go back were sent again, or are out of order; a commit may be lost, doubted or contested.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from pipeline.changelog import maintenance as compaction
from pipeline.changelog.table import DROPPED
from pipeline.delta import maintenance as checkpoints
from pipeline.delta.actions import with_properties
from pipeline.delta.commit import commit_actions
from pipeline.errors import HeldError, UnreachableError
from pipeline.landing.source_holds import RESENT
from pipeline.model import Op, Order, Shard, SourcePartition, TopicPartition
from pipeline.reports import LandingReport
from pipeline.settings import Router, TableRule
from pipeline.sources.positions import locate_position
from tests.builders.harness import GIB4, NOW, LandingHarness, Server, Topics

LATER = NOW + timedelta(minutes=1)
OLD = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
NEW = "ffffffff-71ca-11e1-9e33-c80aa9429562"


@pytest.fixture
def harness(tmp_path: Path) -> LandingHarness:
    """Two changes of each source have landed."""
    made = LandingHarness(tmp_path)
    for source in "ab":
        made.topics.put(source, GIB4 - 300, "first")
        made.topics.put(source, GIB4 - 200, "second")
    made.land()
    return made


# rounds


def test_a_round_lands_what_came_since_the_last_one_and_nothing_else(
    harness: LandingHarness,
) -> None:
    harness.topics.put("a", GIB4 - 100, "third")

    landed, idle = harness.land(), harness.land()

    assert (landed.batch, landed.rows, landed.tables) == (1, 1, (("db.t", 1),))
    assert (idle.batch, idle.rows) == (None, 0)
    assert harness.rows("a") == [(1, GIB4 - 300, 0), (1, GIB4 - 200, 1), (1, GIB4 - 100, 2)]
    assert harness.rows("b") == [(1, GIB4 - 300, 0), (1, GIB4 - 200, 1)]
    assert harness.batches() == [0, 1]
    assert harness.log().checkpoint() == harness.checkpoint


def test_there_is_a_change_log_before_there_is_a_change(tmp_path: Path) -> None:
    harness = LandingHarness(tmp_path)

    assert harness.land().batch is None
    assert harness.checkpoint.batch == -1


def test_a_restart_goes_on_from_what_the_lake_says(harness: LandingHarness) -> None:
    harness.topics.put("b", GIB4 - 100, "third")

    again = LandingHarness(harness.home, harness.topics, harness.server)
    landed = again.land()

    assert (landed.batch, landed.rows) == (1, 1)
    assert [offset for _, _, offset in again.rows("b")] == [0, 1, 2]


def test_a_batch_takes_its_share_of_each_partition_and_says_that_there_is_more(
    tmp_path: Path,
) -> None:
    harness = LandingHarness(tmp_path, most=4)
    for pos in range(100, 700, 100):
        harness.topics.put("a", pos, "x")
        harness.topics.put("b", pos, "x")

    rounds = [harness.land() for _ in range(4)]

    assert [(one.batch, one.rows, one.capped) for one in rounds] == [
        (0, 4, True),
        (1, 4, True),
        (2, 4, False),
        (None, 0, False),
    ]
    assert [offset for _, _, offset in harness.rows("a")] == [*range(6)]
    assert [offset for _, _, offset in harness.rows("b")] == [*range(6)]
    assert {row["batch"] for row in harness.landed() if row["offset"] < 2} == {0}


def test_what_cannot_be_read_is_read_in_the_next_round(harness: LandingHarness) -> None:
    harness.topics.put("a", GIB4 - 100, "third")

    def silent() -> None:
        raise UnreachableError("Kafka does not answer")

    harness.meanwhile = silent
    before = harness.checkpoint
    with pytest.raises(UnreachableError):
        harness.land()

    assert harness.checkpoint == before
    assert harness.batches() == [0]
    assert harness.land().rows == 1
    assert [offset for _, _, offset in harness.rows("a")] == [0, 1, 2]


# commits


def compact(harness: LandingHarness) -> None:
    log = harness.log()
    log.look()
    made = compaction.join_files(log.store, log.snapshot, [*log.snapshot.files.values()], LATER)
    commit_actions(log.store, log.snapshot, made.actions, operation="OPTIMIZE", clock=LATER)


def set_property(harness: LandingHarness) -> None:
    log = harness.log()
    log.look()
    actions = with_properties(log.snapshot, {DROPPED: "0"})
    commit_actions(log.store, log.snapshot, actions, operation="SET TBLPROPERTIES", clock=LATER)


def drop(harness: LandingHarness) -> None:
    log = harness.log()
    log.look()
    files = [*log.snapshot.files.values()]
    actions = compaction.drop_other_rows(log.store, log.snapshot, files, (Op.MARK,), LATER)
    commit_actions(log.store, log.snapshot, actions, operation="DELETE", clock=LATER)


def checkpoint(harness: LandingHarness) -> None:
    compact(harness)
    set_property(harness)
    checkpoints.write_checkpoint(harness.log().store)


@pytest.mark.parametrize(
    ("work", "left"),
    [
        pytest.param(compact, [0, 1, 2], id="files were joined"),
        pytest.param(set_property, [0, 1, 2], id="a property was set"),
        pytest.param(drop, [2], id="an old day was dropped"),
        pytest.param(checkpoint, [0, 1, 2], id="two commits, and a checkpoint"),
    ],
)
def test_a_commit_of_upkeep_in_between_is_followed_and_nothing_is_doubled(
    harness: LandingHarness, work: Callable[[LandingHarness], None], left: list[int]
) -> None:
    harness.topics.put("a", GIB4 - 100, "third")
    harness.meanwhile = lambda: work(harness)

    landed = harness.land()

    assert (landed.batch, harness.tasks) == (1, [1, 1]), "nothing is read twice"
    assert [offset for _, _, offset in harness.rows("a")] == left
    assert harness.batches() == [0, 1]
    assert harness.log().checkpoint() == harness.checkpoint
    harness.topics.put("a", GIB4 - 50, "fourth")
    assert harness.land().batch == 2


def test_another_services_batch_is_never_landed_over(harness: LandingHarness) -> None:
    harness.topics.put("a", GIB4 - 100, "third")
    other = LandingHarness(harness.home, harness.topics, harness.server)
    harness.meanwhile = other.land

    with pytest.raises(HeldError, match="lane_taken: lane main is at batch 1, not 0"):
        harness.land()

    assert [offset for _, _, offset in harness.rows("a")] == [0, 1, 2]
    assert harness.batches() == [0, 1]
    assert harness.land().batch is None, "there is nothing that the other has not landed"


def test_the_order_of_two_batches_is_never_turned_round(harness: LandingHarness) -> None:
    """The other one has landed several batches before this one comes to its commit."""
    other = LandingHarness(harness.home, harness.topics, harness.server)
    harness.topics.put("a", GIB4 - 100, "third")

    def land_more() -> None:
        other.land()
        other.topics.put("a", GIB4 - 50, "fourth")
        other.land()

    harness.meanwhile = land_more
    with pytest.raises(HeldError, match="lane_taken"):
        harness.land()

    assert [offset for _, _, offset in harness.rows("a")] == [0, 1, 2, 3]
    assert harness.batches() == [0, 1, 2]


@pytest.mark.parametrize("there", [True, False])
def test_f18_a_commit_of_which_nobody_knows_the_outcome_is_looked_up_in_the_next_round(
    harness: LandingHarness, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    harness.topics.put("a", GIB4 - 100, "third")

    def doubtful(*arguments: Any, **more: Any) -> Any:
        monkeypatch.undo()
        if there:
            commit_actions(*arguments, **more)
        raise UnreachableError("the lake does not answer")

    monkeypatch.setattr("pipeline.changelog.change_log.commit_actions", doubtful)
    with pytest.raises(UnreachableError):
        harness.land()
    harness.topics.put("a", GIB4 - 50, "fourth")
    landed = harness.land()

    assert (landed.batch, landed.rows) == ((2, 1) if there else (1, 2))
    assert [offset for _, _, offset in harness.rows("a")] == [0, 1, 2, 3]
    assert harness.log().checkpoint() == harness.checkpoint


def test_a_mark_that_cannot_be_read_back_is_told_and_looked_up_again(
    harness: LandingHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.topics.put("a", GIB4 - 100, "third")
    with monkeypatch.context() as patched:
        patched.setattr(harness.loop.log, "checkpoint", lambda: None)
        with pytest.raises(HeldError, match="mark_lost: wrote batch 1, read back nothing"):
            harness.land()

    assert harness.land().batch is None
    assert harness.checkpoint.batch == 1
    assert [offset for _, _, offset in harness.rows("a")] == [0, 1, 2]


# topics


def test_a_topic_created_anew_while_it_was_read_throws_the_round_away(
    harness: LandingHarness,
) -> None:
    harness.topics.put("a", GIB4 - 100, "of the old topic")
    before = harness.checkpoint
    harness.meanwhile = lambda: harness.topics.create_anew("a.db.t")

    with pytest.raises(UnreachableError, match=r"a\.db\.t was deleted or created again"):
        harness.land()

    assert harness.checkpoint == before
    assert harness.batches() == [0]
    harness.topics.put("a", GIB4 - 50, "of the new one")
    (gap,) = harness.land().gaps
    assert gap.topic == "a.db.t"
    assert [offset for _, _, offset in harness.rows("a")] == [0, 0, 1]


# rows that go back


def test_what_is_sent_again_is_landed_again_and_moves_nothing(harness: LandingHarness) -> None:
    for pos, name in ((GIB4 - 300, "first"), (GIB4 - 200, "second"), (GIB4 - 100, "third")):
        harness.topics.put("a", pos, name)

    landed = harness.land()

    assert landed.holds == ()
    positions = [pos for _, pos, _ in harness.rows("a")]
    assert positions == [GIB4 - d for d in (300, 200, 300, 200, 100)]
    assert harness.checkpoint.epochs["a"].number == 1


def land_later(harness: LandingHarness) -> LandingReport:
    """The round in which a row that stayed alone is not waited for any longer."""
    harness.land()
    harness.now += RESENT
    return harness.land()


@pytest.mark.parametrize(
    ("pos", "name"),
    [
        pytest.param(GIB4 - 250, "new", id="a change between two that are landed"),
        pytest.param(100, "new", id="a transaction of over 4 GiB, whose positions begin anew"),
    ],
)
def test_what_goes_back_and_repeats_nothing_holds_its_source_and_no_other(
    harness: LandingHarness, pos: int, name: str
) -> None:
    harness.topics.put("a", pos, name)
    harness.topics.put("b", GIB4 - 100, "third")

    first, again = land_later(harness), harness.land()

    (hold,) = first.holds
    assert (hold.id, hold.subject, hold.reason) == (
        "disorder:a:a.db.t:0:2@1",
        "source:a",
        "disorder",
    )
    assert again.holds == first.holds
    assert [offset for _, _, offset in harness.rows("a")] == [0, 1]
    assert [offset for _, _, offset in harness.rows("b")] == [0, 1, 2]
    assert harness.checkpoint.offsets[TopicPartition("a.db.t", 0)].offset == 2, "W stays"


def test_another_change_at_a_landed_position_is_disorder_at_once(harness: LandingHarness) -> None:
    harness.topics.put("a", GIB4 - 300, "other")

    (hold,) = harness.land().holds

    assert hold.id == "disorder:a:a.db.t:0:2@1"


def test_a_source_in_disorder_makes_no_batch_where_there_is_nothing_else(
    harness: LandingHarness,
) -> None:
    harness.topics.put("a", 100, "new")
    before = harness.checkpoint

    rounds = [land_later(harness) for _ in range(3)]

    assert [one.batch for one in rounds] == [None] * 3
    assert {hold.reason for one in rounds for hold in one.holds} == {"disorder"}
    assert harness.checkpoint == before


@pytest.mark.parametrize(
    "lose",
    [
        pytest.param(lambda topics, name: topics.create_anew(name), id="created anew"),
        pytest.param(lambda topics, name: topics.held.pop(name), id="gone"),
    ],
)
def test_a_gap_of_a_source_in_disorder_waits_until_its_rows_are_landed(
    harness: LandingHarness, lose: Callable[[Topics, str], object]
) -> None:
    """Told with every batch meanwhile, it would be newer than the base that could heal it."""
    name = "a.sluice.heartbeat"
    harness.topics.write_heartbeat("a", 1, pos=GIB4 - 150)
    harness.land()
    harness.topics.write_heartbeat("a", 2, pos=GIB4 - 140)
    harness.topics.put("a", 100, "new")
    (hold,) = land_later(harness).holds
    before = harness.checkpoint
    lose(harness.topics, name)

    rounds = [harness.land() for _ in range(3)]
    harness.topics.put("b", GIB4 - 100, "third")
    other, freed = harness.land(), harness.land(hold.id)

    assert [(one.batch, one.gaps) for one in rounds] == [(None, ())] * 3
    assert (other.batch, other.gaps) == (before.batch + 1, ())
    assert (freed.holds, [gap.topic for gap in freed.gaps]) == ((), [name])


def test_a_row_out_of_order_is_found_within_its_own_batch_too(tmp_path: Path) -> None:
    harness = LandingHarness(tmp_path)
    for pos in (300, 100):
        harness.topics.put("a", pos, "x")

    (hold,) = land_later(harness).holds

    assert hold.id == "disorder:a:a.db.t:0:1@1"
    assert harness.rows("a") == []


def test_a_person_may_say_that_it_is_a_new_log(harness: LandingHarness) -> None:
    harness.topics.put("a", 100, "new")
    (hold,) = land_later(harness).holds

    landed = harness.land(hold.id)

    assert landed.holds == ()
    assert harness.rows("a") == [(1, GIB4 - 300, 0), (1, GIB4 - 200, 1), (2, 100, 2)]


@pytest.mark.parametrize(
    ("executed", "after", "expected"),
    [
        pytest.param(f"{OLD}:1-9", f"{NEW}:1-2", [None, None, 1], id="told apart by GTIDs"),
        pytest.param("", "", [None, None, None], id="not told apart: heartbeats must show it"),
    ],
)
def test_what_was_acknowledged_of_a_log_that_was_reset_proves_nothing_of_the_new_one(
    tmp_path: Path, executed: str, after: str, expected: list[int | None]
) -> None:
    """Its position is far above all of the new log, and the ends it waits for are passed later."""
    harness = LandingHarness(tmp_path, server=Server(executed=executed), most=2)
    for pos in range(100, 800, 100):
        harness.topics.put("a", pos, "x")
    harness.land()

    harness.server.log, harness.server.executed = 1, after
    said = []
    for _ in range(3):
        harness.land()
        said.append(harness.checkpoint.acknowledged.get("a"))

    assert harness.checkpoint.epochs["a"].number == 2
    assert [one and locate_position(one.position)[0] for one in said] == expected


# a fail-over


@pytest.fixture
def failed_over(tmp_path: Path) -> LandingHarness:
    """Three transactions have landed; a server that has them at other places takes over."""
    topics, server = Topics(), Server(executed=f"{OLD}:1-3")
    harness = LandingHarness(tmp_path, topics, server)
    for number in (1, 2, 3):
        topics.put("a", 1_000 * number, f"name {number}", tx=f"{OLD}:{number}", key=number)
    harness.land()
    server.identity, server.log, server.executed = "other", 2, f"{OLD}:1-4"
    return harness


def test_what_a_new_server_sends_again_keeps_the_order_it_has_landed_with(
    failed_over: LandingHarness,
) -> None:
    for number in (2, 3, 4):
        tx, name = f"{OLD}:{number}", f"name {number}"
        failed_over.topics.put("a", 40 + number, name, log=2, tx=tx, key=number)

    landed = failed_over.land()

    assert landed.holds == ()
    rows = [(one["order"]["epoch"], one["order"]["log"]) for one in failed_over.landed()]
    assert rows == [(1, 7), (1, 7), (1, 7), (1, 7), (1, 7), (2, 2)]
    assert [pos for _, pos, _ in failed_over.rows("a")] == [1_000, 2_000, 3_000, 2_000, 3_000, 44]
    assert failed_over.checkpoint.high[SourcePartition.parse("a/a.db.t:0")].epoch == 2


def test_a_new_change_of_the_new_server_is_newer_than_all_before(
    failed_over: LandingHarness,
) -> None:
    failed_over.topics.put("a", 4, "new", log=2, tx=f"{OLD}:4")

    landed = failed_over.land()

    assert landed.holds == ()
    assert failed_over.rows("a")[-1] == (2, 4, 3)


def test_what_equals_nothing_that_has_landed_is_no_repetition(failed_over: LandingHarness) -> None:
    """The same transaction's id, but another row: it is new, and the old row stays below it."""
    failed_over.topics.put("a", 4, "another", log=2, tx=f"{OLD}:3", key=3)

    failed_over.land()

    assert failed_over.rows("a")[-1] == (2, 4, 3)


def test_nothing_is_compared_once_the_new_server_is_known_to_have_caught_up(
    failed_over: LandingHarness,
) -> None:
    """Its own heartbeat has landed: what comes now is new, whatever it says."""
    failed_over.topics.write_heartbeat("a", 1, pos=50, log=2)
    failed_over.land()
    failed_over.topics.put("a", 60, "name 3", log=2, tx=f"{OLD}:3", key=3)

    failed_over.land()

    assert failed_over.checkpoint.heartbeats == {"a": 1}
    assert failed_over.rows("a")[-1] == (2, 60, 3)


def test_a_topic_that_went_with_nothing_left_in_it_is_told_once(harness: LandingHarness) -> None:
    harness.topics.say("a", GIB4 - 90, "DROP DATABASE db")
    harness.land()
    del harness.topics.held["a.db.t"]
    with capture_logs() as logged:
        harness.land()
        harness.topics.put("b", GIB4 - 50, "x")
        harness.land()
        harness.land()

    told = [line["what"] for line in logged if line["event"] == "partition gone"]
    assert told == ["a.db.t:0 is gone; it had landed up to its end, 2"]


def test_a_table_that_the_collector_leaves_out_gets_neither_base_nor_mirror(tmp_path: Path) -> None:
    harness = LandingHarness(tmp_path)
    harness.server.left_out = frozenset({"db.t"})
    harness.topics.alter("a", 5, "name", kind="CREATE")

    harness.land()

    assert harness.checkpoint.bases == {}
    assert harness.checkpoint.tables == {}


def test_rows_show_that_a_table_is_captured_by_lists_that_stayed_as_they_were(
    tmp_path: Path,
) -> None:
    """Sluice may read a pattern otherwise than the collector."""
    harness = LandingHarness(tmp_path)
    harness.server.left_out = frozenset({"db.t"})
    harness.topics.write_heartbeat("a", 1, pos=2)
    harness.land()
    harness.topics.alter("a", 5, "name", kind="CREATE")
    harness.topics.put("a", 20, "one")

    harness.land()

    assert harness.checkpoint.bases.keys() == {Shard("a", "db.t")}


def test_a_silent_collector_counts_no_table_as_captured(tmp_path: Path) -> None:
    harness = LandingHarness(tmp_path)
    harness.topics.alter("a", 5, "name", kind="CREATE")
    harness.server.silent = True

    harness.land()

    assert harness.checkpoint.bases == {}


# more waits than a batch may hold


def test_a_table_made_and_filled_during_an_outage_is_born_though_its_rows_fill_a_batch(
    tmp_path: Path,
) -> None:
    harness = LandingHarness(tmp_path, most=4)
    for pos in range(100, 160, 10):
        harness.topics.say("a", pos, "CREATE VIEW w AS SELECT 1")
    harness.topics.alter("a", 200, "name", kind="CREATE")
    for key in range(9):
        harness.topics.put("a", 210 + key, "new", key=key)

    while harness.loop.land(frozenset()).batch is not None:
        pass

    assert harness.checkpoint.bases[Shard("a", "db.t")] == Order(1, 7, 200)


def test_a_first_snapshot_lands_in_large_batches_until_a_table_of_tier_0_is_live(
    tmp_path: Path,
) -> None:
    harness, rule = LandingHarness(tmp_path), TableRule(shards=r"db\.t", table="db.t", tier=0)
    harness.loop.settings = replace(harness.settings, rules=(rule,), urgent_rows=3)
    harness.loop.router = Router((rule,))
    harness.topics.snapshot("a", 100, 9)

    snapshot = harness.land()
    harness.topics.snapshot("b", 100, 9)
    other = harness.land()
    for pos in range(200, 209):
        harness.topics.put("a", pos, "live")
    first, second = harness.land(), harness.land()

    assert (snapshot.rows, snapshot.capped, other.rows) == (9, False, 9)
    assert (first.rows, first.capped) == (9, False)  # it shows that the snapshot has ended
    assert Shard("a", "db.t") in harness.checkpoint.bases
    assert second.batch is None
    for pos in range(210, 219):
        harness.topics.put("a", pos, "live")
    assert [(one.rows, one.capped) for one in (harness.land(), harness.land())] == [
        (3, True),
        (3, True),
    ]


def test_a_table_of_tier_0_without_a_snapshot_is_live_from_its_first_row(tmp_path: Path) -> None:
    harness, rule = LandingHarness(tmp_path), TableRule(shards=r"db\.t", table="db.t", tier=0)
    harness.loop.settings = replace(harness.settings, rules=(rule,), urgent_rows=3)
    harness.loop.router = Router((rule,))
    harness.topics.put("a", 100, "live")
    harness.land()
    for pos in range(200, 209):
        harness.topics.put("a", pos, "live")

    assert harness.land().rows == 3
