import itertools
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import FrameType

import pytest

from demo import processes
from demo.daemon import Daemon
from demo.processes import Process, wait_until
from pipeline.errors import UnreachableError
from pipeline.spark import jars

SLEEP = ("/bin/sleep", "1000")
SOON = timedelta(minutes=2)


def test_a_stopped_process_is_gone_with_its_group(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    script = f"sleep 1000 & echo $! > {pids}; wait"
    process = processes.start(("/bin/sh", "-c", script), log=tmp_path / "log")
    wait_until(lambda: pids.exists() and pids.read_text().strip(), SOON, "child")
    child = int(pids.read_text())

    process.stop()

    assert not process.alive
    wait_until(lambda: has_ended(child), SOON, "end of the child")


def test_a_process_that_ignores_the_request_is_killed(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    script = f"trap '' TERM; touch {ready}; while :; do sleep 1; done"
    process = processes.start(("/bin/sh", "-c", script), log=tmp_path / "log")
    wait_until(ready.exists, SOON, "trap")

    process.stop(grace=timedelta(milliseconds=200))

    assert not process.alive


def test_a_long_wait_looks_less_often_and_ends_little_later() -> None:
    pauses = [processes.pause_after(waited) for waited in (0, 1, 3, 60)]

    assert pauses == [0.05, 0.05, pytest.approx(0.15), 0.25]
    assert processes.pause_after(0, least=0.01) == 0.01


def test_a_process_that_was_told_to_stand_still_is_held_until_it_goes_on(tmp_path: Path) -> None:
    process = processes.start(SLEEP, log=tmp_path / "log")
    try:
        assert not processes.held(process.pid)

        process.hold()
        assert processes.held(process.pid)
        process.signal(signal.SIGCONT)

        wait_until(lambda: not processes.held(process.pid), SOON, "going on")
    finally:
        process.kill()


def test_a_process_that_has_ended_is_not_waited_for_to_stand_still(tmp_path: Path) -> None:
    process = processes.start(SLEEP, log=tmp_path / "log")
    process.signal(signal.SIGKILL)

    process.hold()

    assert not process.alive


def test_a_thread_that_ended_since_it_was_listed_is_no_sign_that_all_stand_still(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = processes.start(SLEEP, log=tmp_path / "log")
    try:
        process.hold()
        listed = [*Path(f"/proc/{process.pid}/task").iterdir(), Path("/proc/0/task/0")]
        monkeypatch.setattr(Path, "iterdir", lambda _: iter(listed))

        assert not processes.held(process.pid)
    finally:
        monkeypatch.undo()
        process.kill()


def test_one_that_ends_while_it_is_looked_at_leaves_no_zombie(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever asks for its id would find it there: a Postgres does, before it starts again."""
    process, look = processes.start(SLEEP, log=tmp_path / "log"), processes.started

    def end_first(pid: int) -> int | None:
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: look(pid) is None, SOON, "end of the process")
        return look(pid)

    monkeypatch.setattr(processes, "started", end_first)
    alive = process.alive

    assert (alive, Path(f"/proc/{process.pid}").exists()) == (False, False)


def test_an_id_that_was_given_to_somebody_else_is_left_alone() -> None:
    stranger = Process(os.getpid(), started=1)

    stranger.kill()

    assert not stranger.alive


def test_a_leashed_process_outlives_the_thread_that_asked_for_it(tmp_path: Path) -> None:
    found: list[Process] = []
    thread = threading.Thread(
        target=lambda: found.append(processes.start(SLEEP, log=tmp_path / "log"))
    )
    thread.start()
    thread.join()
    wait_until(lambda: "sleep" in command(found[0].pid), SOON, "sleep")

    assert found[0].alive
    found[0].kill()


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(signal.SIGKILL, id="killed, with no time to clean up"),
        pytest.param(signal.SIGINT, id="interrupted from the keyboard"),
    ],
)
def test_a_leashed_process_dies_with_its_parent(tmp_path: Path, number: signal.Signals) -> None:
    script = (
        "import signal, time; from pathlib import Path; from demo import processes\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # may be ignored: in `nohup`
        f"process = processes.start({SLEEP!r}, log=Path({str(tmp_path / 'log')!r}))\n"
        "print(process.pid, flush=True); time.sleep(1000)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script],
        cwd=jars.ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        wait_until(lambda: "sleep" in command(pid), SOON, "sleep")

        parent.send_signal(number)

    wait_until(lambda: has_ended(pid), SOON, "end of the leashed process")


def test_a_server_that_ends_at_once_says_its_last_words(tmp_path: Path) -> None:
    daemon = Daemon("thing", tmp_path / "log")

    with pytest.raises(UnreachableError, match="thing ended at once: no such option"):
        daemon.start(("/bin/sh", "-c", "echo no such option; exit 1"), lambda: False, SOON)


def test_a_condition_that_never_holds_names_what_was_waited_for() -> None:
    with pytest.raises(UnreachableError, match="no rain after 0 s"):
        wait_until(lambda: False, timedelta(), "rain")


def command(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()


def has_ended(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True
    return stat.rpartition(")")[2].split()[0] == "Z"


def test_an_interrupt_at_any_step_of_a_start_leaves_the_next_start_possible(tmp_path: Path) -> None:
    def begin() -> None:
        processes.start(("/bin/true",), log=tmp_path / "log")

    for step in itertools.count(1):
        whole = interrupted_at(step, begin)
        later = threading.Thread(target=begin, daemon=True)
        later.start()
        later.join(SOON.total_seconds())
        assert not later.is_alive(), f"step {step}"
        if whole:
            break
    assert step > 10


def interrupted_at(step: int, work: Callable[[], None]) -> bool:
    """Whether *work* ended before its call or return number *step*, at which Ctrl-C strikes."""
    left = itertools.count(step - 1, -1)

    def strike(frame: FrameType, event: str, argument: object) -> None:
        if frame.f_code is not interrupted_at.__code__ and next(left) == 0:
            raise KeyboardInterrupt

    try:
        sys.setprofile(strike)
        work()
    except KeyboardInterrupt:
        return False
    finally:
        sys.setprofile(None)
    return True
