"""`sluice`, but its clock is wrong by as many seconds as a file beside the store says.

So is its timer's, as on a machine whose clock is wrong.  The Spark process goes on as it was.
"""

import os
from datetime import UTC, datetime, timedelta, tzinfo
from functools import partial
from pathlib import Path

from apscheduler.executors import base as executors
from apscheduler.schedulers import base as schedulers

from monitor import __main__, service
from monitor.app import App

FILE = "clock"
BESIDE = Path(os.environ.get("DEMO_STORE", FILE)).with_name(FILE)


def wrong(path: Path) -> datetime:
    """What the clock shows."""
    try:
        seconds = float(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        seconds = 0.0
    return datetime.now(UTC) + timedelta(seconds=seconds)


class TimerTime(datetime):
    """The time as the timer's modules read it."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]  # a plain one
        return wrong(BESIDE).astimezone(tz)


if __name__ == "__main__":
    vars(service)["App"] = partial(App, clock=partial(wrong, BESIDE))
    for module in (schedulers, executors):
        vars(module)["datetime"] = TimerTime
    __main__.main()
