"""What goes on in threads of its own for as long as a block does: a load, a watch, a service."""

import _thread
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Aside:
    """*work* in a thread of its own, from now on.

    Ctrl-C may strike while it is waited for, and then nothing stays locked: a lock written in C is
    taken and left whole, which those of `threading` and of executors are not.
    """

    def __init__(self, work: Callable[[], object]) -> None:
        """Begin."""
        self._failed: BaseException | None = None
        self._ended = _thread.allocate_lock()
        self._ended.acquire()
        _thread.start_new_thread(self._run, (work,))

    def wait(self) -> None:
        """Return when it has ended, however it ended."""
        with self._ended:
            pass

    def result(self) -> None:
        """Return when it has ended, and raise what it raised."""
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
    """Run all of *works* meanwhile; each returns once the event that it is given is set."""
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
