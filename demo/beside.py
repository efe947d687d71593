"""What goes on in threads of its own for as long as a block does: a load, a watch, a service."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


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
