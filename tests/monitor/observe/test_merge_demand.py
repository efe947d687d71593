"""Who asks for a table at the gate, or has its day over, waits for no merge cycle."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from monitor.observe.tables import REMEMBERED, MergeDemand
from pipeline.clocks import has_passed
from tests.monitor.rig import NOON, ORDERS, USERS, Rig


class Wished(Rig):
    """A rig whose gate and watching round tell what they want."""

    def restart(self) -> None:
        """With the tables that are wanted."""
        super().restart()
        self.wanted = MergeDemand(self.clock)
        self.gate.wanted = self.cycle.wanted = self.wanted


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Wished]:
    made = Wished(tmp_path)
    made.round(2)
    yield made
    made.close()


def test_one_that_was_asked_for_is_wanted_for_a_while() -> None:
    now = [NOON]

    def clock() -> datetime:
        return now[0]

    wanted = MergeDemand(clock)
    wanted.want([USERS], NOON)
    now[0] += REMEMBERED / 2
    wanted.want([ORDERS], NOON)

    assert wanted() == {USERS, ORDERS}
    now[0] += REMEMBERED / 2
    assert wanted() == {ORDERS}


def test_a_wish_ends_once_its_table_is_complete_up_to_the_latest_cut_that_was_asked_for() -> None:
    wanted = MergeDemand(lambda: NOON)
    wanted.want([USERS, ORDERS], NOON)
    wanted.want([USERS], NOON - timedelta(hours=1))

    wanted.meet([USERS], NOON - timedelta(hours=1))
    assert wanted() == {USERS, ORDERS}
    wanted.meet([USERS], NOON)
    assert wanted() == {ORDERS}


def test_a_request_that_was_forgotten_leaves_no_later_cut_behind() -> None:
    now = [NOON]
    wanted = MergeDemand(lambda: now[0])
    wanted.want([USERS], NOON + timedelta(days=1))
    now[0] += REMEMBERED
    wanted.want([USERS], NOON)

    wanted.meet([USERS], NOON)

    assert wanted() == frozenset()


def test_a_request_for_one_table_goes_through_no_other_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wanted, names = MergeDemand(lambda: NOON), [f"shop.t{number}" for number in range(50)]
    wanted.want(names, NOON)
    gone_through = list[datetime]()

    def count(since: datetime, length: timedelta, now: datetime) -> bool:
        gone_through.append(since)
        return has_passed(since, length, now)

    monkeypatch.setattr("monitor.observe.tables.has_passed", count)
    for name in names:
        wanted.want([name], NOON)

    assert len(gone_through) == 50
    assert wanted() == {*names}


def test_a_gate_that_has_opened_for_a_job_wants_its_table_no_more(rig: Wished) -> None:
    cut = rig.clock().isoformat()
    rig.write_heartbeat()
    rig.land()
    rig.second(20)
    rig.write_heartbeat()
    assert rig.ask(USERS, cut=cut)[0] == 404
    assert rig.wanted() == {USERS}
    rig.apply(USERS)
    rig.round()

    assert rig.ask(USERS, cut=cut, stage="landed")[0] == 200
    assert rig.wanted() == {USERS}
    assert rig.ask(USERS, cut=cut)[0] == 200
    assert rig.wanted() == frozenset()


def test_a_job_that_finds_the_gate_closed_for_want_of_a_merge_wants_its_table(rig: Wished) -> None:
    cut = rig.clock().isoformat()
    rig.write_heartbeat()
    rig.land()
    rig.apply(ORDERS)
    rig.second(20)
    rig.write_heartbeat()

    assert rig.ask(ORDERS, USERS, cut=cut)[1]["state"] == "not_ready"
    assert rig.wanted() == {USERS}


def test_a_gate_that_opens_or_asks_for_what_has_landed_wants_nothing(rig: Wished) -> None:
    cut = rig.clock().isoformat()
    rig.round()
    rig.second(6)
    assert rig.ask(cut=cut)[0] == 200
    assert rig.ask(cut=rig.clock().isoformat(), stage="landed")[0] == 404

    assert rig.wanted() == frozenset()


def test_a_day_that_has_landed_whole_is_wanted_in_the_mirror_though_nobody_asks(
    rig: Wished,
) -> None:
    rig.now = NOON.replace(hour=21, minute=59, second=58)  # two seconds to midnight in Berlin
    for _ in range(3):
        rig.write_heartbeat()
    rig.land()
    rig.apply(ORDERS)
    rig.second(20)
    rig.write_heartbeat()
    rig.cycle.watch()

    assert rig.wanted() == {USERS}
    assert rig.clock() - NOON < timedelta(hours=11)


def test_a_mirror_that_is_behind_all_that_is_remembered_is_wanted_too(rig: Wished) -> None:
    """As after a first snapshot, whose last rows landed right after the mirror's first turn."""
    rig.lake.mirrors[USERS] = replace(rig.lake.mirrors[USERS], batch=0)
    rig.restart()
    cut = rig.clock().isoformat()
    rig.write_heartbeat()
    rig.land()
    rig.second(20)
    rig.write_heartbeat()

    assert rig.ask(USERS, cut=cut)[1]["state"] == "unknown"
    assert rig.wanted() == {USERS}
