"""How long tests wait for a server that is asked: limits of which none is about time.

A machine that stalls for seconds is slow, not wrong; what a test proves of a limit it sets itself.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import TypeVar

from demo.processes import wait_until
from pipeline.errors import UnreachableError
from pipeline.sources.limits import Limits

SOON = timedelta(minutes=3)
PATIENT = Limits(statement=SOON, call=SOON, connect=SOON)
T = TypeVar("T")


def answered(asked: Callable[[], T]) -> T:
    """What is answered in the end, by a source with little patience on a slow machine."""
    found: list[T] = []

    def answers() -> bool:
        try:
            found.append(asked())
        except UnreachableError:
            return False
        return True

    wait_until(answers, SOON, "an answer")
    return found[0]
