"""How does the interpreter let threads that answer have their turn while others compute?"""

import gc
import sys

SWITCH = 0.0005  # s: an answer takes several turns, and waits for each while a round computes
YOUNG, MIDDLE, OLD = 1_000, 2, 1_000_000  # of 50,000 at once a look took 35 ms


def prefer_answers() -> None:
    """Have threads take turns often, and nobody wait while all that is old is looked through.

    Of thousands of tables that takes half a second, once in each round, in which no thread runs;
    it finds nothing, since what a round leaves behind is in no circle.  See `look_through`.
    """
    sys.setswitchinterval(SWITCH)
    gc.set_threshold(YOUNG, MIDDLE, OLD)


def look_through() -> None:
    """Free what has grown old in a circle; for a job that runs rarely."""
    gc.collect()
