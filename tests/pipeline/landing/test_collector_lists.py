"""A table's rows were sent from its CREATE on, judged by lists that were seen before it."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from pipeline.checkpoint import Checkpoint, CollectorLists
from pipeline.landing.gaps import GRACE, captured, collected, detect_capture_changes, digest
from pipeline.model import CaptureScope, Order
from tests.builders import batch_context
from tests.pipeline.landing.desk import NOW, Desk, Server, place
from tests.pipeline.schema_messages import described, message

NAME = "a/db.t"
LEFT_OUT = frozenset({"db.t"})
SECOND = timedelta(seconds=1)
CREATE = "CREATE TABLE t"
PLACE = place("t", 5)
SNAPSHOT = {"snapshot": "true"}


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """One batch is landed, and ``db.t`` is left out."""
    made = Desk(tmp_path, server=Server(left_out=LEFT_OUT, end=2))
    made.topics.beat("a", 1, pos=2)
    made.land()
    return made


def later(desk: Desk, by: timedelta = SECOND, *, left_out: frozenset[str] = frozenset()) -> None:
    desk.now += by
    desk.server.left_out = left_out


def create(desk: Desk) -> None:
    desk.topics.alter("a", 5, "name", kind="CREATE")


def tell(desk: Desk, value: str) -> None:
    desk.topics.held.setdefault("a", []).append((b"{}", value.encode()))


def gaps(desk: Desk) -> list[tuple[str, tuple[str, ...]]]:
    return [(one.id, one.shards) for one in desk.gaps()]


def test_a_table_that_was_let_in_after_its_create_has_no_base(desk: Desk) -> None:
    """The rows before that were never sent, though those since then are."""
    create(desk)
    later(desk)
    desk.topics.put("a", 20, "one")

    desk.land()

    assert desk.checkpoint.bases == {}


def test_a_table_that_was_described_as_left_out_is_no_empty_one(desk: Desk) -> None:
    tell(desk, message(CREATE, described(CREATE, "t", "id BIGINT!"), source=PLACE | SNAPSHOT))
    later(desk)
    desk.topics.beat("a", 2, pos=30)

    desk.land()

    assert (desk.checkpoint.bases, desk.checkpoint.snaps) == ({}, {})


def settle(desk: Desk, after: timedelta = GRACE, *, end: int = 4) -> None:
    """The lists let all in, and time passes, until the source's log ends at *end*."""
    for number, by in ((2, SECOND), (3, after)):
        later(desk, by)
        desk.server.end = end
        desk.topics.beat("a", number, pos=number)
        desk.land()


@pytest.mark.parametrize(
    ("after", "based"),
    [
        pytest.param(GRACE - SECOND, False, id="the task may still go by the old ones"),
        pytest.param(GRACE, True, id="it does not any more"),
        pytest.param(-SECOND, False, id="the clock went back"),
    ],
)
def test_a_create_counts_once_the_lists_were_seen_for_a_while(
    desk: Desk, after: timedelta, *, based: bool
) -> None:
    settle(desk, after)
    create(desk)

    desk.land()

    assert (NAME in desk.checkpoint.bases) is based


@pytest.mark.parametrize(("end", "based"), [(4, True), (5, False), (6, False)])
def test_what_was_written_under_older_lists_may_land_far_later(
    desk: Desk, end: int, *, based: bool
) -> None:
    """A mirror was slow, or the source was held: rows after the CREATE were left out."""
    settle(desk, end=end)
    create(desk)
    desk.topics.put("a", 20, "one")
    later(desk, timedelta(hours=1))

    desk.land()

    assert (NAME in desk.checkpoint.bases) is based


def test_lists_do_not_count_before_the_server_says_where_its_log_ends() -> None:
    seen = CollectorLists(digest(ALL), NOW)
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
    ).lists["a"] == (CollectorLists(digest(ALL), above=Order(1, 2, 3)))


def test_a_restart_forgets_nothing_of_the_lists(desk: Desk) -> None:
    create(desk)
    later(desk)
    again = Desk(desk.home, desk.topics, desk.server, now=desk.now)

    again.land()

    assert again.checkpoint.bases == {}
    assert again.checkpoint.lists["a"].since == NOW + SECOND


