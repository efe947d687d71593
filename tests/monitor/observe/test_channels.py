"""When is a channel said to be ailing, and when not?"""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from alerts.outbox import ChannelHealth
from monitor.board import ChannelView
from monitor.observe.system_checks import channel_views, given_up_id
from monitor.store.alerts import StoredOutbox
from monitor.store.store import ServiceStore
from tests.alerts.kit import at, message

NOBODY: frozenset[str] = frozenset()


@pytest.fixture
def outbox(tmp_path: Path) -> Iterator[StoredOutbox]:
    store = ServiceStore.open(tmp_path / "s.db")
    yield store.outbox
    store.close()


def bury(outbox: StoredOutbox, *numbers: int) -> None:
    outbox.put([("slack", message(number)) for number in numbers], at(0))
    outbox.bury(outbox.waiting("slack", 100), "400: too long", at(0))


def ailment(outbox: StoredOutbox, minute: float = 0, waived: frozenset[str] = NOBODY) -> str:
    (view,) = channel_views(outbox, ["slack"], waived, at(minute))
    return view.ailment


def test_a_channel_that_nothing_was_ever_sent_through_is_well(outbox: StoredOutbox) -> None:
    assert channel_views(outbox, ["log"], NOBODY, at(0)) == (ChannelView("log"),)


@pytest.mark.parametrize(
    ("minute", "ails"),
    [pytest.param(5, False, id="for a while"), pytest.param(5.1, True, id="for too long")],
)
def test_a_letter_that_waits_though_nothing_failed(
    outbox: StoredOutbox, minute: float, ails: bool
) -> None:
    outbox.put([("slack", message(1))], at(0))

    assert ailment(outbox, minute) == (
        ("a notification is queued since 2026-03-01T00:00:00+00:00") * ails
    )


def test_failures_name_the_last_reason_and_end_with_a_delivery(outbox: StoredOutbox) -> None:
    outbox.put([("slack", message(1))], at(0))
    outbox.fare("slack", ChannelHealth(3, at(1), "slack answered 503"))
    during = ailment(outbox, 10)

    outbox.delivered(outbox.waiting("slack", 1), ChannelHealth(), at(10))

    assert during == "deliveries that failed in a row: 3, the last: slack answered 503"
    assert ailment(outbox, 10) == ""


def test_a_waiver_covers_what_was_given_up_before_it_and_nothing_after(
    outbox: StoredOutbox,
) -> None:
    bury(outbox, 1, 2)
    waived = frozenset({given_up_id("slack", 2), given_up_id("slack_2", 9), "shop.users:0:9"})
    before, after = ailment(outbox), ailment(outbox, waived=waived)
    bury(outbox, 3)

    assert before.startswith("dead-lettered notifications: 2, the last: 400: too long; ")
    assert after == ""
    assert ailment(outbox, waived=waived).startswith("dead-lettered notifications: 1, ")


def test_letters_given_up_are_forgotten_with_the_letters(outbox: StoredOutbox) -> None:
    bury(outbox, 1)
    outbox.prune(at(0) + timedelta(days=31))

    assert ailment(outbox) == ""


def test_a_channel_that_is_configured_no_more_is_shown_while_it_lacks_letters(
    outbox: StoredOutbox,
) -> None:
    bury(outbox, 1)

    names = [view.name for view in channel_views(outbox, ["log"], NOBODY, at(0))]

    assert names == ["log", "slack"]
