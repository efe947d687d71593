from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import event

from alerts.model import IncidentState, Member
from alerts.round import AlertSettings, Round, settle
from alerts.routing import Route
from monitor.store.store import ServiceStore
from tests.alerts.kit import at, firing, message, minutes, verdict

DESK = AlertSettings((Route(channels=("log", "slack")),))


def cycle(store: ServiceStore, letters: str, minute: float) -> Round:
    verdicts = [verdict(letters, minute=minute)]
    now = at(minute)
    settled = settle(DESK, store.incidents.open(), verdicts, store.silences.list(now), now)
    store.record(settled, verdicts, now)
    return settled


def test_a_loss_leaves_verdict_incident_and_letters(store: ServiceStore) -> None:
    settled = cycle(store, "F", 0)

    assert store.incidents.open() == settled.changed
    assert store.verdicts.latest() == (verdict("F"),)
    assert store.outbox.counts() == {("log", "waiting"): 1, ("slack", "waiting"): 1}
    assert store.outbox.waiting("log", 9)[0].message == settled.letters[0][1]


def test_nothing_is_kept_of_a_round_that_fails_half_way(store: ServiceStore) -> None:
    broken = replace(message(), at=message().at.replace(tzinfo=None), subject=object())  # type: ignore[arg-type]
    settled = Round(changed=(firing(),), letters=(("log", broken),))

    with pytest.raises(Exception, match=r"serializ"):
        store.record(settled, [verdict("F")], at(0))

    assert store.incidents.open() == ()
    assert store.verdicts.latest() == ()


def test_open_incidents_are_found_without_going_through_those_that_ended(
    store: ServiceStore,
) -> None:
    plans, asked = list[str](), list[tuple[str, Any]]()
    engine = store.database.engine

    def note(*said: Any) -> None:
        asked.append((str(said[2]), said[3]))

    event.listen(engine, "before_cursor_execute", note)
    store.incidents.open()
    event.remove(engine, "before_cursor_execute", note)
    with store.database.read() as connection:
        for text, values in asked:
            if text.startswith("SELECT"):
                found = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}", values)
                plans += [str(row[-1]) for row in found]

    assert any("incidents_by_state" in plan for plan in plans)
    assert not any(plan.startswith("SCAN incidents") for plan in plans)


def test_a_whole_episode_over_restarts_of_the_store(store: ServiceStore) -> None:
    path = store.database.path
    told = []
    for minute, letter in enumerate("FF?PPF"):
        store.close()
        store = ServiceStore.open(path, service=True)
        told += [notice.event.value for notice in cycle(store, letter, minute).notices]
    history = store.incidents.list()
    store.close()

    assert told == ["fired", "cleared", "fired"]
    assert [incident.state for incident in history] == [
        IncidentState.FIRING,
        IncidentState.RESOLVED,
    ]


def test_a_blip_that_never_fired_is_forgotten(store: ServiceStore) -> None:
    patient = AlertSettings((Route(hold=minutes(5)),))
    first = settle(patient, (), [verdict("F")], (), at(0))
    store.record(first, [], at(0))
    second = settle(patient, store.incidents.open(), [verdict("P")], (), at(1))
    store.record(second, [], at(1))

    assert store.incidents.list() == ()


def test_a_round_that_began_before_an_acknowledgement_does_not_undo_it(store: ServiceStore) -> None:
    cycle(store, "F", 0)
    (stale,) = store.incidents.open()

    store.incidents.acknowledge(stale.id, "on call", at(1))
    store.incidents.keep([replace(stale, seen=at(2))])

    (kept,) = store.incidents.open()
    assert kept.acknowledged is not None
    assert (kept.acknowledged.who, kept.seen) == ("on call", at(2))
    assert not store.incidents.acknowledge("no such id", "on call", at(1))


def test_incidents_are_listed_by_state_and_found_by_id(store: ServiceStore) -> None:
    one = firing()
    two = replace(firing(Member("shop.users", "lag")), state=IncidentState.RESOLVED)
    store.incidents.keep([one, two])

    assert store.incidents.list([IncidentState.FIRING]) == (one,)
    assert store.incidents.get(two.id) == two
    assert store.incidents.get("no such id") is None
    assert store.prune(at(60 * 24 * 400))["incidents"] == 1
