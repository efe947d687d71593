"""What a collector has acknowledged counts only of the log that is read, and once W has passed."""

from dataclasses import dataclass, field, replace

import pytest

from pipeline.checkpoint import Checkpoint, Epoch
from pipeline.landing.listing import Acknowledgements, Listing, Promise
from pipeline.landing.plan import Plan
from pipeline.model import Acknowledged, Head, PartitionEnd, TopicPartition
from pipeline.sources.mysql.position import binlog_position

OLD, NEW = "11111111-1111-1111-1111-111111111111", "22222222-2222-2222-2222-222222222222"
TP = TopicPartition("s.t", 0)
OTHERS = TopicPartition("o.t", 0)
HEAD = Head(NEW, binlog_position(5, 500))
SAID = Acknowledged(binlog_position(5, 400))
FIRST = Epoch(1, NEW, binlog_position(5, 500))


@dataclass(eq=False)
class LandingHarness:
    """Rounds of one source with one partition; W goes where it is told."""

    epoch: Epoch = FIRST
    known: bool = True
    checkpoint: Checkpoint = field(
        default_factory=lambda: Checkpoint("main", 3, epochs={"s": FIRST})
    )
    counts: Acknowledgements = field(default_factory=Acknowledgements)
    others: dict[TopicPartition, PartitionEnd] = field(default_factory=dict)

    def round(
        self,
        said: Acknowledged | None,
        end: PartitionEnd | None,
        w: int,
        *,
        head: Head | None = HEAD,
        before: Head | None = None,
    ) -> Acknowledged | None:
        """What counts after a round; *before* is the head before the listing, if another."""
        ends = {} if end is None else {TP: end}
        listing = Listing(
            heads={} if head is None else {"s": (before or head, head)},
            acknowledged={} if said is None else {"s": said},
            source_of={"s.t": "s", OTHERS.topic: "o"},
            beginnings={},
            ends=ends | self.others,
        )
        offsets = {tp: replace(e, offset=w) for tp, e in ends.items()}
        chosen = Plan({}, offsets, (), capped=False)
        epochs = {"s": self.epoch} if self.known else {}
        return self.counts.passed(listing, chosen, self.checkpoint, epochs).get("s")


def partition_end(offset: int, topic_id: str = "id") -> PartitionEnd:
    return PartitionEnd(offset, topic_id)


def test_what_was_said_before_a_listing_counts_once_w_has_passed_its_ends() -> None:
    harness = LandingHarness()

    assert harness.round(SAID, partition_end(10), 9) is None
    assert harness.round(Acknowledged(binlog_position(5, 450)), partition_end(20), 10) == SAID
    assert harness.round(
        Acknowledged(binlog_position(5, 450)), partition_end(20), 20
    ) == Acknowledged(binlog_position(5, 450))


def test_a_source_that_moved_forgets_what_was_said_of_the_log_before() -> None:
    harness = LandingHarness()
    harness.round(SAID, partition_end(10), 9)
    harness.epoch = replace(FIRST, number=2)

    assert harness.round(SAID, partition_end(10), 10) is None


def test_f04_an_acknowledgement_above_the_head_is_refused() -> None:
    assert (
        LandingHarness().round(Acknowledged(binlog_position(5, 501)), partition_end(10), 10) is None
    )


def test_f04_without_an_answer_of_the_server_its_highest_head_known_decides() -> None:
    harness = LandingHarness()

    assert (
        harness.round(Acknowledged(binlog_position(5, 501)), partition_end(10), 10, head=None)
        is None
    )
    assert harness.round(SAID, partition_end(10), 10, head=None) == SAID


def test_f04_without_gtids_only_the_second_word_in_a_new_log_counts() -> None:
    """The first may still be the old server's, with a position that is likely here too."""
    harness = LandingHarness(epoch=Epoch(2, NEW, binlog_position(5, 500), heartbeat=40))
    harness.checkpoint = Checkpoint("main", 3, epochs={"s": harness.epoch}, heartbeats={"s": 40})

    early = harness.round(SAID, partition_end(10), 10)
    final = harness.round(Acknowledged(binlog_position(5, 410)), partition_end(10), 10)
    harness.checkpoint = replace(harness.checkpoint, heartbeats={"s": 41})
    first = harness.round(Acknowledged(binlog_position(5, 410)), partition_end(10), 10)
    same = harness.round(Acknowledged(binlog_position(5, 410)), partition_end(10), 10)
    other = harness.round(Acknowledged(binlog_position(5, 420)), partition_end(10), 10)
    harness.checkpoint = replace(
        harness.checkpoint, acknowledged={"s": Acknowledged(binlog_position(5, 420))}
    )
    again = harness.round(Acknowledged(binlog_position(5, 410)), partition_end(10), 10)

    assert [early, final, first, same] == [None, None, None, None]
    assert other == Acknowledged(binlog_position(5, 420))
    assert again == Acknowledged(binlog_position(5, 410)), "what is known once needs no second word"


def test_f04_with_gtids_the_first_word_counts_for_what_it_names() -> None:
    executed = f"{OLD}:1-9,{NEW}:1-3"
    harness = LandingHarness(epoch=Epoch(2, NEW, binlog_position(5, 500, executed), heartbeat=40))
    harness.checkpoint = Checkpoint("main", 3, epochs={"s": harness.epoch})

    said = Acknowledged(binlog_position(5, 400, f"{OLD}:1-9"))

    assert (
        harness.round(
            said, partition_end(10), 10, head=Head(NEW, binlog_position(5, 500, executed))
        )
        == said
    )


