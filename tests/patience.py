"""How long tests wait for a server that is asked: limits of which none is about time.

A machine that stalls for seconds is slow, not wrong; what a test proves of a limit it sets itself.
"""

import re
import time
from collections.abc import Callable
from datetime import timedelta
from typing import TypeVar

from demo.processes import pause_after
from pipeline.errors import UnreachableError

SOON = timedelta(minutes=3)  # against hanging only
SLOW = r": slow: |[Tt]ime(d )?[Oo]ut|not read within"  # of sources, of clients, of a transport
T = TypeVar("T")


def answered(
    asked: Callable[[], T],
    *,
    meanwhile: type[Exception] = UnreachableError,
    says: str = SLOW,
    within: timedelta = SOON,
) -> T:
    """What is answered in the end, by who has little patience on a slow machine.

    Asked again while the error is of *meanwhile* and its text fits *says*.  Any other is raised at
    once, and the last one of these when the time is over.
    """
    began = time.monotonic()
    while True:
        try:
            return asked()
        except meanwhile as error:
            if not re.search(says, str(error)):
                raise
            waited = time.monotonic() - began
            if waited > within.total_seconds():
                error.add_note(f"asked again for {within.total_seconds():.0f} s")
                raise
        time.sleep(pause_after(waited))


def wait_for(condition: Callable[[], object], within: timedelta = SOON, what: str = "") -> None:
    """Return once *condition* is true; fail, and name *what* was waited for, if it never is."""
    began = time.monotonic()
    while not condition():
        waited = time.monotonic() - began
        assert waited < within.total_seconds(), f"not in time: {what or condition}"
        time.sleep(pause_after(waited, least=0.01))
