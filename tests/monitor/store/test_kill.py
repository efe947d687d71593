"""What was accepted survives ``kill -9`` at any moment."""

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import text

from alerts.model import IncidentState
from monitor.store.store import ServiceStore
from pipeline.spark.jars import ROOT
from tests.alerts.kit import START
from tests.example_count import examples
from tests.monitor.store.life import QUEUED_NOTIFICATIONS

LIVES = examples(12, brief=3)


class Lives:
    """One life after another, on one store, each killed."""

    def __init__(self, path: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self.life: int | None = None
        self.mother = subprocess.Popen(
            [sys.executable, "-m", "tests.monitor.store.life", str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            text=True,
        )

    def one(self, first: int) -> int:
        """Let it live for some rounds, kill it somewhere in the next; the last it accepted."""
        self.tell(first)
        self.life = int(self.hear())
        accepted = first - 1
        for _ in range(self.chance.randint(1, 25)):
            accepted = int(self.hear())
        for _ in range(self.chance.randrange(200_000)):  # somewhere in the round, without a clock
            pass
        os.kill(self.life, signal.SIGKILL)
        while (word := self.hear()) != "dead":
            accepted = int(word)
        self.life = None
        return accepted

    def tell(self, first: int) -> None:
        assert self.mother.stdin is not None
        self.mother.stdin.write(f"{first}\n")
        self.mother.stdin.flush()

    def hear(self) -> str:
        assert self.mother.stdout is not None
        line = self.mother.stdout.readline().strip()
        assert line, "it died by itself"
        return line

    def end(self) -> None:
        if self.life is not None:
            os.kill(self.life, signal.SIGKILL)
        self.mother.communicate(timeout=120)


@pytest.fixture(scope="module")
def survivor(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """A store that lived through many kills, and the last round that was said to be kept."""
    path = tmp_path_factory.mktemp("kill") / "sluice.db"
    lives = Lives(path, seed=7)
    accepted = -1
    try:
        for _ in range(LIVES):
            accepted = lives.one(accepted + 2)  # the round in flight is never played again
    finally:
        lives.end()
    return path, accepted


@pytest.fixture
def store(survivor: tuple[Path, int]) -> Iterator[ServiceStore]:
    opened = ServiceStore.open(survivor[0], service=True)
    yield opened
    opened.close()


def test_the_lock_of_a_killed_service_is_free_and_its_file_is_whole(store: ServiceStore) -> None:
    with store.database.read() as connection:
        assert connection.scalar(text("PRAGMA integrity_check")) == "ok"


def test_every_accepted_tick_has_its_end(store: ServiceStore, survivor: tuple[Path, int]) -> None:
    store.ticks.interrupted(START + timedelta(days=1))

    ticks = store.ticks.list(limit=10_000)

    done = {tick.planned for tick in ticks if tick.result == "done"}
    assert START + timedelta(seconds=survivor[1]) in done
    assert {tick.result for tick in ticks} <= {"done", "failed"}
    assert sum(tick.result == "failed" for tick in ticks) <= LIVES
    totals = store.ticks.totals()
    assert sum(totals.values()) == len(ticks)


def test_every_finished_round_has_its_verdict(store: ServiceStore) -> None:
    rounds = {verdict.run for verdict in store.verdicts.list(limit=10_000)}

    ticks = store.ticks.list(result="done", limit=10_000)
    assert ticks
    for tick in ticks:
        assert str((tick.planned - START) // timedelta(seconds=1)) in rounds


def test_every_telling_is_in_the_outbox_of_each_channel(store: ServiceStore) -> None:
    told = sum(incident.notices for incident in store.incidents.list(limit=10_000))
    counts = store.outbox.counts()

    assert told > LIVES
    assert counts["slack", "waiting"] == told
    assert counts.get(("log", "waiting"), 0) + counts["log", "delivered"] == told


def test_incidents_are_what_their_verdicts_make_of_them(store: ServiceStore) -> None:
    lost = [one for one in store.incidents.list(limit=10_000) if one.cause.kind == "lost"]
    runs = sorted(int(verdict.run) for verdict in store.verdicts.list(limit=10_000))
    known = [
        QUEUED_NOTIFICATIONS[run % len(QUEUED_NOTIFICATIONS)]
        for run in runs
        if QUEUED_NOTIFICATIONS[run % len(QUEUED_NOTIFICATIONS)] != "?"
    ]
    episodes = sum(
        letter == "F" and before == "P"
        for before, letter in zip(["P", *known], known, strict=False)
    )

    assert len(lost) == episodes
    still = [one for one in lost if one.state is not IncidentState.RESOLVED]
    assert len(still) == (known[-1] == "F")
