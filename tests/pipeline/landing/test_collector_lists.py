"""A table's rows were sent from its CREATE on, judged by lists that were seen before it."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from pipeline.checkpoint import Checkpoint, CollectorLists
from pipeline.landing.gaps import (
    GRACE,
    detect_capture_changes,
    digest_scope,
    find_captured,
    find_collected,
)
from pipeline.model import CaptureScope, Order, Shard
from tests.builders import batch_context
from tests.builders.harness import NOW, LandingHarness, Server, place
from tests.pipeline.schema_messages import described, message

NAME = "a/db.t"
LEFT_OUT = frozenset({"db.t"})
SECOND = timedelta(seconds=1)
CREATE = "CREATE TABLE t"
PLACE = place("t", 5)
SNAPSHOT = {"snapshot": "true"}


@pytest.fixture
def harness(tmp_path: Path) -> LandingHarness:
    """One batch is landed, and ``db.t`` is left out."""
    made = LandingHarness(tmp_path, server=Server(left_out=LEFT_OUT, end=2))
    made.topics.write_heartbeat("a", 1, pos=2)
    made.land()
    return made


def later(
    harness: LandingHarness, by: timedelta = SECOND, *, left_out: frozenset[str] = frozenset()
) -> None:
    harness.now += by
    harness.server.left_out = left_out


def create(harness: LandingHarness) -> None:
    harness.topics.alter("a", 5, "name", kind="CREATE")


def tell(harness: LandingHarness, value: str) -> None:
    harness.topics.held.setdefault("a", []).append((b"{}", value.encode()))


def gaps(harness: LandingHarness) -> list[tuple[str, tuple[str, ...]]]:
    return [(one.id, one.shards) for one in harness.gaps()]


def test_a_table_that_was_let_in_after_its_create_has_no_base(harness: LandingHarness) -> None:
    """The rows before that were never sent, though those since then are."""
    create(harness)
    later(harness)
    harness.topics.put("a", 20, "one")

    harness.land()

    assert harness.checkpoint.bases == {}


def test_a_table_that_was_described_as_left_out_is_no_empty_one(harness: LandingHarness) -> None:
    tell(harness, message(CREATE, described(CREATE, "t", "id BIGINT!"), source=PLACE | SNAPSHOT))
    later(harness)
    harness.topics.write_heartbeat("a", 2, pos=30)

    harness.land()

    assert (harness.checkpoint.bases, harness.checkpoint.snaps) == ({}, {})


def settle(harness: LandingHarness, after: timedelta = GRACE, *, end: int = 4) -> None:
    """The lists let all in, and time passes, until the source's log ends at *end*."""
    for number, by in ((2, SECOND), (3, after)):
        later(harness, by)
        harness.server.end = end
        harness.topics.write_heartbeat("a", number, pos=number)
        harness.land()


@pytest.mark.parametrize(
    ("after", "based"),
    [
        pytest.param(GRACE - SECOND, False, id="the task may still go by the old ones"),
        pytest.param(GRACE, True, id="it does not any more"),
        pytest.param(-SECOND, False, id="the clock went back"),
    ],
)
def test_a_create_counts_once_the_lists_were_seen_for_a_while(
    harness: LandingHarness, after: timedelta, *, based: bool
) -> None:
    settle(harness, after)
    create(harness)

    harness.land()

    assert (Shard.parse(NAME) in harness.checkpoint.bases) is based


@pytest.mark.parametrize(("end", "based"), [(4, True), (5, False), (6, False)])
def test_what_was_written_under_older_lists_may_land_far_later(
    harness: LandingHarness, end: int, *, based: bool
) -> None:
    """A mirror was slow, or the source was held: rows after the CREATE were left out."""
    settle(harness, end=end)
    create(harness)
    harness.topics.put("a", 20, "one")
    later(harness, timedelta(hours=1))

    harness.land()

    assert (Shard.parse(NAME) in harness.checkpoint.bases) is based


