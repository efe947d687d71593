"""Epochs by the servers' heads, and what is explained by a new one."""

from dataclasses import replace
from typing import Any

import pytest

from pipeline.checkpoint import Checkpoint, Epoch, EpochStart
from pipeline.landing.epochs import (
    EPOCH_ALONE,
    Epochs,
    UnrecordedEpochs,
    begin_at_snapshots,
    explain_strange_rows,
    find_resending,
    follow_heads,
)
from pipeline.landing.listing import Listing
from pipeline.model import Head, Order, PartitionEnd, TopicPartition
from pipeline.sources.mysql.position import binlog_position
from tests.builders.values import NOON

UUID, OTHER = "11111111-1111-1111-1111-111111111111", "22222222-2222-2222-2222-222222222222"
TP, SECOND, FOREIGN = (TopicPartition(*at) for at in (("s.t", 0), ("s.t", 1), ("b.t", 0)))
SAME, NEW = Head(UUID, binlog_position(5, 900)), Head(OTHER, binlog_position(1, 4))
KNOWN = Epoch(2, UUID, binlog_position(5, 800))
MARK = Checkpoint(
    "main", 3, epochs={"s": KNOWN}, heartbeats={"s": 40}, starts={EpochStart("s", 2, TP): 10}
)


def start(number: int, at: TopicPartition) -> EpochStart:
    return EpochStart("s", number, at)


def listed(**heads: tuple[Head, Head]) -> Listing:
    ends = {TP: PartitionEnd(50), SECOND: PartitionEnd(60), FOREIGN: PartitionEnd(70)}
    return Listing(heads, {}, {"s.t": "s", "b.t": "b"}, {}, ends)


@pytest.mark.parametrize(
    ("heads", "number", "begins"),
    [
        pytest.param((SAME, SAME), 2, {}, id="the same log goes on"),
        pytest.param((NEW, NEW), 3, {TP: 50, SECOND: 60}, id="another server"),
        pytest.param((SAME, NEW), 3, {TP: 50, SECOND: 60}, id="another while the ends were listed"),
    ],
)
def test_a_new_epoch_begins_at_the_ends_of_its_own_source_s_partitions(
    heads: tuple[Head, Head], number: int, begins: dict[TopicPartition, int]
) -> None:
    """Rows before them that are still to be read belong to the log before."""
    found = follow_heads(MARK, listed(s=heads))

    assert found.number("s") == number
    assert found.starts == {start(2, TP): 10} | {start(3, at): n for at, n in begins.items()}


def test_a_source_that_does_not_answer_keeps_its_epoch_and_one_never_reached_is_in_its_first() -> (
    None
):
    found = follow_heads(MARK, listed())

    assert (found.known, found.number("b")) == ({"s": KNOWN}, 1)
    assert follow_heads(Checkpoint("main", -1), listed(s=(SAME, SAME))).known["s"].number == 1


def test_a_server_replaced_before_any_heartbeat_has_landed_may_send_all_again() -> None:
    """Else what it sends again is disorder, and its source is held."""
    checkpoint = replace(MARK, heartbeats={})

    assert find_resending(checkpoint, follow_heads(checkpoint, listed(s=(NEW, NEW))).known) == {"s"}


MOVED = Epochs({"s": KNOWN}, {start(2, TP): 10})


@pytest.mark.parametrize(
    ("offset", "begins"),
    [
        pytest.param(9, 9, id="just before its start: of the new log, which begins there"),
        pytest.param(10, None, id="at its start: it is known to be of the new log"),
        pytest.param(11, None, id="after its start"),
    ],
)
def test_a_new_log_explains_only_what_stands_before_its_start(
    offset: int, begins: int | None
) -> None:
    """What is explained is written once more: anything else would be written for ever."""
    found, held = explain_strange_rows(MOVED, listed(s=(SAME, SAME)), {TP: offset}, frozenset())

    assert found.starts[start(2, TP)] == (begins or 10)
    assert (held == {}) is (begins is not None)


def test_in_a_partition_that_is_all_of_the_newest_epoch_nothing_is_explained() -> None:
    found, held = explain_strange_rows(MOVED, listed(s=(SAME, SAME)), {SECOND: 0}, frozenset())

    assert found == MOVED
    assert held["s"].id == f"disorder:s:{SECOND}:0@2"
    assert held["s"].subject == "source:s"


