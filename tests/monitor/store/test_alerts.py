from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import event

from alerts.model import IncidentState, Member, Silence
from alerts.outbox import ChannelHealth, health_after_success
from alerts.round import AlertSettings, Round, settle_round
from alerts.routing import Route
from monitor.store.alerts import StoredOutbox, Waiver, Waivers
from monitor.store.store import ServiceStore
from tests.alerts.kit import at, firing, message, minutes, verdict
from tests.monitor.store.kit import NOW, SECOND, ReadOnly

HARNESS = AlertSettings((Route(channels=("log", "slack")),))


def cycle(store: ServiceStore, letters: str, minute: float) -> Round:
    verdicts = [verdict(letters, minute=minute)]
    now = at(minute)
    settled = settle_round(HARNESS, store.incidents.open(), verdicts, store.silences.list(now), now)
    store.record(settled, verdicts, now)
    return settled


def test_a_loss_leaves_verdict_incident_and_letters(store: ServiceStore) -> None:
    settled = cycle(store, "F", 0)

    assert store.incidents.open() == settled.changed
    assert store.verdicts.latest() == (verdict("F"),)
    assert store.outbox.counts() == {("log", "waiting"): 1, ("slack", "waiting"): 1}
    assert store.outbox.waiting("log", 9)[0].message == settled.messages[0][1]


def test_nothing_is_kept_of_a_round_that_fails_half_way(store: ServiceStore) -> None:
    broken = replace(message(), at=message().at.replace(tzinfo=None), subject=object())  # type: ignore[arg-type]
    settled = Round(changed=(firing(),), messages=(("log", broken),))

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
    first = settle_round(patient, (), [verdict("F")], (), at(0))
    store.record(first, [], at(0))
    second = settle_round(patient, store.incidents.open(), [verdict("P")], (), at(1))
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


def test_an_acknowledgement_ends_once_the_loss_has_grown(store: ServiceStore) -> None:
    stale = firing()
    store.record(Round(changed=(stale,)), (), at(0))
    store.incidents.acknowledge(stale.id, "on call", at(1))
    store.record(Round(changed=(replace(stale, worse=at(2)),)), (), at(2))

    (grown,) = store.incidents.open()
    store.incidents.acknowledge(stale.id, "on call", at(3))
    (again,) = store.incidents.open()

    assert grown.acknowledged is None
    assert again.acknowledged is not None


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
    standing = health_after_success(ChannelHealth(failures=3, why="down", not_before=at(9)), at(1))
    store.outbox.set_health("slack", standing)

    assert store.outbox.health("slack") == standing
    assert store.outbox.health("log") == ChannelHealth()


def test_what_does_not_fit_is_kept_as_dead_letters_oldest_first(store: ServiceStore) -> None:
    outbox = StoredOutbox(store.database, room=3)

    outbox.put([("log", message(n)) for n in range(5)], at(0))

    assert [each.message.id for each in outbox.waiting("log", 9)] == [
        message(n).id for n in (2, 3, 4)
    ]
    pile = outbox.backlog("log")
    assert (pile.waiting, pile.dead, pile.why) == (3, 2, "the queue of the channel was full")


def test_old_letters_go_but_waiting_ones_never(store: ServiceStore) -> None:
    store.outbox.put([("log", message(n)) for n in range(3)], at(0))
    first, second, _ = store.outbox.waiting("log", 9)
    store.outbox.delivered([first], ChannelHealth(), at(1))
    store.outbox.dead_letter([second], "refused", at(1))

    assert store.outbox.prune(at(60 * 24 * 31)) == 2
    assert store.outbox.counts() == {("log", "waiting"): 1}


def test_f143_letters_that_cannot_be_read_are_given_up_and_hold_up_no_other(
    store: ServiceStore,
) -> None:
    store.outbox.put([("log", message(n)) for n in range(4)], at(0))
    store.outbox.set_health("log", ChannelHealth(failures=3))
    with store.write() as connection:
        connection.exec_driver_sql("UPDATE outbox SET message = '{}' WHERE number = 1")
        connection.exec_driver_sql("UPDATE outbox SET put = 'soon' WHERE number = 2")
        connection.exec_driver_sql("UPDATE standings SET body = 'fine'")
    outbox = StoredOutbox(store.database)

    assert (outbox.backlog("log").waiting, outbox.backlog("log").since) == (4, at(0))
    outbox.waiting("log", 2)
    waiting = outbox.waiting("log", 2)

    assert [letter.message.id for letter in waiting] == [message(2).id, message(3).id]
    pile = outbox.backlog("log")
    assert (pile.waiting, pile.dead, pile.why) == (2, 2, "its row in the store is unreadable")
    assert outbox.health("log") == ChannelHealth()
    assert store.database.unreadable == 3


def waiting_ids(outbox: StoredOutbox, channel: str) -> list[str]:
    return [letter.message.id for letter in outbox.waiting(channel, 99)]


def test_in_memory_a_channel_that_is_down_pushes_out_no_letter_of_another(
    store: ServiceStore,
) -> None:
    outbox = StoredOutbox(store.database, room=3)
    outbox.hold([("log", message(n)) for n in range(2)], at(0))
    outbox.hold([("slack", message(n)) for n in range(9)], at(1))

    assert waiting_ids(outbox, "log") == [message(n).id for n in range(2)]
    assert waiting_ids(outbox, "slack") == [message(n).id for n in (6, 7, 8)]


