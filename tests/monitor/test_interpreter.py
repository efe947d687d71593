"""In a process of its own: what is set there stays so."""

import subprocess
import sys

PROGRAM = """
import gc, sys
from monitor.runtime import look_through, prefer_answers

full, middle = [], []
gc.callbacks.append(lambda phase, told: full.append(phase) if told["generation"] == 2 else None)
gc.callbacks.append(lambda phase, told: middle.append(phase) if told["generation"] == 1 else None)
prefer_answers()
class Ring: pass
def ring():
    one = Ring(); one.me = one
kept = []
full.clear(); middle.clear()
for number in range(100_000):
    kept.append([number]); ring()
at_once = 100_000 // max(1, len(middle) // 2)
young, switch = len(full), sys.getswitchinterval()
look_through()
rings = sum(isinstance(one, Ring) for one in gc.get_objects())
print(young, len(full), switch, at_once < 5_000, rings)
"""


def test_what_is_old_is_looked_through_when_it_is_asked_for_and_not_while_somebody_waits() -> None:
    told = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )

    assert told.stdout.split() == ["0", "2", "0.0005", "True", "0"]
