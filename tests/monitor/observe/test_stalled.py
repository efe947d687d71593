from alerts.round import AlertSettings
from monitor.observe.system_checks import StalledRound
from tests.monitor.rig import Rig
from tests.monitor.store.kit import Full


def teller(rig: Rig) -> StalledRound:
    return StalledRound(AlertSettings(), rig.current, rig.store, rig.now)


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
    assert subject.startswith("SERVICE job:watch stalled: no monitoring round has ended for ")
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


def test_f121_a_stalled_round_is_a_stored_incident_that_the_next_run_clears(rig: Rig) -> None:
    minutes(rig, teller(rig), 4)
    (incident,) = rig.store.incidents.open()
    assert (incident.cause.subject, incident.cause.check) == ("job:watch", "stalled")
    assert rig.client.post(
        f"/v1/incidents/{incident.id}/acknowledgement",
        json={"who": "ann"},
        headers={"host": "sluice"},
    ).is_success

    rig.restart()
    restarted = teller(rig)
    for _ in range(3):
        rig.cycle.watch()
        minutes(rig, restarted, 1)

    assert rig.store.incidents.open() == ()
    (over,) = rig.store.incidents.list()
    assert over.state == "resolved"
    assert over.acknowledged
    assert [one.partition(":")[0] for one in told(rig)] == ["SERVICE job", "resolved"]


def test_f121_a_stall_is_sent_from_memory_while_the_store_is_full(rig: Rig) -> None:
    stalled, disk = teller(rig), Full(rig.store.database)
    minutes(rig, stalled, 60)
    assert rig.store.outbox.waiting("log", 100)[0].message.about == "job:watch"
    disk.free()
    for _ in range(3):
        rig.cycle.watch()
        minutes(rig, stalled, 1)

    assert rig.store.incidents.open() == ()
    assert [one.partition(":")[0] for one in told(rig)] == ["SERVICE job", "resolved"]
