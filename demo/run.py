"""`python -m demo run`: the main job, end to end, on real servers; status 0 only if all was seen.

Ctrl-C at any moment stops everything in order. A process that cannot be stopped dies with this one.
"""

import fcntl
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from types import FrameType

import click

from demo import machine
from demo.story.play import play
from demo.story.screen import Screen
from demo.story.stage import Plot, Stage
from pipeline.errors import ConfigError
from pipeline.spark import jars

HOME = jars.ROOT / "build" / "demo"
SUMMARY = "summary.json"
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
INTERRUPTED = 130  # the status of shells after Ctrl-C


@click.command()
@click.option("--dir", "home", type=click.Path(path_type=Path), default=HOME, show_default=True)
@click.option("--keep", is_flag=True, help="Stay up until Ctrl-C, writers at work.")
@click.option("--rate", default=100.0, show_default=True, help="Row changes a second.")
@click.option("--seconds", default=28.0, show_default=True, help="How long lag is measured.")
def run(home: Path, keep: bool, rate: float, seconds: float) -> None:
    """Show a pipeline run, a loss detected and named, and the repair."""
    machine.require(home)
    home = home.resolve()
    plot = Plot(rate, timedelta(seconds=seconds))
    with hold_folder(home):
        sys.exit(_run(home, plot, Screen(), keep=keep))


def _run(home: Path, plot: Plot, screen: Screen, *, keep: bool) -> int:
    stage: Stage | None = None
    try:
        with ExitStack() as ends, screen:
            unwind_on_signals()
            ends.callback(screen.say, "stopped; nothing is left running")
            stage = play(home, plot, screen, ends)
            _tell(stage, home / SUMMARY)
            if keep and stage.summary.seen:
                _stay(stage)
            screen.say("stopping")
    except KeyboardInterrupt:
        return INTERRUPTED if stage is None or not stage.summary.seen else 0
    return 0 if stage.summary.seen else 1


def unwind_on_signals() -> None:
    """Let Ctrl-C, SIGTERM and SIGHUP stop the main thread in order, and only once."""
    for number in SIGNALS:
        signal.signal(number, _interrupt)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Raise once; a second Ctrl-C must not interrupt the stopping."""
    for each in SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    raise KeyboardInterrupt


def _tell(stage: Stage, path: Path) -> None:
    stage.summary.write(path)
    stage.screen.console.print(stage.summary.drawn())
    if stage.summary.lag is not None:
        stage.screen.console.print(f"end-to-end lag under load: {stage.summary.lag}")
    stage.screen.console.print(f"summary: {path}")


def _stay(stage: Stage) -> None:
    """Keep writing until interrupted."""
    stage.workload.start()
    stage.screen.say(f"staying up until Ctrl-C; status page: {stage.service.url}/", "bold green")
    never = threading.Event()
    while not never.wait(2):
        stage.look()


@contextmanager
def hold_folder(home: Path, what: str = "demo", lock: str = "lock") -> Iterator[None]:
    """Create *home*, and lock it against a second *what* during the block.

    The file *lock* stays there: it shows that the next *what* may remove the content.

    Raises:
        ConfigError: another *what* uses *home*, or *home* has files that no *what* made.
    """
    if home.exists() and not (home / lock).exists() and any(home.iterdir()):
        msg = (
            f"{home} is not empty, and has no {lock}, so its files may be yours; give a new folder"
            f" as --dir, or remove this one if an earlier {what} made it"
        )
        raise ConfigError(msg)
    home.mkdir(parents=True, exist_ok=True)
    with (home / lock).open("w") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            msg = f"another {what} runs in {home}; end it with Ctrl-C, or give this one a --dir"
            raise ConfigError(msg) from None
        yield