@pytest.mark.parametrize(
    ("said", "head"),
    [
        pytest.param("", f"{OLD}:1-9,{NEW}:1-3", id="the collector names none"),
        pytest.param(f"{OLD}:1-9", "", id="the server names none"),
    ],
)
def test_f04_one_side_that_names_its_transactions_is_not_enough(said: str, head: str) -> None:
    harness = LandingHarness(epoch=Epoch(2, NEW, binlog_position(5, 500, head), heartbeat=40))
    harness.checkpoint = Checkpoint("main", 3, epochs={"s": harness.epoch}, heartbeats={"s": 41})
    first = Acknowledged(binlog_position(5, 400, said))

    assert (
        harness.round(first, partition_end(10), 10, head=Head(NEW, binlog_position(5, 500, head)))
        is None
    )


@pytest.mark.parametrize(
    ("other", "broken"),
    [
        pytest.param(partition_end(10), False, id="both as they were"),
        pytest.param(partition_end(11), False, id="one goes on"),
        pytest.param(partition_end(9), True, id="one cut off by one"),
        pytest.param(partition_end(10, "new"), True, id="one created anew, and grown to it"),
        pytest.param(None, True, id="one gone"),
    ],
)
def test_f24_one_partition_that_cannot_be_passed_breaks_a_promise_of_several(
    other: PartitionEnd | None, broken: bool
) -> None:
    promise = Promise(SAID, {TP: partition_end(10), OTHERS: partition_end(10)})

    assert promise.broken({TP: partition_end(10)} | ({OTHERS: other} if other else {})) is broken


@pytest.mark.parametrize(
    "now",
    [
        pytest.param(partition_end(2, "new"), id="created anew"),
        pytest.param(partition_end(30, "new"), id="created anew, and grown past it"),
        pytest.param(partition_end(8), id="cut off below it"),
        pytest.param(None, id="gone"),
    ],
)
def test_f24_a_promise_that_cannot_be_kept_is_made_anew(now: PartitionEnd | None) -> None:
    harness = LandingHarness()
    harness.round(SAID, partition_end(10), 5)
    later = Acknowledged(binlog_position(5, 450))

    assert harness.round(later, now, 0 if now is None else now.offset) == later


def test_f24_made_anew_it_waits_for_the_ends_there_are_then() -> None:
    harness = LandingHarness()
    harness.round(SAID, partition_end(10), 5)

    assert harness.round(SAID, partition_end(12, "new"), 11) is None
    assert harness.round(SAID, partition_end(12, "new"), 12) == SAID


def test_a_promise_waits_while_nothing_more_is_said() -> None:
    harness = LandingHarness()
    harness.round(SAID, partition_end(10), 9)

    assert harness.round(None, partition_end(11), 10) == SAID


def test_what_another_source_has_to_land_keeps_nobody_waiting() -> None:
    harness = LandingHarness(others={OTHERS: partition_end(99)})

    assert harness.round(SAID, partition_end(10), 10) == SAID


@pytest.mark.parametrize(
    ("before", "after", "counts"),
    [
        pytest.param(399, 400, True, id="written while ends were listed"),
        pytest.param(500, 399, False, id="above a log that was reset meanwhile"),
    ],
)
def test_f04_the_head_that_was_read_last_decides(before: int, after: int, counts: bool) -> None:
    heads = (Head(NEW, binlog_position(5, before)), Head(NEW, binlog_position(5, after)))

    found = LandingHarness().round(SAID, partition_end(10), 10, before=heads[0], head=heads[1])

    assert (found == SAID) is counts


def test_of_a_source_whose_epoch_is_new_or_not_known_nothing_counts() -> None:
    """What was said may be of the log before."""
    new = LandingHarness(checkpoint=Checkpoint("main", 3))
    unknown = LandingHarness(known=False)

    assert new.round(SAID, partition_end(10), 10) is None
    assert unknown.round(SAID, partition_end(10), 10) is None


def test_what_counted_once_is_told_once() -> None:
    harness = LandingHarness()
    harness.round(SAID, partition_end(10), 10)

    assert harness.round(None, partition_end(10), 10) is None


def test_a_partition_that_w_does_not_know_is_not_passed() -> None:
    harness = LandingHarness()
    ends = {TP: partition_end(10)}
    listing = Listing({"s": (HEAD, HEAD)}, {"s": SAID}, {"s.t": "s"}, {}, ends)
    unread = Plan({}, {}, (), capped=False)

    assert harness.counts.passed(listing, unread, harness.checkpoint, {"s": FIRST}) == {}


def test_f04_each_new_log_needs_a_second_word_of_its_own() -> None:
    """What was said first of one log is not the first word of the next."""
    harness = LandingHarness(epoch=Epoch(2, NEW, binlog_position(5, 500), heartbeat=40))
    found = []
    for number in (2, 3):
        harness.epoch = Epoch(number, NEW, binlog_position(5, 500), heartbeat=40)
        harness.checkpoint = Checkpoint(
            "main", 3, epochs={"s": harness.epoch}, heartbeats={"s": 41}
        )
        said = Acknowledged(binlog_position(5, 400 + number))
        found += [
            harness.round(said, partition_end(10), 10),
            harness.round(said, partition_end(10), 10),
        ]

    assert found == [None] * 4


def test_f04_without_an_answer_what_the_server_had_executed_decides_too() -> None:
    harness = LandingHarness(epoch=replace(FIRST, position=binlog_position(5, 500, f"{NEW}:1-3")))

    said = Acknowledged(binlog_position(5, 400, f"{NEW}:1-9"))

    assert harness.round(said, partition_end(10), 10, head=None) is None
