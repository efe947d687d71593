"""The Spark process dies, hangs, refuses; the service goes on.  Real processes, no Spark."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import IO, Any, cast

import pytest

from monitor.spark.requests import OPENING, Reply, Request, Verb
from monitor.spark.supervisor import OPENING_WITHIN, Child, SeenHazards, Supervisor
from monitor.store.store import ServiceStore
from pipeline.errors import HeldError, ProofError, UnreachableError
from pipeline.finding import REFUSE, Effect, Finding
from pipeline.settings import PipelineSettings, TableRule
from tests.patience import SOON, wait_for

FAKE = (sys.executable, "-m", "tests.monitor.fake_worker")
PATIENCE = SOON.total_seconds()
THOROUGH = pytest.mark.thorough  # a process takes longer to begin than most tests take


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def supervisor(lake: Path) -> Iterator[Supervisor]:
    settings = PipelineSettings(str(lake), "127.0.0.1:9", ())
    supervisor = Supervisor(settings, FAKE, first_pause=timedelta(milliseconds=20))
    supervisor.start()
    wait_for(lambda: supervisor.pid is not None)
    yield supervisor
    supervisor.stop(timedelta(seconds=5))


@pytest.fixture
def callers() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor() as pool:
        yield pool


def _land(supervisor: Supervisor, *orders: str, deadline: timedelta = SOON) -> int | None:
    reply = supervisor.call(Request(0, Verb.LAND, frozenset(orders)), deadline)
    assert reply.landed is not None
    return reply.landed.batch


Ask = Callable[[Verb, str], Future[Reply]]


@pytest.fixture
def ask(supervisor: Supervisor, callers: ThreadPoolExecutor, lake: Path) -> Ask:
    """Ask in a thread of its own; returns when the process is at it."""

    def begin(verb: Verb, order: str) -> Future[Reply]:
        (lake / f"{verb}-begun").unlink(missing_ok=True)
        asked = callers.submit(supervisor.call, Request(0, verb, frozenset({order})), SOON)
        wait_for((lake / f"{verb}-begun").exists)
        return asked

    return begin


def _restarted(supervisor: Supervisor, times: int) -> bool:
    return supervisor.restarts >= times


def _land_when_back(supervisor: Supervisor) -> int | None:
    """Land as a scheduler does: a tick that finds no process is followed by another."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            return _land(supervisor)
        except UnreachableError:
            assert time.monotonic() < until, "the process did not come back"


