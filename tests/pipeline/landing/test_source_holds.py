"""A source in disorder is not read in each round, and every way out of it still leads out."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from pipeline.checkpoint import Epoch, Gap
from pipeline.clocks import FIRST_WAIT, LONGEST_WAIT
from pipeline.errors import NoSchemasError
from pipeline.formats.schema_registry import SchemaRegistry
from pipeline.landing.epochs import Epochs
from pipeline.landing.listing import Listing
from pipeline.landing.plan import Plan
from pipeline.landing.source_holds import (
    PATIENCE,
    RESENT,
    HoldContext,
    SourceHolds,
    UndecidedRow,
)
from pipeline.model import Head, TopicPartition
from pipeline.reports import Hold, LandingReport
from pipeline.settings import RegistrySettings
from pipeline.sources.mysql.position import binlog_position
from tests.builders.harness import GIB4, LandingHarness

Change = Callable[[LandingHarness], object]


@pytest.fixture
def harness(tmp_path: Path) -> LandingHarness:
    """Two rows of each source have landed; then one of ``a`` stands below them: it is held."""
    made = LandingHarness(tmp_path)
    for source in "ab":
        for pos in (GIB4 - 300, GIB4 - 200):
            made.topics.put(source, pos, "x")
    made.land()
    made.topics.put("a", 100, "new")
    assert made.land().holds == (), "the row that shows that a broker refused it may follow"
    made.now += RESENT
    assert [hold.reason for hold in made.land().holds] == ["disorder"]
    made.tasks.clear()
    return made


def land_batches(harness: LandingHarness, count: int) -> list[LandingReport]:
    return [harness.land() for _ in range(count)]


def test_it_is_not_read_again_in_each_round_and_told_all_the_same(harness: LandingHarness) -> None:
    found = land_batches(harness, 5)

    assert harness.tasks == []
    assert [hold.id for one in found for hold in one.holds] == ["disorder:a:a.db.t:0:2@1"] * 5


def test_others_are_read_once_a_round(harness: LandingHarness) -> None:
    for number in range(3):
        harness.topics.put("b", GIB4 - 100 + number, "more")
        harness.topics.put("a", GIB4 - 100 + number, "more")
        (landed,) = land_batches(harness, 1)
        assert (landed.batch, len(landed.holds)) == (number + 1, 1)

    assert harness.tasks == [1, 1, 1]
    assert [offset for _, _, offset in harness.rows("a")] == [0, 1]
    assert [offset for _, _, offset in harness.rows("b")] == [0, 1, 2, 3, 4]


def test_its_schema_changes_go_ahead_of_nobody(harness: LandingHarness) -> None:
    """More than a batch holds: read first, they would leave the others nothing."""
    harness.loop.settings = replace(harness.loop.settings, batch_rows=3)
    for pos in range(5):
        harness.topics.say("a", GIB4 - 90 + pos, "CREATE VIEW w AS SELECT 1")
    harness.topics.put("b", GIB4 - 100, "more")

    land_batches(harness, 2)

    assert [offset for _, _, offset in harness.rows("b")] == [0, 1, 2]


def to_another_server(harness: LandingHarness) -> None:
    harness.server.identity = "other"


def to_a_log_begun_anew(harness: LandingHarness) -> None:
    harness.server.log = 1


@pytest.mark.parametrize("change", [to_another_server, to_a_log_begun_anew])
def test_another_server_or_log_is_seen_at_once(harness: LandingHarness, change: Change) -> None:
    land_batches(harness, 2)
    change(harness)

    (landed,) = land_batches(harness, 1)

    assert landed.holds == ()
    assert [offset for _, _, offset in harness.rows("a")] == [0, 1, 2]


def test_a_waiver_is_heard_at_once(harness: LandingHarness) -> None:
    (held,) = land_batches(harness, 1)

    landed = harness.land(held.holds[0].id)

    assert landed.holds == ()
    assert [offset for _, _, offset in harness.rows("a")] == [0, 1, 2]


def test_a_topic_that_is_created_anew_is_read_at_once(harness: LandingHarness) -> None:
    land_batches(harness, 1)
    harness.topics.create_anew("a.db.t")
    harness.topics.put("a", GIB4 - 50, "fresh")

    (landed,) = land_batches(harness, 1)

    assert landed.holds == ()
    assert len(landed.gaps) == 1
    assert (1, GIB4 - 50, 0) in harness.rows("a")


def test_it_is_read_again_now_and_then_whatever_is_known(harness: LandingHarness) -> None:
    """The record itself was mended, such as by a topic that was put back: nobody tells of that."""
    began = harness.now
    reads: list[float] = []
    while harness.now < began + timedelta(minutes=4):
        harness.now += FIRST_WAIT
        harness.tasks.clear()
        harness.land()
        if harness.tasks:
            reads.append((harness.now - began).total_seconds())
    pauses = [after - before for before, after in pairwise(reads)]

    assert reads[0] == FIRST_WAIT.total_seconds()
    assert pauses[-1] == LONGEST_WAIT.total_seconds()
    assert len(reads) < 10

    harness.topics.held["a.db.t"].pop()
    harness.topics.put("a", GIB4 - 50, "mended")
    harness.now += LONGEST_WAIT
    (landed,) = land_batches(harness, 1)
    assert landed.holds == ()
    assert [pos for _, pos, _ in harness.rows("a")][-1] == GIB4 - 50


def test_what_went_on_is_forgotten(harness: LandingHarness) -> None:
    (held,) = land_batches(harness, 1)
    harness.land(held.holds[0].id)
    harness.topics.put("a", 50, "lower still")
    harness.land()
    harness.now += RESENT

    found = land_batches(harness, 2)

    assert [hold.id for one in found for hold in one.holds] == ["disorder:a:a.db.t:0:3@2"] * 2


def test_f140_rows_that_the_broker_refused_land_by_themselves_once_they_are_sent(
    tmp_path: Path,
) -> None:
    harness = LandingHarness(tmp_path)
    for pos in (GIB4 - 500, GIB4 - 300, GIB4 - 200):  # that at -400 is refused
        harness.topics.put("a", pos, f"at {pos}")
    harness.land()
    for pos in (GIB4 - 500, GIB4 - 400, GIB4 - 300, GIB4 - 200, GIB4 - 100):
        harness.topics.put("a", pos, f"at {pos}")

    landed = harness.land()

    assert (landed.holds, landed.rows) == ((), 5)
    assert harness.rows("a")[-5:] == [
        (1, GIB4 - 500, 3), (1, GIB4 - 400, 4), (1, GIB4 - 300, 5), (1, GIB4 - 200, 6),
        (1, GIB4 - 100, 7),
    ]  # fmt: skip


def resent(harness: LandingHarness, cuts: frozenset[int]) -> list[LandingReport]:
    """Rows of a transaction come again with two refused ones; a batch ends before each of *cuts*.

    The rounds are shorter than the time in which a refused row may stay alone.
    """
    sent = [*range(-900, 0, 100)]
    for pos in sent:
        if pos not in (-700, -600, -300):
            harness.topics.put("a", GIB4 + pos, f"at {pos}")
    land_batches(harness, 6)
    found = []
    for number, pos in enumerate(sent):
        if number in cuts:
            found.append(harness.land())
            harness.now += RESENT / 20
        harness.topics.put("a", GIB4 + pos, f"at {pos}")
    return [*found, harness.land()]


@pytest.mark.parametrize("most", [1_000, 3], ids=["whole batches", "batches of three rows"])
def test_f140_wherever_batches_cut_what_is_sent_again_it_lands_once_and_nothing_is_held(
    tmp_path: Path, most: int
) -> None:
    for cuts in (frozenset(), *(frozenset({n}) for n in range(1, 9)), frozenset(range(1, 9))):
        harness = LandingHarness(tmp_path / f"{sorted(cuts)}", most=most, names="a")

        found = resent(harness, cuts)
        found += land_batches(harness, 15)

        assert [hold for one in found for hold in one.holds] == [], cuts
        assert found[-1].gaps == ()
        again = [(1, GIB4 + pos, number) for number, pos in enumerate(range(-900, 0, 100), 6)]
        assert harness.rows("a")[6:] == again, cuts


@pytest.mark.parametrize(
    ("most", "earlier"),
    [
        pytest.param(1_000, 0, id="whole batches"),
        pytest.param(2, 0, id="the row behind it is in the next batch"),
        pytest.param(4, 2, id="rows before it land first"),
    ],
)
def test_no_later_statement_lands_before_a_refused_row(
    tmp_path: Path, most: int, earlier: int
) -> None:
    harness = LandingHarness(tmp_path, names="a")
    harness.topics.alter("a", 10, "name", kind="CREATE")
    for pos in (100, 300):  # that at 200 is refused
        harness.topics.put("a", pos, f"at {pos}", key=pos)
    harness.land()
    sent = (*(100,) * earlier, 200, 300)
    for pos in sent:
        harness.topics.put("a", pos, f"at {pos}", key=pos)
    harness.topics.alter("a", 400, "name", "more")
    harness.topics.put("a", 500, "at 500", key=500)
    harness.loop.settings = replace(harness.loop.settings, batch_rows=most)

    found = land_batches(harness, 8)

    assert [hold for one in found for hold in one.holds] == []
    assert [pos for _, pos, _ in harness.rows("a")] == [100, 300, *sent, 500]


def test_f140_a_refused_row_that_stays_alone_is_disorder_and_not_lost(tmp_path: Path) -> None:
    """A row of another partition waits with it: it may be of another log, too."""
    harness = LandingHarness(tmp_path, names="a")
    for pos in (GIB4 - 500, GIB4 - 300):
        harness.topics.put("a", pos, f"at {pos}")
    harness.land()
    harness.topics.put("a", GIB4 - 400, "refused")
    harness.topics.beat("a", 1, pos=GIB4 - 100)

    held = []
    for _ in range(8):
        held.append([one.reason for one in harness.land().holds])
        harness.now += RESENT / 4

    assert held == [[]] * 4 + [["disorder"]] * 4
    assert [offset for _, _, offset in harness.rows("a")] == [0, 1]
    assert harness.checkpoint.heartbeats == {}

    harness.topics.put("a", GIB4 - 300, f"at {GIB4 - 300}")
    harness.now += LONGEST_WAIT
    freed = harness.land()
    assert (freed.holds, freed.rows) == ((), 3)


def test_f140_refused_rows_of_which_each_is_explained_in_time_are_never_disorder(
    tmp_path: Path,
) -> None:
    """Each round ends with one, and the next round has what explains it."""
    harness = LandingHarness(tmp_path, names="a")
    sent = [GIB4 + pos for pos in range(-3_000, 0, 100)]
    for pos in sent[::2]:
        harness.topics.put("a", pos, f"at {pos}")
    harness.land()
    found = []
    for pos in sent:
        harness.topics.put("a", pos, f"at {pos}")
        if pos not in sent[::2]:
            found.append(harness.land())
            harness.now += RESENT / 4
    harness.topics.put("a", GIB4, "new")

    found.append(harness.land())

    assert [hold for one in found for hold in one.holds] == []
    assert sorted({pos for _, pos, _ in harness.rows("a")}) == [*sent, GIB4]


def test_f140_a_clock_that_was_set_back_makes_no_disorder(tmp_path: Path) -> None:
    harness = LandingHarness(tmp_path, names="a")
    for pos in (GIB4 - 500, GIB4 - 300):
        harness.topics.put("a", pos, f"at {pos}")
    harness.land()
    harness.topics.put("a", GIB4 - 400, "refused")
    held = []
    for step in (-RESENT / 60, RESENT / 2, RESENT / 2):
        held.append([one.reason for one in harness.land().holds])
        harness.now += step

    held.append([one.reason for one in harness.land().holds])

    assert held == [[], [], [], ["disorder"]]


@pytest.mark.parametrize(
    ("stood", "held"),
    [
        pytest.param("disorder:a:a.db.t:0:2@1", ["disorder"], id="held before"),
        pytest.param("registry:a", [], id="another hold"),
        pytest.param("disorder:a:a.db.t:0:1@1", [], id="of another row"),
    ],
)
def test_f140_a_restart_ends_no_hold(tmp_path: Path, stood: str, held: list[str]) -> None:
    harness = LandingHarness(tmp_path, names="a")
    for pos in (GIB4 - 300, GIB4 - 200):
        harness.topics.put("a", pos, "x")
    harness.land()
    for pos in (100, 200):
        harness.topics.put("a", pos, "of another log")
    again = LandingHarness(tmp_path, names="a", topics=harness.topics)
    again.loop.recall_holds([stood])

    found = [[one.reason for one in report.holds] for report in land_batches(again, 2)]

    assert found == [held, held]


def test_f140_a_row_of_another_log_is_disorder_once_the_row_behind_it_shows_that(
    tmp_path: Path,
) -> None:
    harness = LandingHarness(tmp_path, names="a")
    for pos in (GIB4 - 500, GIB4 - 300):
        harness.topics.put("a", pos, f"at {pos}")
    harness.land()
    harness.topics.put("a", GIB4 - 400, "of another log")
    quiet = harness.land()
    harness.topics.put("a", GIB4 - 300, "of another log, too")

    held = harness.land()

    assert quiet.holds == ()
    assert [one.id for one in held.holds] == ["disorder:a:a.db.t:0:2@1"]


AT = datetime(2026, 1, 2, tzinfo=UTC)
A_ROW = (TopicPartition("a.db.t", 0), 7)
SERVER = Head("A", binlog_position(1, 0))
LISTING = Listing({}, {}, {"a.db.t": "a", "b.db.t": "b"}, {}, {})
DISORDER = Hold("disorder:a:a.db.t:0:7@1", "source:a", "disorder", "a row is out of order")


def context(**bent: Any) -> HoldContext:
    plain = HoldContext(Plan({}, {}, (), capped=False), LISTING, Epochs({}, {}), frozenset())
    return replace(plain, **bent)


def lost_with(topic: str) -> Plan:
    return Plan({}, {}, (Gap("g", topic, 0, 1, 9, "created_again"),), capped=False)


@pytest.mark.parametrize(
    ("bent", "due"),
    [
        pytest.param({}, False, id="nothing is new"),
        pytest.param({"chosen": lost_with("b.db.t")}, False, id="a gap of another source"),
        pytest.param({"chosen": lost_with("a.db.t")}, True, id="a gap of its own"),
        pytest.param({"waived": frozenset({"g"})}, True, id="a waiver"),
        pytest.param(
            {"epochs": Epochs({"a": Epoch(2, "A", binlog_position(1, 0))}, {})}, True, id="a log"
        ),
        pytest.param(
            {"listing": replace(LISTING, heads={"a": (SERVER, SERVER)})},
            True,
            id="its server answers",
        ),
        pytest.param(
            {"listing": replace(LISTING, heads={"b": (SERVER, SERVER)})},
            False,
            id="another server answers",
        ),
    ],
)
def test_a_held_source_is_read_again_once_something_that_may_free_it_is_new(
    bent: dict[str, Any], due: bool
) -> None:
    holds = SourceHolds()
    holds.judged({"a"}, {"a": DISORDER}, context(), AT)

    assert (holds.standing(context(**bent), AT) == {}) is due
    assert (holds.holds("a"), holds.holds("b")) == (True, False)


def test_a_source_that_was_free_is_held_no_more_and_waits_from_the_start_the_next_time() -> None:
    holds = SourceHolds()
    for _ in range(9):
        holds.judged({"a"}, {"a": DISORDER}, context(), AT)

    holds.judged({"a"}, {}, context(), AT)

    assert not holds.holds("a")
    holds.judged({"a"}, {"a": DISORDER}, context(), AT)
    assert holds.standing(context(), AT + FIRST_WAIT / 2) == {"a": DISORDER}
    assert holds.standing(context(), AT + FIRST_WAIT) == {}


@pytest.mark.parametrize(
    ("read", "found", "undecided", "waits"),
    [
        pytest.param({"a"}, {}, {A_ROW}, False, id="it is undecided still"),
        pytest.param({"a"}, {"a": DISORDER}, set(), False, id="its source is held"),
        pytest.param({"b"}, {}, set(), False, id="its source was not read"),
        pytest.param({"a"}, {}, set(), True, id="its source has gone on"),
    ],
)
def test_a_row_that_was_waited_for_is_forgotten_once_its_source_goes_on(
    read: set[str], found: dict[str, Hold], undecided: set[UndecidedRow], waits: bool
) -> None:
    holds = SourceHolds()
    assert holds.waits(A_ROW, AT)

    holds.judged(read, found, context(), AT, undecided)

    assert holds.waits(A_ROW, AT + RESENT) is waits


REGISTRY = SchemaRegistry("a", RegistrySettings("http://127.0.0.1:1"))


def given_up(holds: SourceHolds, source: str = "a") -> frozenset[int] | None:
    found = holds.registry(source, REGISTRY)
    assert found is not None
    return found.lost


def test_a_schema_is_given_up_only_after_its_registry_has_not_known_it_for_a_while() -> None:
    holds = SourceHolds()
    early, late = AT + PATIENCE / 2, AT + PATIENCE

    first = holds.no_schemas(NoSchemasError("a", "it knows no 7", frozenset({7})), AT)
    holds.no_schemas(NoSchemasError("a", "it knows no 8", frozenset({8})), early)
    before = given_up(holds)
    holds.no_schemas(NoSchemasError("a", "it knows no 7 and 8", frozenset({7, 8})), late)
    then = given_up(holds)
    holds.no_schemas(NoSchemasError("a", "it knows no 8", frozenset({8})), early + PATIENCE)

    assert (before, then) == (frozenset(), frozenset({7}))
    assert given_up(holds) == frozenset({7, 8})
    assert given_up(holds, "b") == frozenset()
    assert first.detail.endswith("and then quarantines messages whose schema is still unknown")
    assert holds.registry("a", None) is None


def test_a_registry_that_does_not_answer_gives_up_no_schema() -> None:
    holds = SourceHolds()

    for at in (AT, AT + PATIENCE):
        hold = holds.no_schemas(NoSchemasError("a", "no route"), at)

    assert given_up(holds) == frozenset()
    assert hold.detail == "no route; nothing is lost, landing resumes when the registry answers"


@pytest.mark.parametrize(
    ("read", "given"),
    [({"a"}, frozenset()), ({"b"}, frozenset({7}))],
    ids=["its own source", "another source"],
)
def test_only_a_source_that_goes_on_is_waited_for_from_the_start(
    read: set[str], given: frozenset[int]
) -> None:
    holds, unknown = SourceHolds(), NoSchemasError("a", "it knows no 7", frozenset({7}))
    holds.no_schemas(unknown, AT)

    holds.judged(read, {}, context(), AT)
    holds.no_schemas(unknown, AT + PATIENCE)

    assert given_up(holds) == given