def test_lists_that_are_seen_first_are_those_of_ever(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    create(desk)

    desk.land()

    assert NAME in desk.checkpoint.bases
    assert desk.checkpoint.lists["a"] == CollectorLists(digest(desk.server.captures()))


def test_rows_before_lists_that_are_seen_first_show_nothing(tmp_path: Path) -> None:
    """It was let in, or left out, at some time between."""
    desk = Desk(tmp_path, server=Server(left_out=LEFT_OUT))
    create(desk)
    desk.topics.put("a", 20, "one")

    desk.land()

    assert desk.checkpoint.bases == {}


@pytest.fixture
def based(tmp_path: Path) -> Desk:
    """``db.t`` has its base and a row."""
    made = Desk(tmp_path)
    create(made)
    made.topics.put("a", 20, "one")
    made.land()
    assert NAME in made.checkpoint.bases
    return made


def test_a_table_that_is_left_out_from_now_on_is_a_gap_that_its_next_base_closes(
    based: Desk,
) -> None:
    """What is written to it meanwhile is not sent, and heartbeats are."""
    later(based, left_out=LEFT_OUT)
    based.topics.beat("a", 1, pos=30)
    based.land()
    out = gaps(based)
    later(based, GRACE)
    based.topics.beat("a", 2, pos=40)
    based.land()
    still = gaps(based)
    based.topics.snapshot("a", 50, 2)
    based.topics.beat("a", 3, pos=60)
    based.land()

    assert out == still == [("lists:a:0:1@1", (NAME,))]
    assert gaps(based) == []


@pytest.mark.parametrize("silent", [False, True])
def test_a_base_that_becomes_complete_after_its_table_was_left_out_is_short(
    tmp_path: Path, *, silent: bool
) -> None:
    """Its snapshot was over, or landed late: what is written to the table since is not sent."""
    desk = Desk(tmp_path)
    desk.topics.snapshot("a", 50, 2)
    desk.land()
    later(desk, left_out=LEFT_OUT)
    desk.topics.beat("a", 1, pos=40)
    desk.land()
    assert (gaps(desk), desk.checkpoint.bases) == ([], {}), "nobody relies on it yet"
    for number in (2, 3):
        desk.server.silent = silent and number == 2
        later(desk, left_out=LEFT_OUT)
        desk.topics.beat("a", number, pos=50 + number)
        desk.land()

    assert gaps(desk) == [(f"lists:a:0:{2 + silent}@{2 + silent}", (NAME,))]


def test_a_base_of_the_time_in_which_a_collector_was_silent_needs_lists_that_stayed(
    tmp_path: Path,
) -> None:
    seen = {}
    for name, left_out in (("stayed", frozenset[str]()), ("other", frozenset({"db.x"}))):
        desk = Desk(tmp_path / name)
        desk.topics.beat("a", 1, pos=2)
        desk.land()
        desk.server.silent = True
        create(desk)
        desk.land()
        assert NAME in desk.checkpoint.bases, "by what it told last"
        desk.server.silent = False
        later(desk, left_out=left_out)
        desk.topics.beat("a", 2, pos=40)
        desk.land()
        seen[name] = gaps(desk)

    assert seen == {"stayed": [], "other": [("lists:a:0:2@2", (NAME,))]}


def test_what_a_collector_told_before_and_after_it_was_silent_stands(based: Desk) -> None:
    """Neither a base from before the silence is in doubt, nor one from after it."""
    for silent in (True, False):
        based.server.silent = silent
        later(based)
        based.topics.beat("a", 2 - silent, pos=40 - 10 * silent)
        based.land()
    based.server.silent = True
    based.topics.beat("a", 3, pos=50)
    based.land()
    based.server.silent = False
    later(based, left_out=frozenset({"db.x"}))
    based.topics.beat("a", 4, pos=60)
    based.land()

    assert gaps(based) == []
    assert based.checkpoint.lists["a"].unseen == -1


def test_a_base_after_the_silence_is_in_no_doubt(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    for silent in (False, True, False):
        desk.server.silent = silent
        beats = len(desk.topics.held.get("a.sluice.heartbeat", ()))
        desk.topics.beat("a", beats, pos=10 + 10 * beats)
        desk.land()
    desk.topics.snapshot("a", 40, 2)
    desk.topics.beat("a", 3, pos=50)
    desk.land()
    assert NAME in desk.checkpoint.bases
    later(desk, left_out=frozenset({"db.x"}))
    desk.topics.beat("a", 4, pos=60)

    desk.land()

    assert gaps(desk) == []


def test_nothing_is_acknowledged_of_a_source_whose_lists_are_not_told(desk: Desk) -> None:
    """Or a table that was left out a moment ago would be proven complete."""
    desk.topics.beat("a", 2, pos=10)
    desk.land()
    before = desk.checkpoint.acknowledged["a"]
    desk.server.silent = True
    desk.server.log = 8
    desk.topics.beat("a", 3, pos=20, log=8)
    desk.land()
    unheard = desk.checkpoint.acknowledged["a"]
    desk.server.silent = False
    desk.topics.beat("a", 4, pos=30, log=8)
    desk.land()

    assert unheard == before
    assert desk.checkpoint.acknowledged["a"] == desk.server.acknowledged() != before


ALL, SOME = CaptureScope(lambda _: True, "all"), CaptureScope(lambda _: True, "some")


@pytest.mark.parametrize(
    ("known", "now", "last", "found"),
    [
        pytest.param(None, ALL, None, ALL, id="seen first"),
        pytest.param(None, None, ALL, None, id="silent from the first on"),
        pytest.param(CollectorLists(digest(ALL)), ALL, None, ALL, id="as ever"),
        pytest.param(CollectorLists(digest(ALL)), SOME, ALL, None, id="others"),
        pytest.param(CollectorLists(digest(ALL)), None, ALL, ALL, id="silent, told before"),
        pytest.param(CollectorLists(digest(ALL)), None, SOME, None, id="silent, others before"),
        pytest.param(CollectorLists(digest(ALL)), None, None, None, id="silent in this life"),
        pytest.param(CollectorLists(digest(ALL), NOW), ALL, None, None, id="just changed"),
    ],
)
def test_which_lists_a_batch_was_sent_by(
    known: CollectorLists | None,
    now: CaptureScope | None,
    last: CaptureScope | None,
    found: CaptureScope | None,
) -> None:
    assert collected(known, now, last) is found


def test_rows_show_what_lists_that_nobody_can_read_do_not() -> None:
    nothing = CaptureScope(lambda _: False, "(", known=False)

    assert captured(nothing, [NAME, "a/db.u"], [NAME], first=True) == {NAME}
    assert captured(replace(nothing, known=True), [NAME], [NAME], first=True) == set()


def test_a_mark_tells_lists_as_they_were() -> None:
    lists = {"a": CollectorLists("d", NOW, 7), "b": CollectorLists("e")}
    checkpoint = Checkpoint("main", 3, lists=lists)

    assert Checkpoint.loads(checkpoint.dumps()).lists == lists