def _gone(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return True
    return state == "Z"


def _jvm(lake: Path) -> int:
    wait_for(lambda: (lake / "jvm").exists() and (lake / "jvm").read_text(encoding="utf-8"))
    return int((lake / "jvm").read_text(encoding="utf-8"))


def test_reports_come_back_whole_and_prints_of_libraries_do_not(supervisor: Supervisor) -> None:
    landed = supervisor.call(Request(0, Verb.LAND), SOON).landed
    applied = supervisor.call(Request(0, Verb.APPLY), SOON).applied

    assert landed is not None
    assert (landed.batch, landed.took, landed.tables) == (
        0,
        timedelta(milliseconds=1500),
        (("t", 3),),
    )
    assert [one.table for one in applied] == ["shop.a", "shop.b"]
    assert applied[0].account.residual == 0
    assert applied[1].hold is not None


def test_readers_reach_upkeep(supervisor: Supervisor, lake: Path) -> None:
    supervisor.call(Request(0, Verb.MAINTENANCE, readers={"shop.a": 12}), SOON)

    assert (lake / "readers").read_text(encoding="utf-8") == "{'shop.a': 12}"


def test_a_held_source_is_told_and_the_process_goes_on(supervisor: Supervisor) -> None:
    with pytest.raises(HeldError) as told:
        _land(supervisor, "hold")

    assert told.value.reason == "foreign_write"
    assert _land(supervisor) == 0
    assert supervisor.restarts == 0


@pytest.mark.parametrize(
    ("order", "deadline"),
    [
        pytest.param("die", SOON, id="killed by the kernel in the middle of a batch"),
        pytest.param(
            "fail", SOON, id="an error nobody foresaw, such as a dead JVM", marks=THOROUGH
        ),
        pytest.param("sleep", timedelta(seconds=1), id="a missed deadline", marks=THOROUGH),
    ],
)
def test_a_process_that_dies_or_hangs_is_replaced_and_its_jvm_goes_with_it(
    supervisor: Supervisor, lake: Path, order: str, deadline: timedelta
) -> None:
    assert _land(supervisor) == 0
    jvm = _jvm(lake)

    with pytest.raises(UnreachableError):
        _land(supervisor, order, deadline=deadline)

    wait_for(lambda: _gone(jvm))
    assert _land_when_back(supervisor) == 1
    assert supervisor.restarts == 1


@THOROUGH
def test_a_kill_between_two_calls_is_noticed_without_a_call(
    supervisor: Supervisor, lake: Path
) -> None:
    first = supervisor.pid
    assert first is not None
    jvm = _jvm(lake)

    os.kill(first, signal.SIGKILL)

    wait_for(lambda: supervisor.pid not in (None, first))
    wait_for(lambda: _gone(jvm))
    assert _land_when_back(supervisor) == 0


def test_landing_goes_on_while_mirrors_are_merged(
    supervisor: Supervisor, ask: Ask, lake: Path
) -> None:
    merging = ask(Verb.APPLY, "wait")

    assert [_land(supervisor) for _ in range(3)] == [0, 1, 2]
    assert not merging.done()

    (lake / "go").touch()
    assert len(merging.result(PATIENCE).applied) == 2


@THOROUGH
def test_upkeep_goes_on_while_mirrors_are_merged(
    supervisor: Supervisor, ask: Ask, lake: Path
) -> None:
    """They take turns in the process, mirror by mirror; neither waits here for all of the other."""
    merging = ask(Verb.APPLY, "wait")

    supervisor.call(Request(0, Verb.MAINTENANCE), SOON)
    assert not merging.done()

    (lake / "go").touch()
    assert merging.result(PATIENCE).applied
    assert supervisor.restarts == 0


def test_a_kill_wakes_everybody_who_waits(supervisor: Supervisor, ask: Ask) -> None:
    waiting = [ask(Verb.LAND, "sleep"), ask(Verb.APPLY, "sleep")]
    assert supervisor.pid is not None

    os.kill(supervisor.pid, signal.SIGKILL)

    for one in waiting:
        with pytest.raises(UnreachableError, match="died; it is started again"):
            one.result(PATIENCE)
    assert _land_when_back(supervisor) == 0


@pytest.mark.parametrize(
    ("order", "deadline", "why"),
    [
        pytest.param(
            "sleep", timedelta(seconds=1), "missed 0:00:01; killed", id="is late", marks=THOROUGH
        ),
        pytest.param("fail", SOON, "java gateway is gone", id="crashes", marks=THOROUGH),
    ],
)
def test_a_line_that_ends_the_process_tells_the_other_line_why(
    supervisor: Supervisor, ask: Ask, order: str, deadline: timedelta, why: str
) -> None:
    merging = ask(Verb.APPLY, "sleep")

    with pytest.raises(UnreachableError, match=why):
        _land(supervisor, order, deadline=deadline)

    with pytest.raises(UnreachableError, match=why):
        merging.result(PATIENCE)
    assert _land_when_back(supervisor) == 0
    assert supervisor.restarts == 1


@THOROUGH
@pytest.mark.parametrize("seed", range(3))
def test_nobody_is_left_waiting_whenever_the_process_is_killed(
    supervisor: Supervisor, callers: ThreadPoolExecutor, seed: int
) -> None:
    chance, ended = Random(seed), threading.Event()

    def ask_on(verb: Verb) -> int:
        answers = 0
        while not ended.is_set():
            with suppress(UnreachableError):
                supervisor.call(Request(0, verb), timedelta(minutes=2))
                answers += 1
            ended.wait(0.001)
        return answers

    asking = [callers.submit(ask_on, verb) for verb in (Verb.LAND, Verb.APPLY)]
    for kills in range(1, 6):
        wait_for(lambda: supervisor.pid is not None)
        time.sleep(chance.uniform(0, 0.6))  # a moment, not a wait: opening, asking, replying
        with suppress(ProcessLookupError, TypeError):
            os.kill(supervisor.pid, signal.SIGKILL)  # type: ignore[arg-type]
        wait_for(partial(_restarted, supervisor, kills))
        supervisor._failures = 0  # short pauses
    ended.set()

    for one in asking:
        assert one.result(PATIENCE) >= 0


@THOROUGH
def test_every_call_to_a_dead_process_fails_at_once(supervisor: Supervisor) -> None:
    supervisor.first_pause = SOON
    with pytest.raises(UnreachableError):
        _land(supervisor, "die")
    begun = time.monotonic()

    for _ in range(5):
        with pytest.raises(UnreachableError):
            _land(supervisor)

    assert time.monotonic() - begun < 50, "one alone would wait for a minute"


@THOROUGH
def test_a_lane_that_refuses_to_open_says_why_on_each_call(tmp_path: Path) -> None:
    (tmp_path / "lost-mark").touch()
    settings = PipelineSettings(str(tmp_path), "127.0.0.1:9", ())
    supervisor = Supervisor(settings, FAKE, first_pause=timedelta(milliseconds=20))
    supervisor.start()
    try:
        wait_for(lambda: supervisor.pid is not None)

        with pytest.raises(Exception, match="no checkpoint; restore it"):
            _land(supervisor)
    finally:
        supervisor.stop(timedelta(seconds=5))


def test_stop_closes_spark_before_the_process_ends(supervisor: Supervisor, lake: Path) -> None:
    assert _land(supervisor) == 0
    child, jvm = supervisor.pid, _jvm(lake)

    supervisor.stop(SOON)

    assert (lake / "closed").exists()
    assert child is not None
    assert _gone(child)
    wait_for(lambda: _gone(jvm))


@THOROUGH
def test_stop_lets_what_runs_end_and_begins_nothing_new(
    supervisor: Supervisor, ask: Ask, callers: ThreadPoolExecutor, lake: Path
) -> None:
    landing = ask(Verb.LAND, "wait")
    stopping = callers.submit(supervisor.stop, SOON)

    (lake / "go").touch()

    assert landing.result(PATIENCE).landed is not None
    stopping.result(PATIENCE)
    assert (lake / "closed").exists()


@THOROUGH
def test_stop_waits_for_a_long_merge_a_little_and_tells_no_failure_of_it(
    supervisor: Supervisor, ask: Ask, lake: Path
) -> None:
    child, merging = supervisor.pid, ask(Verb.APPLY, "sleep")
    begun = time.monotonic()

    supervisor.stop(SOON)

    assert time.monotonic() - begun < PATIENCE
    assert (lake / "closed").exists()
    assert child is not None
    assert _gone(child)
    with pytest.raises(UnreachableError, match="died"):
        merging.result(PATIENCE)


@pytest.mark.parametrize(
    "how",
    [
        pytest.param(signal.SIGKILL, id="kill -9"),
        pytest.param(signal.SIGTERM, id="terminate", marks=THOROUGH),
    ],
)
def test_no_process_outlives_a_killed_service(lake: Path, how: signal.Signals) -> None:
    script = (
        "import sys, time; from datetime import timedelta\n"
        "from monitor.spark.supervisor import Supervisor; from monitor.spark.requests import *\n"
        "from pipeline.settings import PipelineSettings\n"
        f"s = Supervisor(PipelineSettings({str(lake)!r}, 'k', ()), {FAKE!r}); s.start()\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script]) as service:
        jvm = _jvm(lake)

        service.send_signal(how)

    wait_for(lambda: _gone(jvm))


@THOROUGH
def test_a_process_that_hangs_while_it_opens_is_replaced_long_before_the_job_is_late(
    lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (lake / "hang").touch()
    settings = PipelineSettings(str(lake), "127.0.0.1:9", ())
    supervisor = Supervisor(settings, FAKE, first_pause=timedelta(milliseconds=20))
    supervisor.start()
    try:
        wait_for(lambda: not (lake / "hang").exists())
        monkeypatch.setattr("monitor.spark.supervisor.OPENING_WITHIN", timedelta(milliseconds=10))
        with pytest.raises(UnreachableError, match="missed"):
            _land(supervisor)

        monkeypatch.setattr("monitor.spark.supervisor.OPENING_WITHIN", timedelta(seconds=60))
        assert _land_when_back(supervisor) == 0
    finally:
        supervisor.stop(timedelta(seconds=5))


@dataclass(eq=False)
class OpeningChild:
    """A process that is opening its lane, by a clock of our own."""

    child: Child
    seconds: float = 0.0

    def gives_sign(self, at: float, what: str) -> None:
        self.seconds = at
        self.child.take(Reply(OPENING, progress=what))

    @property
    def end(self) -> str:
        """Why it ended; empty while it has not."""
        return "" if self.child.ended is None else self.child.ended.text

    def has_opened(self, at: float) -> bool:
        """Whether it has at *at*, asked by one who waits no longer than until then."""
        self.seconds = at
        return self.child.has_opened(at)


@pytest.fixture
def opening(monkeypatch: pytest.MonkeyPatch) -> Iterator[OpeningChild]:
    process = subprocess.Popen(
        ["/bin/sleep", "600"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )
    requests, replies = cast("IO[bytes]", process.stdin), cast("IO[bytes]", process.stdout)
    with monkeypatch.context() as patched:
        made = OpeningChild(cast("Child", None))
        clock = SimpleNamespace(monotonic=lambda: made.seconds, sleep=lambda _: None)
        patched.setattr("monitor.spark.supervisor.time", clock)
        made.child = Child(process, requests, replies)
        yield made
        made.child.kill()
        made.child.wait_for_exit()


def test_an_opening_is_late_only_when_it_gives_no_sign_of_life_for_its_limit(
    opening: OpeningChild,
) -> None:
    limit = OPENING_WITHIN.total_seconds()
    for number in range(1, 4):
        opening.gives_sign(number * (limit - 1), f"{number} of 9")
        assert not opening.has_opened(number * (limit - 1) + 2)
    assert opening.end == ""

    assert opening.has_opened(3 * (limit - 1) + limit), "it has ended, which the next reply says"

    assert opening.end == "spark process missed 0:03:00; killed"


def test_a_job_learns_how_far_an_opening_has_come_and_kills_it_not(
    opening: OpeningChild, lake: Path
) -> None:
    settings = PipelineSettings(str(lake), "127.0.0.1:9", ())
    supervisor = Supervisor(settings, FAKE, _child=opening.child)
    opening.gives_sign(0, "5 of 9")

    with pytest.raises(UnreachableError, match="still opening: 5 of 9"):
        supervisor.call(Request(0, Verb.APPLY), timedelta())

    assert opening.end == ""
    opening.child.take(Reply(OPENING))
    assert opening.has_opened(1)


LARGER_THAN_A_PIPE = 5000  # names of 40 characters; a pipe holds 64 KiB
NEVER_READS = (sys.executable, "-c", "import time; time.sleep(600)")


@pytest.mark.parametrize("rules", [pytest.param(0, id="small"), pytest.param(2000, id="large")])
def test_a_process_that_does_not_open_is_replaced_though_nothing_is_asked(
    lake: Path, monkeypatch: pytest.MonkeyPatch, rules: int
) -> None:
    monkeypatch.setattr("monitor.spark.supervisor.OPENING_WITHIN", timedelta(milliseconds=200))
    names = tuple(TableRule(f"shop\\.{i:040}", f"shop.t{i}") for i in range(rules))
    settings = PipelineSettings(str(lake), "127.0.0.1:9", (), rules=names)
    supervisor = Supervisor(settings, NEVER_READS, first_pause=timedelta(milliseconds=20))
    supervisor.start()
    try:
        wait_for(lambda: supervisor.pid is not None)
        first = supervisor.pid
        assert first is not None

        wait_for(partial(_restarted, supervisor, 1))

        assert _gone(first)
    finally:
        supervisor.stop(timedelta(milliseconds=100))


@pytest.fixture
def stopped(supervisor: Supervisor) -> Iterator[int]:
    """A process that has opened and does not read any more, as while its host swaps."""
    _land_when_back(supervisor)
    assert supervisor.pid is not None
    pid = supervisor.pid
    os.kill(pid, signal.SIGSTOP)
    yield pid
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def _large(verb: Verb) -> Request:
    return Request(0, verb, frozenset(f"{i:040}" for i in range(LARGER_THAN_A_PIPE)))


def test_a_deadline_holds_while_a_request_larger_than_the_pipe_is_sent(
    supervisor: Supervisor, callers: ThreadPoolExecutor, stopped: int
) -> None:
    second = timedelta(seconds=1)
    landing = callers.submit(supervisor.call, _large(Verb.LAND), second)
    merging = callers.submit(supervisor.call, Request(0, Verb.APPLY), second)

    try:
        for late in (landing, merging):
            with pytest.raises(UnreachableError, match="missed 0:00:01; killed"):
                late.result(PATIENCE)
    finally:
        os.killpg(stopped, signal.SIGKILL)
    assert _land_when_back(supervisor) == 1


def test_stop_ends_while_a_request_larger_than_the_pipe_is_sent(
    supervisor: Supervisor, callers: ThreadPoolExecutor, stopped: int
) -> None:
    landing = callers.submit(supervisor.call, _large(Verb.LAND), SOON)
    time.sleep(0.2)  # the pipe is full
    stopping = callers.submit(supervisor.stop, timedelta(milliseconds=100))

    try:
        stopping.result(PATIENCE)
        assert _gone(stopped)
        with pytest.raises(UnreachableError, match="died"):
            landing.result(PATIENCE)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(stopped, signal.SIGKILL)


SEEN = {"shop": (Finding(REFUSE, "c", "shop", "c=1", "unset c", Effect.DROPS),)}


def _seen(store: ServiceStore) -> SeenHazards:
    return SeenHazards(store.memory, "main", lambda: datetime(2026, 1, 2, tzinfo=UTC))


def test_f102_harmful_settings_that_no_mark_has_outlive_the_service(store: ServiceStore) -> None:
    first = _seen(store).known()
    _seen(store).keep(SEEN)
    store.close()
    again = ServiceStore.open(store.database.path, service=True)

    assert (first, _seen(again).known()) == ({}, SEEN)
    _seen(again).keep({})
    assert _seen(again).known() == {}
    again.close()


BROKEN = {"shop": [{"code": "of another release"}]}


def _remember(store: ServiceStore, kept: object) -> None:
    at = datetime(2026, 1, 2, tzinfo=UTC)
    store.memory.remember("lane:main", "hazards", cast(Mapping[str, Any], kept), at)


def test_f102_what_cannot_be_recalled_is_not_written_over(store: ServiceStore) -> None:
    _remember(store, BROKEN)
    seen = _seen(store)

    assert (seen.known(), seen.unread) == ({}, True)
    seen.keep({})
    seen.keep(SEEN)

    assert store.memory.recall("lane:main", "hazards") == BROKEN
    assert (_seen(store).known(), seen.known(), seen.unread) == ({}, {}, True)


def test_f102_what_was_kept_in_this_life_is_known_though_the_row_is_broken(
    store: ServiceStore,
) -> None:
    seen = _seen(store)
    seen.known()
    seen.keep(SEEN)
    _remember(store, BROKEN)

    assert (seen.known(), seen.unread) == (SEEN, False)


def test_f102_nothing_lands_while_what_was_seen_before_cannot_be_recalled(
    lake: Path, store: ServiceStore
) -> None:
    _remember(store, BROKEN)
    settings, seen = PipelineSettings(str(lake), "127.0.0.1:9", ()), _seen(store)
    supervisor = Supervisor(settings, FAKE, first_pause=timedelta(milliseconds=20), seen=seen)
    supervisor.start()
    try:
        wait_for(lambda: supervisor.pid is not None)
        with pytest.raises(ProofError, match="delete row lane:main hazards of table memory"):
            _land(supervisor)
        assert supervisor.call(Request(0, Verb.APPLY), SOON).applied, "the rest goes on"

        _remember(store, {"shop": [asdict(one) for one in SEEN["shop"]]})
        with pytest.raises(UnreachableError, match="died"):
            _land(supervisor)
        assert _land_when_back(supervisor) == 0
        assert supervisor.call(Request(0, Verb.LAND), SOON).hazards == SEEN
    finally:
        supervisor.stop(timedelta(seconds=5))


@THOROUGH
def test_f102_a_new_process_is_told_what_the_one_before_had_seen(
    lake: Path, store: ServiceStore
) -> None:
    settings, seen = PipelineSettings(str(lake), "127.0.0.1:9", ()), _seen(store)
    seen.keep(SEEN)
    supervisor = Supervisor(settings, FAKE, first_pause=timedelta(milliseconds=20), seen=seen)
    supervisor.start()
    try:
        assert _land_when_back(supervisor) == 0
        with pytest.raises(UnreachableError):
            supervisor.call(Request(0, Verb.LAND, frozenset({"die"})), SOON)
        assert _land_when_back(supervisor) == 1
        assert seen.known() == SEEN, "a process that dies says nothing of them"
        assert supervisor.call(Request(0, Verb.LAND), SOON).hazards == SEEN
    finally:
        supervisor.stop(timedelta(seconds=5))


@THOROUGH
def test_a_new_process_is_told_which_holds_stand(lake: Path) -> None:
    settings, stand = PipelineSettings(str(lake), "127.0.0.1:9", ()), {"disorder:a:a.db.t:0:2@1"}
    supervisor = Supervisor(settings, FAKE, held=lambda: frozenset(stand))
    supervisor.start()
    try:
        assert _land_when_back(supervisor) == 0
    finally:
        supervisor.stop(timedelta(seconds=5))

    assert (lake / "held").read_text(encoding="utf-8") == repr(sorted(stand))
