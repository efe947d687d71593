"""A heartbeat that came through proves what was logged before it, and never more."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.collectors.heartbeats import HeartbeatEvidence, NotedEnd, SendingPromise
from pipeline.model import Acknowledged, Head, Missing
from pipeline.sources.mysql.position import binlog_position


def noted_end(pos: int, number: int, identity: str = "A") -> NotedEnd:
    return NotedEnd(Head(identity, binlog_position(7, pos)), number)


def acknowledged_at(pos: int) -> Acknowledged:
    return Acknowledged(binlog_position(7, pos))


def missing(found: Acknowledged | Missing) -> str:
    assert isinstance(found, Missing)
    return found.why


def test_nothing_is_said_before_a_heartbeat_came_through() -> None:
    evidence = HeartbeatEvidence(SendingPromise.ORDERED)

    evidence.learn(noted_end(100, 5), ())

    assert "no heartbeat of source shop" in missing(evidence.acknowledged("shop"))


def risen_evidence(promise: SendingPromise, identity: str = "A") -> HeartbeatEvidence:
    """Of a server whose number has been seen to rise."""
    evidence = HeartbeatEvidence(promise)
    evidence.learn(noted_end(10, -2, identity), ())
    evidence.learn(noted_end(20, -1, identity), ())
    return evidence


@pytest.mark.parametrize(
    ("seen", "proven"),
    [
        pytest.param((5,), False, id="the newest that was committed by then"),
        pytest.param((6,), False, id="one that may have been logged, and not seen, by then"),
        pytest.param((7,), False, id="that one, for numbers leapt"),
        pytest.param((7, 7), False, id="that one, twice"),
        pytest.param((6, 7), True, id="one that waited for that one"),
        pytest.param((7, 9), True, id="one that waited for that one, though numbers leap"),
    ],
)
def test_an_end_is_proven_by_a_heartbeat_that_was_written_after_it(
    seen: tuple[int, ...], proven: bool
) -> None:
    evidence = risen_evidence(SendingPromise.ORDERED)
    evidence.learn(noted_end(100, 5), (4,))

    evidence.learn(noted_end(200, 7), seen)

    assert (evidence.acknowledged("shop") == acknowledged_at(100)) is proven


def test_a_number_that_came_before_it_was_seen_committed_is_one_of_the_two() -> None:
    """A log may be read before what it tells of can be seen."""
    evidence = risen_evidence(SendingPromise.ORDERED)
    evidence.learn(noted_end(90, 5), (4, 5, 6))
    evidence.learn(noted_end(100, 5), ())

    evidence.learn(noted_end(200, 7), (7,))

    assert evidence.acknowledged("shop") == acknowledged_at(100)


@pytest.mark.parametrize("identity", ["B", "A"], ids=["another server", "one that was restored"])
@pytest.mark.parametrize("known", [True, False], ids=["seen before", "at the start"])
def test_heartbeats_that_a_server_lacks_prove_nothing_of_it(identity: str, known: bool) -> None:
    """The one before it had 104 and 105, which are on their way; the next one is 106."""
    evidence = risen_evidence(SendingPromise.ORDERED)
    if known:
        evidence.learn(noted_end(900, 104), (101, 102, 103))
    else:
        evidence = HeartbeatEvidence(SendingPromise.ORDERED)

    evidence.learn(noted_end(500, 103, identity), (104,))
    evidence.learn(noted_end(550, 103, identity), (105, 106))

    assert isinstance(evidence.acknowledged("shop"), Missing)
    evidence.learn(noted_end(600, 107, identity), (107,))
    assert isinstance(evidence.acknowledged("shop"), Missing)
    evidence.learn(noted_end(700, 109, identity), (108, 109))
    assert evidence.acknowledged("shop") == acknowledged_at(600)


def test_by_batches_one_heartbeat_more_is_waited_for_that_was_written_later() -> None:
    evidence = risen_evidence(SendingPromise.BATCHES)
    evidence.learn(noted_end(100, 5), (4,))
    evidence.learn(
        noted_end(200, 7), (5, 6, 7)
    )  # may be of the same batch as what stands before 100

    assert isinstance(evidence.acknowledged("shop"), Missing)
    evidence.learn(
        noted_end(300, 9), (8, 9)
    )  # number 9 was committed before it was known that 7 came
    assert isinstance(evidence.acknowledged("shop"), Missing)
    evidence.learn(noted_end(400, 11), (10, 11))
    assert evidence.acknowledged("shop") == acknowledged_at(100)


def test_while_the_log_is_sent_again_nothing_is_said() -> None:
    evidence = risen_evidence(SendingPromise.ORDERED)
    evidence.learn(noted_end(100, 5), (4,))
    evidence.learn(noted_end(200, 7), (7, 8))

    evidence.learn(noted_end(300, 9), (6,))

    assert "being sent again (heartbeat 6 after 8)" in missing(evidence.acknowledged("shop"))
    evidence.learn(noted_end(400, 10), (7, 8, 9))
    assert evidence.acknowledged("shop") == acknowledged_at(200)


def test_what_was_proven_of_another_server_says_nothing_of_this_one() -> None:
    evidence = risen_evidence(SendingPromise.ORDERED)
    evidence.learn(noted_end(100, 5), (4,))
    evidence.learn(noted_end(200, 7), (6, 7))
    assert evidence.acknowledged("shop") == acknowledged_at(100)

    evidence.learn(noted_end(50, 8, identity="B"), (9,))

    assert isinstance(evidence.acknowledged("shop"), Missing)


def test_however_far_it_lags_ends_that_wait_are_bounded_and_none_is_lost() -> None:
    evidence = risen_evidence(SendingPromise.ORDERED)
    evidence.learn(noted_end(100, 0), (0,))
    for number in range(1, 2_000):
        evidence.learn(noted_end(100 + number, number), ())

    evidence.learn(noted_end(5_000, 2_000), (1, 2, 3))

    assert evidence.acknowledged("shop") == acknowledged_at(101)


@dataclass
class Server:
    """A log whose entries are committed some time after they are logged, in order."""

    log: list[int | None] = field(default_factory=list)  # a heartbeat's number, or a row
    committed: int = 0
    beats: int = 0

    def write_heartbeat(self, leap: int = 0) -> None:
        """The row is locked until the one before is committed; numbers leap after a restore."""
        if self.newest == max((one for one in self.log if one is not None), default=-1):
            self.log.append(self.beats + leap)
            self.beats += 1 + leap

    @property
    def newest(self) -> int:
        done = [one for one in self.log[: self.committed] if one is not None]
        return done[-1] if done else -1


WAYS = ("beat", "leap", "row", "commit", "send", "look", "noted")


@given(st.lists(st.sampled_from(WAYS), max_size=80))
def test_in_order_no_more_is_acknowledged_than_has_arrived(steps: list[str]) -> None:
    server, evidence = Server(), HeartbeatEvidence(SendingPromise.ORDERED)
    arrived, seen, noted = 0, 0, noted_end(0, -1)
    for step in steps:
        if step in ("beat", "leap"):
            server.write_heartbeat(leap=3 if step == "leap" else 0)
        elif step == "row":
            server.log.append(None)
        elif step == "commit":
            server.committed = len(server.log)
        elif step == "send":
            arrived = min(arrived + 1, len(server.log))
        elif step == "noted":
            noted = noted_end(len(server.log), server.newest)
        else:
            beats = [one for one in server.log[:arrived] if one is not None]
            evidence.learn(noted, beats[seen:])
            seen = len(beats)
        said = evidence.acknowledged("shop")
        if isinstance(said, Acknowledged):
            assert int(said.position.words.rpartition("/")[2]) <= arrived


def test_a_batch_that_failed_and_is_taken_again_with_more_in_it_proves_nothing() -> None:
    """One partition took its part, the other hangs; heartbeats of now come out behind the old."""
    evidence = risen_evidence(SendingPromise.BATCHES)
    evidence.learn(noted_end(100, 5), (4, 5))
    evidence.learn(noted_end(200, 8), (6, 7, 8))  # of the batch that does not end
    evidence.learn(noted_end(300, 10), ())

    evidence.learn(noted_end(400, 12), (6, 7, 8, 9, 10, 11, 12))

    assert isinstance(evidence.acknowledged("shop"), Missing)
    evidence.learn(noted_end(500, 13), (13,))
    evidence.learn(noted_end(600, 15), (14, 15))
    assert evidence.acknowledged("shop") == acknowledged_at(300)


STEPS = ("beat", "leap", "row", "take", "came", "sent", "fail", "look")


@given(st.lists(st.sampled_from(STEPS), max_size=120))
def test_by_batches_no_more_is_acknowledged_than_has_arrived(steps: list[str]) -> None:
    """Heartbeats go through one partition in order, rows through others; batches may fail."""
    server, evidence = Server(), HeartbeatEvidence(SendingPromise.BATCHES)
    begun, taken, batch, arrived, came = 0, 0, list[int](), set[int](), list[int]()
    for step in steps:
        if step in ("beat", "leap"):
            server.write_heartbeat(leap=3 if step == "leap" else 0)
            server.committed = len(server.log)
        elif step == "row":
            server.log.append(None)
        elif step == "take" and not batch:
            begun, taken = taken, len(server.log)
            batch = list(range(begun, taken))
        elif step == "fail" and batch:  # all of it is taken again, and what came since
            taken = len(server.log)
            batch = list(range(begun, taken))
        elif step == "sent":
            rows = [n for n in batch if server.log[n] is None]
            arrived.update(rows[:1])
            batch = [n for n in batch if n not in rows[:1]]
        elif step == "came":
            beats = [n for n in batch if server.log[n] is not None]
            arrived.update(beats[:1])
            came += [one for n in beats[:1] if (one := server.log[n]) is not None]
            batch = [n for n in batch if n not in beats[:1]]
        elif step == "look":
            evidence.learn(noted_end(len(server.log), server.newest), came)
            came = []
        said = evidence.acknowledged("shop")
        if isinstance(said, Acknowledged):
            assert set(range(int(said.position.words.rpartition("/")[2]))) <= arrived
