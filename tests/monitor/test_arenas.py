"""In a process of its own: what is limited stays so."""

import subprocess
import sys

import pytest

PROGRAM = """
import ctypes, sys, threading
from monitor.runtime import limit_arenas
if sys.argv[1] == "limited":
    assert limit_arenas()
libc, gate = ctypes.CDLL(None), threading.Barrier(9)
def take():
    libc.malloc(100_000)
    gate.wait()
threads = [threading.Thread(target=take) for _ in range(8)]
[one.start() for one in threads]
gate.wait()
libc.malloc_stats()
"""


@pytest.mark.parametrize(("how", "few"), [("limited", True), ("as it is", False)])
def test_threads_share_two_pools_of_memory(how: str, few: bool) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, how], capture_output=True, text=True, check=True
    )

    pools = done.stderr.count("Arena ")
    assert pools > 0
    assert (pools <= 2) == few
