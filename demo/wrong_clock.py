"""`sluice`, but its clock is wrong by as many seconds as a file beside the store says.

So is its timer's, as on a machine whose clock is wrong.  The Spark process goes on as it was.
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
    """The time as the timer's modules read it."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]  # a plain one
        """Read the wrong clock."""
        return read_service_clock(BESIDE).astimezone(tz)


if __name__ == "__main__":
    vars(service)["App"] = partial(App, clock=partial(read_service_clock, BESIDE))
    for module in (schedulers, executors):
        vars(module)["datetime"] = TimerTime
    __main__.main()
