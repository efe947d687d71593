from dataclasses import replace

import pytest

from alerts.model import IncidentState, Member
from alerts.outbox import ChannelHealth, sent
from alerts.round import AlertSettings, Round, settle
from alerts.routing import Route
from alerts.silence import Silence
from monitor.store.outbox import StoredOutbox
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


def test_a_message_is_taken_once_per_channel(store: ServiceStore) -> None:
    letters = [("log", message(1)), ("slack", message(1)), ("log", message(1))]

    assert store.outbox.put(letters, at(0)) == 2
    assert store.outbox.put(letters, at(1)) == 0
    assert store.outbox.channels() == ("log", "slack")


def test_a_delivered_message_is_not_taken_again(store: ServiceStore) -> None:
    store.outbox.put([("log", message(1))], at(0))
    store.outbox.delivered(store.outbox.waiting("log", 9), ChannelHealth(), at(1))

    assert store.outbox.put([("log", message(1))], at(2)) == 0
    assert store.outbox.waiting("log", 9) == ()


def test_letters_wait_in_the_order_of_putting(store: ServiceStore) -> None:
    store.outbox.put([("log", message(n)) for n in (3, 1, 2)], at(0))

    waiting = store.outbox.waiting("log", 2)

    assert [letter.message.id for letter in waiting] == [message(3).id, message(1).id]


def test_a_channel_keeps_its_standing_over_a_restart(store: ServiceStore) -> None:
    standing = sent(ChannelHealth(failures=3, why="down", not_before=at(9)), at(1))
    store.outbox.fare("slack", standing)

    assert store.outbox.standing("slack") == standing
    assert store.outbox.standing("log") == ChannelHealth()


def test_what_does_not_fit_is_kept_as_dead_letters_oldest_first(store: ServiceStore) -> None:
    outbox = StoredOutbox(store.database, room=3)

    outbox.put([("log", message(n)) for n in range(5)], at(0))

    assert [each.message.id for each in outbox.waiting("log", 9)] == [
        message(n).id for n in (2, 3, 4)
    ]
    pile = outbox.pile("log")
    assert (pile.waiting, pile.dead, pile.why) == (3, 2, "the outbox was full")


def test_old_letters_go_but_waiting_ones_never(store: ServiceStore) -> None:
    store.outbox.put([("log", message(n)) for n in range(3)], at(0))
    first, second, _ = store.outbox.waiting("log", 9)
    store.outbox.delivered([first], ChannelHealth(), at(1))
    store.outbox.bury([second], "refused", at(1))

    assert store.outbox.prune(at(60 * 24 * 31)) == 2
    assert store.outbox.counts() == {("log", "waiting"): 1}


def test_silences_last_until_their_end_and_can_be_ended_early(store: ServiceStore) -> None:
    one = Silence("one", at(0), at(10), "on call", "upgrade")
    store.silences.add(one)

    assert store.silences.list(at(9)) == (one,)
    assert store.silences.list(at(10)) == ()
    store.silences.add(replace(one, end=at(1)))
    assert store.silences.list(at(9)) == ()
