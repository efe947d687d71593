import threading
from contextlib import suppress

from demo.beside import beside


def test_all_goes_on_side_by_side_until_the_block_has_ended_however_that_was() -> None:
    met, ended = threading.Barrier(3, timeout=30), list[str]()

    def work(over: threading.Event) -> None:
        met.wait()
        over.wait(30)
        ended.append("done")

    with suppress(KeyError), beside(work, work):
        met.wait()
        raise KeyError

    assert ended == ["done", "done"]
