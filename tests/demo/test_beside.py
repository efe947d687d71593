import threading
from contextlib import suppress

import pytest

from demo.beside import Aside, beside


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


def test_what_goes_on_aside_is_waited_for_and_raises_where_its_result_is_asked_for() -> None:
    go = threading.Event()

    def work() -> None:
        go.wait(30)
        raise KeyError

    aside = Aside(work)
    go.set()
    aside.wait()

    with pytest.raises(KeyError):
        aside.result()
