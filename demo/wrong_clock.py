"""Runs `sluice` with a clock that is wrong by the number of seconds in a file beside the store.

The clock of its timer is wrong, too, as on a machine whose clock is wrong. The clock of the Spark
process is right.
"""

import os
from datetime import datetime, tzinfo
from functools import partial
from pathlib import Path

from apscheduler.executors import base as executors
from apscheduler.schedulers import base as schedulers

from demo.clocks import SERVICE_FILE, read_service_clock
from monitor import __main__, service
from monitor.app import App

BESIDE = Path(os.environ.get("DEMO_STORE", SERVICE_FILE)).with_name(SERVICE_FILE)


class TimerTime(datetime):
    """The module `time` as the timer's modules see it."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]  # a plain one
        """Return the time of the wrong clock."""
        return read_service_clock(BESIDE).astimezone(tz)


if __name__ == "__main__":
    vars(service)["App"] = partial(App, clock=partial(read_service_clock, BESIDE))
    for module in (schedulers, executors):
        vars(module)["datetime"] = TimerTime
    __main__.main()
