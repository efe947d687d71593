"""Become another program, in its own session, that dies when the process that started it dies.

Run as a script: `leash.py PARENT command...`; PARENT is 0 for a program that must stay. It is a
program and not a `preexec_fn`, so that no Python runs between fork and exec of a parent with
threads.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1  # prctl(2)


def main(parent: int, command: list[str]) -> None:
    """Replace this process by *command*; never returns."""
    os.setsid()
    if parent:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # the parent died before the death signal was set
            sys.exit(1)
    os.execv(command[0], command)  # noqa: S606 - becoming it, without a shell, is the point


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
