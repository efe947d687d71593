"""Covers monitor/observe/stalled.py: a round that hangs is told by somebody else."""

from alerts.round import AlertSettings
from monitor.observe.stalled import StalledRound
from tests.monitor.rig import Rig


def teller(rig: Rig) -> StalledRound:
    store = rig.store
    return StalledRound(AlertSettings(), rig.current, store.outbox, store.silences.list, rig.now)


def minutes(rig: Rig, stalled: StalledRound, count: int) -> None:
    """Nobody watches; every ten seconds the postman comes by."""
    for _ in range(count * 6):
        rig.second(10)
        stalled.tell(rig.now)


def told(rig: Rig) -> list[str]:
    return [letter.message.subject for letter in rig.store.outbox.waiting("log", 100)]


def test_f37_a_watch_that_hangs_is_told_though_it_holds_its_lock(rig: Rig) -> None:
    stalled = teller(rig)
    rig.round()
    with rig.recorder.deciding:
        minutes(rig, stalled, 4)

    (subject,) = told(rig)
    assert subject.startswith("SERVICE job:watch stalled: no watching round has ended for ")
    (letter,) = rig.store.outbox.waiting("log", 100)
    assert letter.message.runbook == "docs/runbooks/service.md#stalled"


def test_f37_a_watch_that_never_ended_its_first_round_is_told_too(rig: Rig) -> None:
    minutes(rig, teller(rig), 4)

    assert len(told(rig)) == 1


def test_f37_that_it_turns_again_is_told(rig: Rig) -> None:
    stalled = teller(rig)
    minutes(rig, stalled, 4)
    for _ in range(3):
        rig.cycle.watch()
        minutes(rig, stalled, 1)

    assert [subject.partition(":")[0] for subject in told(rig)] == ["SERVICE job", "resolved"]


def test_f37_a_watch_that_is_slow_for_a_minute_is_told_to_nobody(rig: Rig) -> None:
    stalled = teller(rig)
    for _ in range(5):
        rig.cycle.watch()
        rig.second(100)
        stalled.tell(rig.now)
        rig.cycle.watch()
        stalled.tell(rig.now)

    assert told(rig) == []
