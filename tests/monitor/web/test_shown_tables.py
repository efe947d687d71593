"""Thousands of tables fit a page: those that need a person first, the rest by name and state."""

from dataclasses import replace

import pytest

from checks.model import Reason
from checks.readiness import ReadinessState
from monitor.board import TableView
from monitor.web.status_page import AT_ONCE, TableQuestion, shown, status_page
from tests.monitor.boards import NOW, board, incident, view

LATE = Reason("late", "time since the cut is below the lags' sum")


def many(count: int) -> list[TableView]:
    """Every tenth is not ready."""
    states = [ReadinessState.READY, ReadinessState.NOT_READY]
    return [
        view(f"shop.orders_{n:05}", states[n % 10 == 9], LATE, seconds=(1.0, 2.0, 3.0))
        for n in range(count)
    ]


def state(one: TableView) -> str:
    return one.worst.value


@pytest.mark.parametrize(
    ("asked", "names", "found"),
    [
        pytest.param(TableQuestion("00012"), ["shop.orders_00012"], 1, id="by a part of its name"),
        pytest.param(TableQuestion(" ORDERS_0001 "), None, 10, id="however it is written"),
        pytest.param(TableQuestion(state="not_ready"), None, 20, id="by state"),
        pytest.param(TableQuestion("00012", "not_ready"), [], 0, id="by both"),
        pytest.param(TableQuestion(page=99), None, 200, id="a page too far is the last"),
        pytest.param(TableQuestion(page=-1), None, 200, id="a page before the first is that"),
    ],
)
def test_tables_are_found(asked: TableQuestion, names: list[str] | None, found: int) -> None:
    told = shown(many(200), state, asked)

    assert told.found == found
    assert names is None or [one.table.name for one in told.views] == names
    assert dict(told.states) == {"ready": 180, "not_ready": 20}


def test_pages_follow_one_another_and_keep_what_was_asked() -> None:
    first = shown(many(200), state, TableQuestion("orders&<"))
    asked = TableQuestion("orders", page=2)

    second = shown(many(200), state, asked)

    assert first.after == ""
    assert (second.first, len(second.views)) == (AT_ONCE + 1, AT_ONCE)
    assert (second.before, second.after) == ("?text=orders&page=1", "?text=orders&page=3")


def test_f46_a_page_of_5000_tables_shows_those_that_need_a_person_and_counts_all() -> None:
    page = status_page(board(*many(5_000), incidents=(incident(),)), NOW)

    assert len(page.encode()) < 200_000
    assert page.count("data-table=") == AT_ONCE
    assert page.count('data-state="not_ready"') == AT_ONCE
    assert "<b>4500</b>" in page
    assert "1 to 60 of 5000" in page
    assert 'href="?page=2"' in page


def test_f46_incidents_and_their_tables_are_told_to_twenty_of_each() -> None:
    one = incident()
    members = tuple(replace(one.members[0], table=f"shop.t{n:05}") for n in range(5_000))
    many_of = tuple(
        replace(one, cause=replace(one.cause, subject=f"part {n}"), members=members)
        for n in range(300)
    )

    page = status_page(board(*many(3), incidents=many_of), NOW)

    assert len(page.encode()) < 200_000
    assert "and 4980 more" in page
    assert "280 more" in page
