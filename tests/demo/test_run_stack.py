"""Ctrl-C in the middle of the story, as a terminal sends it."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from demo.processes import Process, started, wait_until
from demo.story.memory import family
from pipeline.spark import jars

pytestmark = pytest.mark.stack

SOON = timedelta(minutes=4)
AT_ONCE = timedelta(seconds=30)  # of a busy machine, which takes memory back by then


@pytest.mark.parametrize(
    "moment",
    [
        pytest.param("1/7", id="while servers start"),
        pytest.param("2/7", id="while the shop opens"),
        pytest.param("status page", id="while Spark starts and writers write"),
    ],
)
def test_an_interrupted_story_leaves_no_process_behind(server_folder: Path, moment: str) -> None:
    home, log = server_folder / "story", server_folder / "story.log"
    seen: set[Process] = set()
    with log.open("w") as out, run_story(home, out.fileno()) as story:
        wait_until(lambda: note(seen, story.pid) and moment in log.read_text(), SOON, moment)
        wait_until(lambda: note(seen, story.pid) and len(seen) > 1, SOON, "first child")

        story.send_signal(signal.SIGINT)
        wait_until(lambda: note(seen, story.pid) and story.poll() is not None, SOON, "end")

    assert story.returncode == 130, log.read_text()
    wait_until(lambda: not any(each.alive for each in seen), AT_ONCE, "end of every process")


def test_a_second_story_in_the_same_folder_is_refused(server_folder: Path) -> None:
    home, log = server_folder / "story", server_folder / "story.log"
    with log.open("w") as out, run_story(home, out.fileno()) as first:
        wait_until(lambda: "1/7" in log.read_text(), SOON, "first line")

        second = subprocess.run(command(home), capture_output=True, text=True, check=False)

        first.send_signal(signal.SIGINT)
        first.wait(SOON.total_seconds())
    assert second.returncode == 1
    assert "another demo runs in" in second.stderr


@contextmanager
def run_story(home: Path, out: int) -> Iterator[subprocess.Popen[bytes]]:
    """One that does not outlive the block, nor do its children, which are on its leash."""
    story = subprocess.Popen(command(home), stdout=out, stderr=subprocess.STDOUT, cwd=jars.ROOT)
    try:
        yield story
    finally:
        story.kill()
        story.wait()


def command(home: Path) -> list[str]:
    return [sys.executable, "-m", "demo", "run", "--dir", str(home)]


def note(seen: set[Process], pid: int) -> bool:
    """Remember every process of the story that is there now."""
    for each in family(pid):
        when = started(each)
        if when is not None:
            seen.add(Process(each, when))
    return True
