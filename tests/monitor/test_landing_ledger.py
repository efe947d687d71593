"""The ledger counts each batch of a landing loop once, wherever a process of it is killed."""

from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from checks.ledger import LANDING_HOP, LedgerEntry, LedgerState, minute_of
from monitor.store.store import ServiceStore
from pipeline.errors import UnreachableError
from pipeline.model import Hop
from pipeline.reports import LandingReport
from tests.builders.harness import NOW, LandingHarness, Topics
from tests.monitor.store.blank import blank_store
from tests.pipeline.delta.disk import Disk, KilledError
from tests.pipeline.test_lane import Beside

T = "db.t"
LATER = timedelta(minutes=5)


@dataclass(eq=False)
class Counted:
    """Processes over one lake and its topics, one after the other, and the service's store."""

    home: Path

    def __post_init__(self) -> None:
        self.topics, self.sent = Topics(), 1
        self.topics.alter("a", 10, "name", kind="CREATE")
        self.store = ServiceStore.open(blank_store(self.home / "s.db"), service=True)

    def close(self) -> None:
        self.store.close()

    def begin(self, after: timedelta = timedelta()) -> Beside:
        return Beside(LandingHarness(self.home / "lake", self.topics, now=NOW + after))

    def send(self, count: int) -> None:
        for _ in range(count):
            self.topics.put("a", 100 + self.sent, "x", key=self.sent)
            self.sent += 1

    def land(self, process: Beside) -> None:
        """Land a batch, and report it."""
        self.store.ledger.add_landing(land(process))

    def apply(self, process: Beside) -> None:
        """Merge what has landed, and report it."""
        for _ in range(2):
            process.apply()
        self.store.ledger.add_merges("main", process.turns, NOW)

    def entries(self, hop: str) -> tuple[LedgerEntry, ...]:
        first, last = minute_of(NOW), minute_of(NOW + LATER)
        return self.store.ledger.entries(T, first, last + 1)[hop]


def land(process: Beside) -> LandingReport:
    return process.lane.land(frozenset())


def kill(lake: Counted, step: int) -> Disk:
    """Kill a landing before this *step* on the disk; its batch is reported to nothing."""
    disk = Disk(step)
    disk.event = disk.kill
    dying = lake.begin()
    with disk.mounted(), suppress(KilledError):
        land(dying)
    return disk


def test_a_landing_that_is_killed_at_any_step_is_counted_once_or_its_minutes_are_unknown(
    tmp_path: Path,
) -> None:
    unreported, step, dead = set[int](), 0, True
    while dead:
        step += 1
        with closing(Counted(tmp_path / f"{step}")) as lake:
            lake.send(2)
            lake.land(lake.begin())
            lake.send(2)
            dead = kill(lake, step).dead
            lake.send(1)
            after = lake.begin(LATER)
            lake.land(after)
            lake.apply(after)

            found = lake.entries(LANDING_HOP)
            lost = lake.sent - sum(one.went_in["messages"] for one in found)
            known = LedgerState.UNKNOWN if lost else LedgerState.BALANCED
            assert {one.state for one in found} == {known}
            assert {one.state for one in lake.entries(Hop.MERGE)} == {known}
            assert set(lake.store.ledger.residuals().values()) == {None if lost else 0}
        unreported.add(lost)
    assert unreported == {0, 2}, "killed before its commit, and after it"


def test_a_commit_of_which_the_process_does_not_learn_is_unknown(tmp_path: Path) -> None:
    with closing(Counted(tmp_path)) as lake:
        process = lake.begin()
        lake.send(2)
        log = process.harness.loop.log
        put = log.put

        def fall_silent(*what: Any) -> None:
            put(*what)
            raise UnreachableError("the store does not answer")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(log, "put", fall_silent)
            with pytest.raises(UnreachableError):
                land(process)
        lake.send(1)
        lake.land(process)
        lake.apply(process)

        for hop in (LANDING_HOP, Hop.MERGE):
            assert {one.state for one in lake.entries(hop)} == {LedgerState.UNKNOWN}
        assert lake.entries(LANDING_HOP)[0].went_in["messages"] == 1
        assert lake.store.ledger.losses() == {}
