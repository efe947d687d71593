"""A slice that breaks an invariant: one page however it grows, and a waiver of just that slice."""

from datetime import timedelta

import pytest

from alerts.model import AlertKind
from pipeline.model import Account
from pipeline.reports import Hold, MergeReport
from tests.monitor.rig import ORDERS, USERS, Rig

FIRST, GROWN = f"invalid:{USERS}:5-9@5f3a90c1", f"invalid:{USERS}:5-12@5f3a90c1"


def turn(rig: Rig, id_: str | None) -> None:
    """What the pass tells of the table; None: it has gone on."""
    text = 'not_null: email is NULL in 1 row, key ["shop","shop.users","a@b.c"]'
    hold = None if id_ is None else Hold(id_, USERS, "invalid", f"{text}; waive {id_}")
    told = MergeReport(USERS, 1, 1, Account(), rig.now, timedelta(), hold)
    rig.standstills.applied([told], rig.now)


def watch(rig: Rig, seconds: int = 5) -> None:
    rig.second(seconds)
    rig.beat()
    rig.cycle.watch()


@pytest.fixture
def held(rig: Rig) -> Rig:
    rig.round()
    rig.round()
    turn(rig, FIRST)
    watch(rig)
    return rig


def about(rig: Rig) -> list[tuple[AlertKind, str]]:
    return [(one.cause.kind, one.cause.subject) for one in rig.store.incidents.open()]


def waived(rig: Rig, id_: str) -> int:
    body = {"id": id_, "reason": "the shop's own test rows", "who": "ann"}
    return rig.client.post("/v1/waivers", json=body).status_code


def test_a_slice_that_grows_is_one_incident_of_its_table_alone(held: Rig) -> None:
    before = about(held)
    turn(held, GROWN)
    watch(held)

    assert before == about(held) == [(AlertKind.BLOCKED, USERS)]
    cut = held.now.isoformat()
    status, answer = held.ask(USERS, cut=cut)
    assert (status, answer["state"]) == (409, "blocked")
    assert GROWN in str(answer)
    assert held.ask(ORDERS, cut=cut)[0] != 409


def test_only_the_slice_that_stands_now_can_be_let_through_and_who_did_is_kept(held: Rig) -> None:
    turn(held, GROWN)
    watch(held)

    assert waived(held, FIRST) == 404
    assert waived(held, GROWN) == 201
    (kept,) = held.store.waivers.list()
    assert (kept.id, kept.who) == (GROWN, "ann")


def test_a_restart_remembers_what_is_held(held: Rig) -> None:
    held.restart()
    watch(held)

    assert about(held) == [(AlertKind.BLOCKED, USERS)]
    assert [hold.id for hold in held.standstills.holds()] == [FIRST]


def test_once_it_goes_on_the_incident_ends(held: Rig) -> None:
    turn(held, None)
    for _ in range(3):
        watch(held)

    assert about(held) == []
