"""A hold has a name of its own for as long as it stands, and a waiver ends with it."""

from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy.event import listen

from monitor.store.holds import HoldRegistry
from monitor.store.store import ServiceStore
from pipeline.model import Account
from pipeline.reports import Hold, MergeReport
from tests.monitor.store.kit import NOW, SECOND

T = "shop.users"


def hold_ids(hold_registry: HoldRegistry, reasons: str, start: int = 0) -> list[str]:
    """Ids after each turn: `s`chema, `u`nreachable, `.` for one that went on."""
    words, ids = {"s": "schema", "u": "unreachable"}, []
    for number, letter in enumerate(reasons, start):
        word = words.get(letter)
        hold = Hold(f"{word}:{T}", T, word, f"detail {number}") if word else None
        at = NOW + number * SECOND
        hold_registry.applied([MergeReport(T, 1, 1, Account(), at, timedelta(), hold)], at)
        ids += [one.id.removeprefix(f"{one.reason}:{T}@") for one in hold_registry.holds()] or ["-"]
    first = int(NOW.timestamp())
    return [one if one == "-" else str(int(one) - first) for one in ids]


@pytest.mark.parametrize(
    ("reasons", "names"),
    [
        pytest.param("sss", ["0", "0", "0"], id="as long as it stands"),
        pytest.param("s.s", ["0", "-", "2"], id="the next one is another"),
        pytest.param("sus", ["0", "1", "0"], id="a lake that does not answer ends nothing"),
        pytest.param("..s", ["-", "-", "2"], id="since it was first told"),
    ],
)
def test_a_hold_is_named_after_the_second_since_which_it_stands(
    store: ServiceStore, reasons: str, names: list[str]
) -> None:
    assert hold_ids(HoldRegistry(store.holds), reasons) == names


def test_a_restart_renames_no_hold_and_its_words_stay_fresh(store: ServiceStore) -> None:
    hold_ids(HoldRegistry(store.holds), "s")
    later = HoldRegistry(store.holds)
    later.load()

    assert hold_ids(later, "s", start=5) == ["0"]
    assert later.holds()[0].detail == "detail 5"


def test_what_stands_as_it_stood_is_not_written_again(store: ServiceStore) -> None:
    hold = Hold("x:1", T, "schema", "detail")
    hold_registry, written = HoldRegistry(store.holds), list[str]()
    listen(store.database.engine, "before_cursor_execute", lambda *said: written.append(said[2]))

    def tell(number: int, hold: Hold | None) -> None:
        at = NOW + number * SECOND
        hold_registry.applied([MergeReport(T, 1, 1, Account(), at, timedelta(), hold)], at)

    for number in range(3):
        tell(number, hold)
    first = len([text for text in written if text.startswith("INSERT")])
    tell(3, replace(hold, detail="another"))
    details = [one.detail for one in store.holds.list()]
    tell(4, None)

    assert (first, details, store.holds.list()) == (1, ["another"], ())


def test_a_hold_that_names_its_instance_is_left_as_it_is(store: ServiceStore) -> None:
    hold_registry = HoldRegistry(store.holds)
    hold = Hold(f"account:{T}:7", T, "account", "x")

    hold_registry.applied([MergeReport(T, 1, 1, Account(), NOW, timedelta(), hold)], NOW)

    assert hold_registry.holds() == (hold,)
