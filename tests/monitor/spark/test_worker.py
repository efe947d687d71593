"""Requests of one verb are answered in order, those of different verbs side by side."""

import io
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import cast

import pytest
from structlog.testing import capture_logs

from demo.processes import wait_until
from monitor.spark.requests import OPENING, Reply, Request, Verb, load_reply
from monitor.spark.worker import OpenLane, RequestServer
from pipeline.apply.image_export import Manifest
from pipeline.apply.merge_run import MergeRequest
from pipeline.backfill_state import BackfillRequest, BackfillState
from pipeline.errors import HeldError
from pipeline.finding import REFUSE, Effect, Finding
from pipeline.reports import LandingReport, MergeReport, SparkWork
from pipeline.settings import PipelineSettings
from tests.patience import SOON, wait_for

AT = datetime(2026, 3, 29, tzinfo=UTC)
OPEN = Request(0, Verb.OPEN, settings=PipelineSettings("lake", "k", ()))


@dataclass
class GatedLane:
    """Lands, merges and keeps when its gate is open; a closed lane does what Spark does then."""

    gates: dict[str, threading.Event] = field(default_factory=dict)
    begun: dict[str, threading.Event] = field(default_factory=dict)
    done: list[str] = field(default_factory=list)
    error: Exception | None = None
    hazards: Mapping[str, tuple[Finding, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for verb in ("land", "apply", "upkeep"):
            self.gates[verb], self.begun[verb] = threading.Event(), threading.Event()

    def land(self, waived: frozenset[str], resubmissions: object = ()) -> LandingReport:
        self._pass("land", *waived)
        return LandingReport("main", len(self.done), 1, AT, SOON)

    def apply(self, request: MergeRequest, *, urgent: bool = False) -> tuple[MergeReport, ...]:
        if urgent:
            return ()
        self._pass("apply", *request.waived)
        return ()

    def unsaid_hazards(self) -> Mapping[str, tuple[Finding, ...]]:
        """What the life before had seen."""
        return self.hazards

    def remind(
        self, hazards: Mapping[str, tuple[Finding, ...]], held: frozenset[str] = frozenset()
    ) -> None:
        self.hazards = hazards

    def spark_work(self) -> Mapping[str, SparkWork]:
        """One job since it was asked last."""
        return {"land": SparkWork(1, 4, 30_000, 2.5)}

    def publish(self) -> tuple[Manifest, ...]:
        return ()

    def maintain(self, readers: Mapping[str, int], paused: object = ()) -> None:
        self._pass("upkeep")

    def run_backfills(self, wishes: tuple[BackfillRequest, ...]) -> tuple[BackfillState, ...]:
        """No gate: all of it is read at once."""
        return tuple(BackfillState(one.id, one.table, "s", 3, 7) for one in wishes)

    def close(self) -> None:
        self.done.append("close")
        self.error = RuntimeError("Spark is closed")
        for gate in self.gates.values():
            gate.set()

    def _pass(self, verb: str, *waived: str) -> None:
        self.begun[verb].set()
        assert self.gates[verb].wait(SOON.total_seconds())
        if self.error is not None:
            raise self.error
        self.done.append("-".join((verb, *waived)))


class Replies(io.BytesIO):
    """What was replied, also after the end."""

    def close(self) -> None:
        """Stay readable."""

    def all(self) -> list[Reply]:
        """In the order they were written."""
        return [load_reply(line) for line in self.getvalue().splitlines()]


def opening(lane: GatedLane) -> OpenLane:
    return cast("OpenLane", lambda *_: lane)


@dataclass
class Bench:
    """A server with its lane open, what it replied, and whether it crashed."""

    lane: GatedLane = field(default_factory=GatedLane)
    replies: Replies = field(default_factory=Replies)
    crashed: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.server = RequestServer(opening(self.lane), self.replies, self.crashed.set)
        assert self.server.take(OPEN)

    def take(self, *requests: Request) -> None:
        for request in requests:
            assert self.server.take(request)

    def ids(self) -> list[int]:
        return [reply.id for reply in self.replies.all()[1:]]


def test_what_is_to_be_read_again_is_told_of(bench: "Bench") -> None:
    wish = BackfillRequest("x", "shop.a")

    bench.take(Request(1, Verb.BACKFILL, backfills=(wish,)))
    wait_until(lambda: bench.ids() == [1], SOON, "the reply")

    assert bench.replies.all()[1].backfills == (BackfillState("x", "shop.a", "s", 3, 7),)


SEEN = {"shop": (Finding(REFUSE, "c", "shop", "c=1", "unset c", Effect.DROPS),)}


def test_what_landing_saw_is_told_with_each_reply_also_of_a_failure() -> None:
    bench = Bench()
    for verb in ("land", "upkeep"):
        bench.lane.gates[verb].set()
    assert bench.server.take(replace(OPEN, hazards=SEEN))

    bench.take(Request(1, Verb.LAND))
    wait_until(lambda: bench.ids()[-1] == 1, SOON, "the first reply")
    bench.lane.error = HeldError("mark_lost", "of another lane")
    bench.take(Request(2, Verb.LAND), Request(3, Verb.MAINTENANCE))
    wait_until(lambda: {2, 3} <= {*bench.ids()}, SOON, "the others")
    bench.lane.close()
    bench.server.drain(SOON)

    told = {one.id: one.hazards for one in bench.replies.all()}
    assert told == {0: None, 1: SEEN, 2: SEEN, 3: None}


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.lane.close()
    made.server.drain(SOON)


def _land(number: int, *waived: str) -> Request:
    return Request(number, Verb.LAND, frozenset(waived))


def test_f49_each_line_keeps_its_order_and_waits_for_no_other(bench: Bench) -> None:
    bench.take(Request(1, Verb.APPLY), Request(2, Verb.MAINTENANCE))
    bench.take(*(_land(number, str(number)) for number in range(3, 9)))

    bench.lane.gates["land"].set()
    wait_for(lambda: len(bench.ids()) == 6)
    bench.lane.gates["upkeep"].set()
    wait_for(lambda: len(bench.ids()) == 7)
    bench.lane.gates["apply"].set()
    wait_for(lambda: len(bench.ids()) == 8)

    assert bench.ids() == [3, 4, 5, 6, 7, 8, 2, 1]
    assert bench.lane.done[:6] == [f"land-{number}" for number in range(3, 9)]


def test_a_crash_is_told_before_the_process_ends(bench: Bench) -> None:
    bench.lane.error = RuntimeError("java gateway is gone")
    bench.lane.gates["apply"].set()
    told: list[int] = []
    bench.server.crashed = lambda: told.append(len(bench.ids()))

    bench.take(Request(7, Verb.APPLY))
    wait_for(lambda: told)

    assert told == [1]
    (reply,) = bench.replies.all()[1:]
    assert reply.failure is not None
    assert (reply.id, reply.failure.text) == (7, "RuntimeError: java gateway is gone")


def test_a_failure_that_was_foreseen_ends_nothing(bench: Bench) -> None:
    bench.lane.error = HeldError("lane_taken", "another writer")
    bench.lane.gates["land"].set()

    with capture_logs() as logs:
        bench.take(_land(1), _land(2))
        wait_for(lambda: len(bench.ids()) == 2)

    assert not bench.crashed.is_set()
    told = [(one["log_level"], one["event"], "exc_info" in one) for one in logs]
    assert told == [("warning", "request failed", False)] * 2


def test_a_stop_ends_what_runs_and_begins_nothing_that_waits(bench: Bench) -> None:
    bench.take(_land(1, "running"), _land(2, "waiting"))
    assert bench.lane.begun["land"].wait(SOON.total_seconds())
    stop = threading.Thread(target=bench.server.take, args=(Request(-1, Verb.STOP),))

    stop.start()
    wait_for(bench.server.draining.is_set)
    bench.lane.gates["land"].set()
    stop.join(SOON.total_seconds())

    assert bench.ids() == [1, -1]
    assert bench.lane.done == ["land-running", "close"]
    assert bench.server.drained


def test_what_a_stop_cuts_off_is_not_told_as_a_failure(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("monitor.spark.worker.DRAINED_WITHIN", timedelta(milliseconds=10))
    bench.take(Request(1, Verb.APPLY))
    assert bench.lane.begun["apply"].wait(SOON.total_seconds())

    assert not bench.server.take(Request(-1, Verb.STOP))
    wait_for(lambda: bench.server.drained)

    assert bench.ids() == [-1]
    assert not bench.crashed.is_set()


def test_how_far_an_opening_has_come_is_said_before_it_is_done() -> None:
    replies, lane = Replies(), GatedLane()

    def open_lane(_: object, progress: Callable[[str], object]) -> GatedLane:
        progress("5 of 9")
        return lane

    assert RequestServer(cast("OpenLane", open_lane), replies, lambda: None).take(OPEN)

    assert [(one.id, one.progress) for one in replies.all()] == [(OPENING, "5 of 9"), (OPENING, "")]


def test_nothing_is_done_before_a_lane_is_open() -> None:
    replies = Replies()
    server = RequestServer(opening(GatedLane()), replies, lambda: None)

    assert not server.take(_land(1))
    (reply,) = replies.all()
    assert reply.failure is not None
    assert "must open a lane" in reply.failure.text
