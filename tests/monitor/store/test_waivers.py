from dataclasses import replace

import pytest

from monitor.store.alerts import Waiver, Waivers
from monitor.store.store import ServiceStore
from tests.monitor.store.kit import NOW, SECOND


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
