"""Runs work in its own threads while a block runs: a load, a watch, a service."""

import _thread
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Aside:
    """Runs *work* in a new thread, at once.

    If Ctrl-C interrupts a wait, nothing stays locked: a lock written in C is acquired and released
    atomically, unlike those of `threading` and of executors.
    """

    def __init__(self, work: Callable[[], object]) -> None:
        """Start the thread."""
        self._failed: BaseException | None = None
        self._ended = _thread.allocate_lock()
        self._ended.acquire()
        _thread.start_new_thread(self._run, (work,))

    def wait(self) -> None:
        """Return when the work has ended, also after an error."""
        with self._ended:
            pass

    def result(self) -> None:
        """Return when the work has ended; raise its error."""
        self.wait()
        if self._failed is not None:
            raise self._failed

    def _run(self, work: Callable[[], object]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - raised where the result is asked for
            self._failed = error
        finally:
            self._ended.release()


@contextmanager
def beside(*works: Callable[[threading.Event], object]) -> Iterator[None]:
    """Run all of *works* during the block; each must return once its event is set."""
    ended = threading.Event()
    threads = [threading.Thread(target=one, args=(ended,)) for one in works]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join()
