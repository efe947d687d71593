from alerts.outbox import ChannelHealth, sent
from monitor.store.alerts import StoredOutbox
from monitor.store.store import ServiceStore
from tests.alerts.kit import at, message
from tests.monitor.store.kit import ReadOnly


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
    assert (pile.waiting, pile.dead, pile.why) == (3, 2, "the queue of the channel was full")


def test_old_letters_go_but_waiting_ones_never(store: ServiceStore) -> None:
    store.outbox.put([("log", message(n)) for n in range(3)], at(0))
    first, second, _ = store.outbox.waiting("log", 9)
    store.outbox.delivered([first], ChannelHealth(), at(1))
    store.outbox.bury([second], "refused", at(1))

    assert store.outbox.prune(at(60 * 24 * 31)) == 2
    assert store.outbox.counts() == {("log", "waiting"): 1}


def test_f143_letters_that_cannot_be_read_are_given_up_and_hold_up_no_other(
    store: ServiceStore,
) -> None:
    store.outbox.put([("log", message(n)) for n in range(4)], at(0))
    store.outbox.fare("log", ChannelHealth(failures=3))
    with store.write() as connection:
        connection.exec_driver_sql("UPDATE outbox SET message = '{}' WHERE number = 1")
        connection.exec_driver_sql("UPDATE outbox SET put = 'soon' WHERE number = 2")
        connection.exec_driver_sql("UPDATE standings SET body = 'fine'")
    outbox = StoredOutbox(store.database)

    assert (outbox.pile("log").waiting, outbox.pile("log").since) == (4, at(0))
    outbox.waiting("log", 2)
    waiting = outbox.waiting("log", 2)

    assert [letter.message.id for letter in waiting] == [message(2).id, message(3).id]
    pile = outbox.pile("log")
    assert (pile.waiting, pile.dead, pile.why) == (2, 2, "its row in the store is unreadable")
    assert outbox.standing("log") == ChannelHealth()
    assert store.database.unreadable == 3


def held(outbox: StoredOutbox, channel: str) -> list[str]:
    return [letter.message.id for letter in outbox.waiting(channel, 99)]


def test_in_memory_a_channel_that_is_down_pushes_out_no_letter_of_another(
    store: ServiceStore,
) -> None:
    outbox = StoredOutbox(store.database, room=3)
    outbox.hold([("log", message(n)) for n in range(2)], at(0))
    outbox.hold([("slack", message(n)) for n in range(9)], at(1))

    assert held(outbox, "log") == [message(n).id for n in range(2)]
    assert held(outbox, "slack") == [message(n).id for n in (6, 7, 8)]


def test_in_memory_letters_that_were_delivered_push_out_none_that_wait(
    store: ServiceStore,
) -> None:
    ReadOnly(store.database)
    outbox = StoredOutbox(store.database, room=3)
    outbox.hold([("log", message(0))], at(0))
    for number in range(3):
        outbox.hold([("slack", message(number))], at(1))
        outbox.delivered(outbox.waiting("slack", 1), ChannelHealth(), at(1))

    assert held(outbox, "log") == [message(0).id]


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
