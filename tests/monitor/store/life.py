"""A service's life in small: rounds with ticks, verdicts, incidents, letters; said when kept.

Run as ``python -m tests.monitor.store.life PATH``.  Each line on its input, the number of a first
round, starts a life in a process of its own (forked, so that a life does not begin with seconds of
imports).  It prints its process id, then each round's number *after* all of it was committed:
whatever is printed must be found after a kill.  ``dead`` follows its end.
"""

import os
import sys
from datetime import timedelta

from alerts.outbox import ChannelHealth, health_after_success
from alerts.round import AlertSettings, settle_round
from alerts.routing import Route
from monitor.store.store import ServiceStore
from tests.alerts.kit import START, verdict

HARNESS = AlertSettings((Route(channels=("log", "slack")),))
QUEUED_NOTIFICATIONS = "FF?PPFP?"


def live(path: str, first: int) -> None:
    store = ServiceStore.open(path, service=True)
    say(f"{os.getpid()}")
    store.ticks.interrupted(START + timedelta(seconds=first))
    number = first
    while True:
        play(store, number)
        say(f"{number}")
        number += 1


def say(line: str) -> None:
    os.write(sys.stdout.fileno(), f"{line}\n".encode())


def play(store: ServiceStore, number: int) -> None:
    """One round: a tick around a verdict that changes an incident, then one delivery."""
    now = START + timedelta(seconds=number)
    store.ticks.start("cycle", now, now)
    verdicts = [verdict(QUEUED_NOTIFICATIONS[number % len(QUEUED_NOTIFICATIONS)], run=str(number))]
    settled = settle_round(HARNESS, store.incidents.open(), verdicts, (), now)
    store.record(settled, verdicts, now)
    letters = store.outbox.waiting("log", 1)
    if letters:
        store.outbox.delivered(letters, health_after_success(ChannelHealth(), now), now)
    store.ticks.finish("cycle", now, now, "done")


def bear(path: str) -> None:
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            live(path, int(line))
        os.waitpid(child, 0)
        say("dead")


if __name__ == "__main__":
    bear(sys.argv[1])
