"""Someone who never answers, and time that passes only while all others have."""

import threading
from collections.abc import Collection
from dataclasses import dataclass, field
from functools import partial
from time import sleep
from typing import Any, NoReturn

from pipeline.errors import UnreachableError
from pipeline.parallel import DeadlinePool


@dataclass
class Hanging:
    """Whoever calls it hangs until it is released."""

    released: threading.Event = field(default_factory=threading.Event)
    stuck: list[str] = field(default_factory=list)
    seconds: float = 0.0
    _askings: list[DeadlinePool[Any]] = field(default_factory=list)

    def watched(self, *askings: DeadlinePool[Any]) -> None:
        """Let the time of *askings* pass while nobody is at it but those who hang."""
        for one in askings:
            self._askings.append(one)
            one.elapsed = partial(self._elapsed, one)

    def __call__(self, *_: object) -> NoReturn:
        """Hang."""
        self.stuck.append(threading.current_thread().name.removeprefix("ask "))
        for one in self._askings:
            one.wake()
        self.released.wait()
        raise UnreachableError("too late")

    def release(self) -> None:
        """Let go of all who hang, and wait until they have gone."""
        self.released.set()
        for one in self._askings:
            answered(one, self.stuck)

    def _elapsed(self, asking: DeadlinePool[Any]) -> float:
        going = asking.open
        self.seconds += 4 if going and going <= {*self.stuck} else 0
        return self.seconds


def answered(asking: DeadlinePool[Any], names: Collection[str]) -> None:
    """Return when none of *names* has yet to answer."""
    while asking.open & {*names}:
        sleep(0)  # let them run