def test_lists_do_not_count_before_the_server_says_where_its_log_ends() -> None:
    seen = CollectorLists(digest_scope(ALL), NOW)
    before = Checkpoint("main", 3, lists={"a": seen})
    made = replace(before, batch=4)

    assert (
        detect_capture_changes(
            made, batch_context(before, captures={"a": ALL}, at=NOW + GRACE)
        ).lists["a"]
        == seen
    )
    assert detect_capture_changes(
        made, batch_context(before, captures={"a": ALL}, ends={"a": Order(1, 2, 3)}, at=NOW + GRACE)
    ).lists["a"] == (CollectorLists(digest_scope(ALL), above=Order(1, 2, 3)))


def test_a_restart_forgets_nothing_of_the_lists(harness: LandingHarness) -> None:
    create(harness)
    later(harness)
    again = LandingHarness(harness.home, harness.topics, harness.server, now=harness.now)

    again.land()

    assert again.checkpoint.bases == {}
    assert again.checkpoint.lists["a"].since == NOW + SECOND


def test_lists_that_are_seen_first_are_those_of_ever(tmp_path: Path) -> None:
    harness = LandingHarness(tmp_path)
    create(harness)

    harness.land()

    assert Shard.parse(NAME) in harness.checkpoint.bases
    assert harness.checkpoint.lists["a"] == CollectorLists(digest_scope(harness.server.captures()))


def test_rows_before_lists_that_are_seen_first_show_nothing(tmp_path: Path) -> None:
    """It was let in, or left out, at some time between."""
    harness = LandingHarness(tmp_path, server=Server(left_out=LEFT_OUT))
    create(harness)
    harness.topics.put("a", 20, "one")

    harness.land()

    assert harness.checkpoint.bases == {}


@pytest.fixture
def based(tmp_path: Path) -> LandingHarness:
    """``db.t`` has its base and a row."""
    made = LandingHarness(tmp_path)
    create(made)
    made.topics.put("a", 20, "one")
    made.land()
    assert Shard.parse(NAME) in made.checkpoint.bases
    return made


def test_a_table_that_is_left_out_from_now_on_is_a_gap_that_its_next_base_closes(
    based: LandingHarness,
) -> None:
    """What is written to it meanwhile is not sent, and heartbeats are."""
    later(based, left_out=LEFT_OUT)
    based.topics.write_heartbeat("a", 1, pos=30)
    based.land()
    out = gaps(based)
    later(based, GRACE)
    based.topics.write_heartbeat("a", 2, pos=40)
    based.land()
    still = gaps(based)
    based.topics.snapshot("a", 50, 2)
    based.topics.write_heartbeat("a", 3, pos=60)
    based.land()

    assert out == still == [("lists:a:0:1@1", (NAME,))]
    assert gaps(based) == []


@pytest.mark.parametrize("silent", [False, True])
def test_a_base_that_becomes_complete_after_its_table_was_left_out_is_short(
    tmp_path: Path, *, silent: bool
) -> None:
    """Its snapshot was over, or landed late: what is written to the table since is not sent."""
    harness = LandingHarness(tmp_path)
    harness.topics.snapshot("a", 50, 2)
    harness.land()
    later(harness, left_out=LEFT_OUT)
    harness.topics.write_heartbeat("a", 1, pos=40)
    harness.land()
    assert (gaps(harness), harness.checkpoint.bases) == ([], {}), "nobody relies on it yet"
    for number in (2, 3):
        harness.server.silent = silent and number == 2
        later(harness, left_out=LEFT_OUT)
        harness.topics.write_heartbeat("a", number, pos=50 + number)
        harness.land()

    assert gaps(harness) == [(f"lists:a:0:{2 + silent}@{2 + silent}", (NAME,))]


def test_a_base_of_the_time_in_which_a_collector_was_silent_needs_lists_that_stayed(
    tmp_path: Path,
) -> None:
    seen = {}
    for name, left_out in (("stayed", frozenset[str]()), ("other", frozenset({"db.x"}))):
        harness = LandingHarness(tmp_path / name)
        harness.topics.write_heartbeat("a", 1, pos=2)
        harness.land()
        harness.server.silent = True
        create(harness)
        harness.land()
        assert Shard.parse(NAME) in harness.checkpoint.bases, "by what it told last"
        harness.server.silent = False
        later(harness, left_out=left_out)
        harness.topics.write_heartbeat("a", 2, pos=40)
        harness.land()
        seen[name] = gaps(harness)

    assert seen == {"stayed": [], "other": [("lists:a:0:2@2", (NAME,))]}