def test_a_hold_says_whether_the_server_answers() -> None:
    """It was replaced, perhaps: who is asked to waive has to know."""
    told = [
        explain_strange_rows(MOVED, listing, {SECOND: 0}, frozenset())[1]["s"].detail
        for listing in (listed(s=(SAME, SAME)), listed())
    ]

    assert ["server is still the same" in one for one in told] == [True, False]
    assert ["server does not answer" in one for one in told] == [False, True]


def test_f140_a_hold_names_the_bound_above_which_nobody_asks_what_a_broker_refused() -> None:
    told = [
        explain_strange_rows(MOVED, listed(), {SECOND: 0}, frozenset(), bounds)[1]["s"].detail
        for bounds in ({SECOND: "20 such rows in a row are more than 10"}, {TP: "of another"})
    ]

    assert (
        "20 such rows in a row are more than 10 that are known not to be of another log" in told[0]
    )
    assert "take a new base" in told[0]
    assert "of another" not in told[1]


def test_what_a_person_waives_is_taken_for_a_new_log_from_its_row_on() -> None:
    waived = frozenset({f"disorder:s:{SECOND}:7@2"})

    found, held = explain_strange_rows(MOVED, listed(s=(SAME, SAME)), {SECOND: 7}, waived)

    assert held == {}
    assert found.known == {"s": replace(KNOWN, number=3)}
    assert found.starts == {start(2, TP): 10, start(3, TP): 50, start(3, SECOND): 7}


def test_all_that_is_waived_of_a_source_is_one_new_log() -> None:
    waived = frozenset({f"disorder:s:{TP}:12@2", f"disorder:s:{SECOND}:7@2"})
    strange = {TP: 12, SECOND: 7}

    found, held = explain_strange_rows(MOVED, listed(s=(SAME, SAME)), strange, waived)

    assert held == {}
    assert found.known == {"s": replace(KNOWN, number=3)}
    assert found.starts == {start(2, TP): 10, start(3, TP): 12, start(3, SECOND): 7}


def test_a_new_epoch_is_recorded_without_rows_once_it_has_waited_for_them() -> None:
    unrecorded, moved = UnrecordedEpochs(), {"s": replace(KNOWN, number=3)}
    middle, end = NOON + EPOCH_ALONE / 2, NOON + EPOCH_ALONE

    due = [unrecorded.are_due(NOON)]
    for at in (NOON, middle, end):
        unrecorded.note(MARK.epochs, moved, at)
        due.append(unrecorded.are_due(at))
    unrecorded.note(moved, moved, end)
    due.append(unrecorded.are_due(end + EPOCH_ALONE))

    assert due == [False, False, False, True, False]


def test_before_its_server_was_reached_a_source_is_held_whatever_is_waived() -> None:
    waived = frozenset({f"disorder:s:{TP}:7@1"})

    found, held = explain_strange_rows(Epochs({}, {}), listed(), {TP: 7}, waived)

    assert (found, list(held)) == (Epochs({}, {}), ["s"])


NEW_LOG = Epochs(
    {"a": Epoch(2, "B", binlog_position(1, 200), 5)},
    {EpochStart("a", 2, TopicPartition("a", 0)): 10},
)


@pytest.mark.parametrize(
    ("row", "top", "first"),
    [
        pytest.param({}, Order(1, 9, 5_000, 0), 7, id="a snapshot's, below what has landed"),
        pytest.param({"snapshot": None}, Order(1, 9, 5_000, 0), 10, id="a live one"),
        pytest.param({"log": None, "pos": None}, Order(1, 9, 5_000, 0), 10, id="without order"),
        pytest.param({}, Order(1, 9, 4_000, 0), 10, id="at what has landed"),
        pytest.param({}, Order(2, 9, 5_000, 0), 10, id="more of the new epoch has landed"),
        pytest.param({"epoch": 2}, Order(2, 9, 5_000, 0), 10, id="of the new epoch already"),
        pytest.param({}, None, 10, id="nothing of its source has landed"),
    ],
)
def test_only_statements_of_a_snapshot_that_go_back_begin_the_new_epoch_earlier(
    row: dict[str, Any], top: Order | None, first: int
) -> None:
    known = {"source": "a", "topic": "a", "partition": 0, "offset": 7, "snapshot": 1}
    order = {"epoch": 1, "log": 9, "pos": 4_000, "row": 0}

    made = begin_at_snapshots(NEW_LOG, [known | order | row], {"a": top} if top else {})

    assert list(made.starts.values()) == [first]