def test_in_memory_letters_that_were_delivered_push_out_none_that_wait(
    store: ServiceStore,
) -> None:
    ReadOnly(store.database)
    outbox = StoredOutbox(store.database, room=3)
    outbox.hold([("log", message(0))], at(0))
    for number in range(3):
        outbox.hold([("slack", message(number))], at(1))
        outbox.delivered(outbox.waiting("slack", 1), ChannelHealth(), at(1))

    assert waiting_ids(outbox, "log") == [message(0).id]


def test_in_memory_letters_that_were_delivered_are_bounded_too(store: ServiceStore) -> None:
    disk = ReadOnly(store.database)
    outbox = StoredOutbox(store.database, room=3)
    for number in range(9):
        outbox.hold([("log", message(number))], at(number))
        outbox.delivered(outbox.waiting("log", 1), ChannelHealth(), at(number))
    outbox.hold([("log", message(9))], at(9))
    disk.free()
    outbox.catch_up(at(9))

    assert outbox.counts() == {("log", "delivered"): 3, ("log", "waiting"): 1}


def test_silences_last_until_their_end_and_can_be_ended_early(store: ServiceStore) -> None:
    one = Silence("one", at(0), at(10), "on call", "upgrade")
    store.silences.add(one)

    assert store.silences.list(at(9)) == (one,)
    assert store.silences.list(at(10)) == ()
    store.silences.add(replace(one, end=at(1)))
    assert store.silences.list(at(9)) == ()


def test_a_waiver_stands_as_it_was_first_given(store: ServiceStore) -> None:
    first = Waiver("gap-1", "the topic was a test", "on call", NOW)

    assert store.waivers.add(first)
    assert not store.waivers.add(replace(first, reason="another"))
    assert store.waivers.waived() == frozenset({"gap-1"})
    assert store.waivers.list() == (first,)


def test_f103_a_waiver_that_was_withdrawn_or_is_over_is_given_again(store: ServiceStore) -> None:
    waivers, now = store.waivers, [NOW]
    waivers.clock = lambda: now[0]
    assert waivers.add(Waiver("gap-1", "a test", "me", NOW, until=NOW + SECOND))
    assert waivers.add(Waiver("gap-2", "a test", "me", NOW))
    assert waivers.waived() == {"gap-1", "gap-2"}

    now[0] = NOW + SECOND
    assert waivers.waived() == {"gap-2"}
    assert waivers.withdraw("gap-2", who="you", why="no test", at=now[0])
    assert not waivers.withdraw("gap-1", who="you", why="it is over", at=now[0])
    assert waivers.waived() == frozenset()
    assert waivers.ever_waived() == {"gap-1", "gap-2"}

    assert waivers.add(Waiver("gap-1", "again", "me", now[0]))
    assert waivers.waived() == {"gap-1"}


def test_f103_only_waivers_that_were_given_before_end_with_what_they_cover(
    store: ServiceStore,
) -> None:
    waivers, at = store.waivers, NOW + SECOND
    waivers.clock = lambda: at
    for id_, given in (("p:t:1", NOW), ("p:t:2", at + SECOND), ("p:u:1", NOW)):
        assert waivers.add(Waiver(id_, "a test", "me", given))

    assert waivers.end("p:t:", why="p passed", at=at) == 1
    assert waivers.end("p:t:", why="p passed", at=at) == 0

    assert waivers.waived() == {"p:t:2", "p:u:1"}


@pytest.mark.parametrize(
    "damage",
    ["until = 'soon'", "withdrawn = 'never'", "at = 1e300", "reason = CAST(x'ff' AS TEXT)"],
)
def test_f143_a_waiver_that_cannot_be_read_waives_nothing(store: ServiceStore, damage: str) -> None:
    broken, sound = Waiver("gap-1", "a test", "me", NOW), Waiver("gap-2", "a test", "me", NOW)
    store.waivers.add(broken)
    store.waivers.add(sound)
    with store.write() as connection:
        connection.exec_driver_sql(f"UPDATE waivers SET {damage} WHERE id = 'gap-1'")

    reopened = Waivers(store.database)

    assert reopened.waived() == {"gap-2"}
    assert reopened.list() == (sound,)
    assert store.database.unreadable == 1
    assert not reopened.withdraw("gap-1", who="me", why="it is broken", at=NOW)
    assert reopened.add(broken), "it can be given again"
    assert reopened.waived() == {"gap-1", "gap-2"}


@pytest.mark.parametrize(
    ("first", "then", "kept"),
    [
        pytest.param(1, None, None, id="for good after for a while"),
        pytest.param(1, 2, 2, id="for longer"),
        pytest.param(2, 1, 2, id="for less"),
        pytest.param(1, 1, 1, id="for as long"),
        pytest.param(None, 1, None, id="for a while after for good"),
    ],
)
def test_a_waiver_goes_on_for_as_long_as_anybody_gave_it(
    store: ServiceStore, first: int | None, then: int | None, kept: int | None
) -> None:
    def until(seconds: int | None) -> Waiver:
        end = None if seconds is None else NOW + seconds * SECOND
        return Waiver("gap-1", "a test", "me", NOW, until=end)

    store.waivers.clock = lambda: NOW
    assert store.waivers.add(until(first))

    assert store.waivers.add(until(then)) is (kept != first)

    assert store.waivers.list() == (until(kept),)
