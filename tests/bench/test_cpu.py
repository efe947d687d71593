"""What a process and those below it take is counted, whoever they are."""

import os
import subprocess
import sys

from bench.kit.cpu import spent

BUSY = "import time; began = time.process_time()\nwhile time.process_time() - began < 0.3: pass"


def test_what_a_child_took_is_counted_once_it_has_ended() -> None:
    before = spent()

    subprocess.run([sys.executable, "-c", BUSY], check=True)

    assert spent() - before >= 0.3


def test_a_process_that_is_left_out_is_not_counted() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", f"{BUSY}\nprint('done', flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        every, without = spent(), spent([child.pid])
        child.communicate(b"\n")

    assert every - without >= 0.3 - 2 / os.sysconf("SC_CLK_TCK")
