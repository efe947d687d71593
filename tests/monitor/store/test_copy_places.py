"""What a copy lacks stays with its place, whatever the config calls it."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from checks.ledger import LedgerState
from monitor.store.copy_ledger import CopyReach
from monitor.store.ledger import KEPT
from monitor.store.store import ServiceStore
from pipeline.copies.copy import CopiedVersion, CopyPosition
from pipeline.minute_counts import MinuteCounts

T = "shop.orders"
NOW = datetime(2026, 3, 28, 12, tzinfo=UTC)
A, B, C = "redis://a:6379/0/x", "redis://b:6379/0/x", "redis://c:6379/0/x"
LOST = 7  # the minute of the row that :meth:`Copies.lose` loses


@dataclass
class Copies:
    """Copies that the config names, as their jobs report them to the ledger of *store*."""

    store: ServiceStore

    def are(self, **places: str) -> None:
        """The service starts with these copies."""
        self.store.ledger.know_copies(places)

    def load(self, name: str, version: int, lineage: str = "m") -> None:
        done = CopiedVersion(version, swept=True, lineage=lineage)
        self.store.ledger.copies.add_copied(name, T, [done], NOW)

    def follow(
        self, name: str, version: int, *, lost: MinuteCounts | None = None, lineage: str = "m"
    ) -> None:
        rows: MinuteCounts = {"8": {"u": 1}} if lost is None else lost
        done = CopiedVersion(version, NOW, rows, rows if lost is None else {}, lineage=lineage)
        self.store.ledger.copies.add_copied(name, T, [done], NOW)

    def lose(self, name: str, version: int = 4) -> None:
        self.follow(name, version, lost={str(LOST): {"u": 1}})

    def lacking(self, name: str) -> int:
        lost = self.store.ledger.copy_losses(T, name)
        return sum(one.rows for one in lost.residuals) + lost.more + lost.unreadable


@pytest.fixture
def copies(store: ServiceStore) -> Copies:
    """``a`` at place A is whole, and ``b`` at place B lacks a row; both have followed version 4."""
    made = Copies(store)
    made.are(a=A, b=B)
    for name in ("a", "b"):
        made.load(name, 3)
    made.follow("a", 4)
    made.lose("b")
    return made


def test_it_is_shown_by_the_name_that_its_copy_has(copies: Copies) -> None:
    ledger = copies.store.ledger
    copies.are(one=A, other=B)

    assert ledger.residuals() == {(T, "copy:one"): 0, (T, "copy:other"): 1}
    assert ledger.residual_minutes(T) == {"copy:other": (LOST, LOST)}
    (lost,) = ledger.copy_losses(T, "other").residuals
    assert (lost.hop, lost.key.partition("@")[0]) == ("copy:other", "copy:other")
    (entry,) = ledger.entries(T, 0, 10**9, ["one", "other"])["copy:other"]
    assert (entry.minute, entry.state) == (LOST, LedgerState.RESIDUAL)


def test_two_copies_that_are_renamed_lack_what_they_lacked(copies: Copies) -> None:
    copies.are(a2=A, b2=B)
    assert (copies.lacking("a2"), copies.lacking("b2")) == (0, 1)

    copies.follow("a2", 5)
    assert (copies.lacking("a2"), copies.lacking("b2")) == (0, 1)

    copies.load("a2", 6)
    copies.follow("b2", 5)
    assert copies.lacking("b2") == 1
    copies.load("b2", 6)
    assert copies.lacking("b2") == 0


def test_two_copies_that_are_restored_one_by_one_lack_what_they_lacked(copies: Copies) -> None:
    copies.are()
    copies.store.ledger.prune(NOW)
    assert copies.store.ledger.residuals() == {}
    assert copies.store.ledger.residual_minutes(T) == {}

    copies.are(a=A)
    assert copies.lacking("a") == 0
    copies.follow("a", 5)
    copies.are(a=A, b=B)

    assert (copies.lacking("a"), copies.lacking("b")) == (0, 1)
    copies.follow("b", 5)
    assert (copies.lacking("a"), copies.lacking("b")) == (0, 1)


@pytest.mark.parametrize("pruned", [False, True])
def test_a_copy_that_is_renamed_and_renamed_back_lacks_what_it_lacked(
    copies: Copies, *, pruned: bool
) -> None:
    copies.are(a=A, serving=B)
    copies.follow("serving", 5)
    if pruned:
        copies.store.ledger.prune(NOW)
    copies.are(a=A, b=B)
    assert copies.lacking("b") == 1

    copies.follow("b", 6)
    assert copies.lacking("b") == 1


def test_a_name_that_gets_another_place_and_the_old_one_back_lacks_what_it_lacked(
    copies: Copies,
) -> None:
    copies.are(a=A, b=C)
    copies.load("b", 5)
    assert copies.lacking("b") == 0

    copies.are(a=A, b=B)
    copies.follow("b", 5)
    assert copies.lacking("b") == 1


def test_a_load_of_a_new_store_proves_nothing_of_the_one_that_had_its_name(copies: Copies) -> None:
    copies.are(a=A, b=C, serving=B)
    copies.load("b", 5)
    copies.follow("serving", 5)

    assert (copies.lacking("serving"), copies.lacking("b")) == (1, 0)


def test_names_that_are_swapped_swap_what_is_lacking(copies: Copies) -> None:
    copies.are(a=B, b=A)
    copies.load("b", 5)

    assert (copies.lacking("a"), copies.lacking("b")) == (1, 0)


def test_minutes_of_removed_copies_that_balance_end_as_others_do(copies: Copies) -> None:
    copies.are()
    copies.store.ledger.prune(NOW + KEPT + timedelta(minutes=1))
    copies.are(a=A, b=B)

    found = copies.store.ledger.entries(T, 0, 10**9, ["a", "b"])
    assert [*found] == ["copy:b"]


@pytest.mark.parametrize("version", [5, 6, 7])
def test_a_copy_that_is_set_back_lacks_nothing_that_a_load_of_an_earlier_mirror_made_good(
    copies: Copies, version: int
) -> None:
    """The version of that load is one of those that the copy follows again."""
    copies.load("b", 7)
    copies.load("b", 1, "n:1")
    for later in range(2, 9):
        copies.follow("b", later, lineage="n:1")

    copies.store.ledger.copies.set_back("b", T, CopyPosition("n", version, 0, load_id="1"))

    assert copies.store.ledger.copies.copy_reach("b")[T].last == version
    assert copies.lacking("b") == 0


def test_a_place_under_a_new_address_lacks_nothing_that_is_known(copies: Copies) -> None:
    """So nothing that it holds counts, until it is loaded."""
    copies.are(a=A, b=C)
    unknown = copies.store.ledger.copies.copy_reach("b").get(T, CopyReach())

    assert copies.lacking("b") == 0
    assert unknown.needs_load(CopyPosition("m", 4, 0))


# what an earlier version stored, by name


@pytest.fixture
def named(store: ServiceStore) -> Copies:
    """``a`` is whole, and ``b`` lacks a row; an earlier version stored that by their names."""
    made = Copies(store)
    for name in ("a", "b"):
        made.load(name, 3)
    made.follow("a", 4)
    made.lose("b")
    return made


def test_what_is_stored_by_name_goes_to_the_place_of_this_name(named: Copies) -> None:
    for _ in range(2):
        named.are(a=A, b=B)
        assert (named.lacking("a"), named.lacking("b")) == (0, 1)
        assert named.store.ledger.copies.copy_reach("b")[T].last == 4
    named.follow("a", 5)
    named.follow("b", 5)
    assert (named.lacking("a"), named.lacking("b")) == (0, 1)

    named.are(a2=A, b2=B)
    assert (named.lacking("a2"), named.lacking("b2")) == (0, 1)
    named.load("b2", 6)
    named.are(a=A, b=B)
    assert named.lacking("b") == 0


def test_a_name_that_returns_after_an_upgrade_leaves_a_place_that_is_known_as_it_is(
    named: Copies,
) -> None:
    named.are(a=A)
    named.are(a=A, c=C)
    named.load("c", 9)
    named.are(a=A, b=C)  # the config had another b before the upgrade

    assert (named.lacking("b"), named.store.ledger.copies.copy_reach("b")[T].last) == (0, 9)