def test_what_a_collector_told_before_and_after_it_was_silent_stands(based: LandingHarness) -> None:
    """Neither a base from before the silence is in doubt, nor one from after it."""
    for silent in (True, False):
        based.server.silent = silent
        later(based)
        based.topics.write_heartbeat("a", 2 - silent, pos=40 - 10 * silent)
        based.land()
    based.server.silent = True
    based.topics.write_heartbeat("a", 3, pos=50)
    based.land()
    based.server.silent = False
    later(based, left_out=frozenset({"db.x"}))
    based.topics.write_heartbeat("a", 4, pos=60)
    based.land()

    assert gaps(based) == []
    assert based.checkpoint.lists["a"].unseen == -1


def test_a_base_after_the_silence_is_in_no_doubt(tmp_path: Path) -> None:
    harness = LandingHarness(tmp_path)
    for silent in (False, True, False):
        harness.server.silent = silent
        beats = len(harness.topics.held.get("a.sluice.heartbeat", ()))
        harness.topics.write_heartbeat("a", beats, pos=10 + 10 * beats)
        harness.land()
    harness.topics.snapshot("a", 40, 2)
    harness.topics.write_heartbeat("a", 3, pos=50)
    harness.land()
    assert Shard.parse(NAME) in harness.checkpoint.bases
    later(harness, left_out=frozenset({"db.x"}))
    harness.topics.write_heartbeat("a", 4, pos=60)

    harness.land()

    assert gaps(harness) == []


def test_nothing_is_acknowledged_of_a_source_whose_lists_are_not_told(
    harness: LandingHarness,
) -> None:
    """Or a table that was left out a moment ago would be proven complete."""
    harness.topics.write_heartbeat("a", 2, pos=10)
    harness.land()
    before = harness.checkpoint.acknowledged["a"]
    harness.server.silent = True
    harness.server.log = 8
    harness.topics.write_heartbeat("a", 3, pos=20, log=8)
    harness.land()
    unheard = harness.checkpoint.acknowledged["a"]
    harness.server.silent = False
    harness.topics.write_heartbeat("a", 4, pos=30, log=8)
    harness.land()

    assert unheard == before
    assert harness.checkpoint.acknowledged["a"] == harness.server.acknowledged() != before


ALL, SOME = CaptureScope(lambda _: True, "all"), CaptureScope(lambda _: True, "some")


@pytest.mark.parametrize(
    ("known", "now", "last", "found"),
    [
        pytest.param(None, ALL, None, ALL, id="seen first"),
        pytest.param(None, None, ALL, None, id="silent from the first on"),
        pytest.param(CollectorLists(digest_scope(ALL)), ALL, None, ALL, id="as ever"),
        pytest.param(CollectorLists(digest_scope(ALL)), SOME, ALL, None, id="others"),
        pytest.param(CollectorLists(digest_scope(ALL)), None, ALL, ALL, id="silent, told before"),
        pytest.param(
            CollectorLists(digest_scope(ALL)), None, SOME, None, id="silent, others before"
        ),
        pytest.param(CollectorLists(digest_scope(ALL)), None, None, None, id="silent in this life"),
        pytest.param(CollectorLists(digest_scope(ALL), NOW), ALL, None, None, id="just changed"),
    ],
)
def test_which_lists_a_batch_was_sent_by(
    known: CollectorLists | None,
    now: CaptureScope | None,
    last: CaptureScope | None,
    found: CaptureScope | None,
) -> None:
    assert find_collected(known, now, last) is found


def test_rows_show_what_lists_that_nobody_can_read_do_not() -> None:
    nothing = CaptureScope(lambda _: False, "(", known=False)

    assert find_captured(nothing, [NAME, "a/db.u"], [NAME], first=True) == {NAME}
    assert find_captured(replace(nothing, known=True), [NAME], [NAME], first=True) == set()


def test_a_mark_tells_lists_as_they_were() -> None:
    lists = {"a": CollectorLists("d", NOW, 7), "b": CollectorLists("e")}
    checkpoint = Checkpoint("main", 3, lists=lists)

    assert Checkpoint.loads(checkpoint.dumps()).lists == lists
