import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path

import pytest
import structlog

from alerts.channel import Channel
from alerts.delivery import Delivery
from alerts.model import Message
from alerts.outbox import BusyError, RefusedError
from monitor.store.store import ServiceStore
from pipeline.errors import UnreachableError
from tests.alerts.kit import at, message, minutes
from tests.alerts.outboxes import FillableOutbox, MemoryOutbox, ScriptedChannel
from tests.patience import wait_for

Deliver = Callable[..., Delivery]


@pytest.fixture(params=["memory", "stored"])
def outbox(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FillableOutbox]:
    """Both kinds must serve delivery alike."""
    if request.param == "memory":
        yield MemoryOutbox()
        return
    store = ServiceStore.open(tmp_path / "sluice.db")
    yield store.outbox
    store.close()


@pytest.fixture
def deliver(outbox: FillableOutbox) -> Iterator[Deliver]:
    made: list[Delivery] = []

    def make(patience: float = 10, **channels: Channel) -> Delivery:
        made.append(Delivery(channels, outbox, timedelta(seconds=patience)))
        return made[-1]

    yield make
    for delivery in made:
        delivery.close()


def fill_outbox(outbox: FillableOutbox, channel: str, count: int) -> list[str]:
    messages = [message(number) for number in range(count)]
    outbox.put([(channel, each) for each in messages], at(0))
    return [each.about for each in messages]


def is_about(number: int) -> Callable[[Sequence[Message]], bool]:
    return lambda messages: any(each.about == f"shop.t{number}" for each in messages)


def test_letters_arrive_in_order_and_once(outbox: FillableOutbox, deliver: Deliver) -> None:
    channel = ScriptedChannel()
    names = fill_outbox(outbox, "slack", 4)
    delivery = deliver(slack=channel)

    first, second = delivery.deliver_due(at(1)), delivery.deliver_due(at(2))

    assert channel.got == [(name,) for name in names]
    assert (first.delivered, second.delivered) == (4, 0)


def test_what_fails_is_tried_again_and_nothing_overtakes_it(
    outbox: FillableOutbox, deliver: Deliver
) -> None:
    down = [True]
    channel = ScriptedChannel(
        lambda messages: UnreachableError("down") if is_about(1)(messages) and down[0] else None
    )
    names = fill_outbox(outbox, "slack", 3)
    delivery = deliver(slack=channel)

    tally = delivery.deliver_due(at(0))
    in_the_pause = delivery.deliver_due(at(0))
    down[0] = False
    delivery.deliver_due(at(1))

    assert tally.failing == ("slack",)
    assert in_the_pause.failing == ()
    assert channel.got == [(name,) for name in names]


def test_a_busy_receiver_is_left_alone_for_as_long_as_it_asks(
    outbox: FillableOutbox, deliver: Deliver
) -> None:
    tries = []

    def script(messages: Sequence[Message]) -> Exception | None:
        tries.append(messages)
        return BusyError("429", minutes(3)) if len(tries) == 1 else None

    fill_outbox(outbox, "slack", 1)
    delivery = deliver(slack=ScriptedChannel(script))

    for minute in (0, 1, 2, 2.9):
        delivery.deliver_due(at(minute))
    assert len(tries) == 1
    assert delivery.deliver_due(at(3)).delivered == 1


def test_a_refused_letter_is_kept_as_dead_and_the_others_go_on(
    outbox: FillableOutbox, deliver: Deliver
) -> None:
    channel = ScriptedChannel(
        lambda messages: RefusedError("400: too long") if is_about(1)(messages) else None
    )
    fill_outbox(outbox, "slack", 3)

    tally = deliver(slack=channel).deliver_due(at(0))

    assert (tally.delivered, tally.dead) == (2, 1)
    assert channel.got == [("shop.t0",), ("shop.t2",)]
    assert outbox.channels() == ()


def test_a_poisoned_digest_costs_only_the_letter_to_blame(
    outbox: FillableOutbox, deliver: Deliver
) -> None:
    channel = ScriptedChannel(
        lambda messages: RefusedError("400") if is_about(4)(messages) else None, per_minute=1
    )
    fill_outbox(outbox, "slack", 6)
    delivery = deliver(slack=channel)

    for minute in range(8):
        delivery.deliver_due(at(minute))

    arrived = [name for group in channel.got for name in group]
    assert arrived == ["shop.t0", "shop.t1", "shop.t2", "shop.t3", "shop.t5"]
    assert outbox.channels() == ()


def test_a_storm_becomes_a_digest_within_the_rate(outbox: FillableOutbox, deliver: Deliver) -> None:
    channel = ScriptedChannel(per_minute=5)
    names = fill_outbox(outbox, "slack", 200)
    delivery = deliver(slack=channel)

    delivery.deliver_due(at(0))
    delivery.deliver_due(at(0.5))

    assert [len(group) for group in channel.got] == [1, 1, 1, 1, 196]
    assert [name for group in channel.got for name in group] == names


def test_a_channel_that_hangs_blocks_no_other(outbox: FillableOutbox, deliver: Deliver) -> None:
    gate = threading.Event()
    hanging, quick = ScriptedChannel(gate=gate), ScriptedChannel()
    names = fill_outbox(outbox, "hanging", 2)
    fill_outbox(outbox, "quick", 2)
    delivery = deliver(patience=0.2, hanging=hanging, quick=quick)

    first = delivery.deliver_due(at(0))
    outbox.put([("quick", message(7))], at(0))
    second = delivery.deliver_due(at(0))
    gate.set()
    wait_for(lambda: outbox.channels() == ())

    assert (first.delivered, second.delivered) == (2, 1)
    assert hanging.got == [(name,) for name in names]


def test_a_letter_for_a_channel_that_is_gone_is_kept_as_dead(
    outbox: FillableOutbox, deliver: Deliver
) -> None:
    fill_outbox(outbox, "pager", 2)

    assert deliver(log=ScriptedChannel()).deliver_due(at(0)).dead == 2
    assert outbox.channels() == ()


def test_a_channel_that_breaks_its_promise_is_paused_not_lost(
    outbox: FillableOutbox, deliver: Deliver
) -> None:
    tries: list[int] = []

    def script(_: Sequence[Message]) -> Exception | None:
        tries.append(1)
        return KeyError("a bug") if len(tries) == 1 else None

    fill_outbox(outbox, "slack", 1)
    delivery = deliver(slack=ScriptedChannel(script))

    with structlog.testing.capture_logs() as logged:
        tally = delivery.deliver_due(at(0))

    assert tally.failing == ("slack",)
    assert outbox.health("slack").why == "KeyError"
    assert [line["event"] for line in logged] == ["channel failed"]
    assert delivery.deliver_due(at(1)).delivered == 1


def test_a_service_killed_after_the_sending_sends_again(outbox: FillableOutbox) -> None:
    channel = ScriptedChannel()
    fill_outbox(outbox, "slack", 1)
    letters = outbox.waiting("slack", 1)
    channel.send([letters[0].message], at(0))  # and then it dies, before it can say so

    delivery = Delivery({"slack": channel}, outbox)
    delivery.deliver_due(at(1))
    delivery.close()

    assert channel.got == [("shop.t0",), ("shop.t0",)]


def test_a_closed_delivery_starts_nothing(outbox: FillableOutbox, deliver: Deliver) -> None:
    channel = ScriptedChannel()
    fill_outbox(outbox, "slack", 1)
    delivery = deliver(slack=channel)

    delivery.close()

    assert delivery.deliver_due(at(0)).delivered == 0
    assert channel.got == []


def test_a_channel_that_forgets_hears_again_of_what_still_fires(
    outbox: FillableOutbox, deliver: Deliver
) -> None:
    channel, other = ScriptedChannel(refresh=minutes(2)), ScriptedChannel()
    delivery = deliver(alertmanager=channel, log=other)
    delivery.reminders = lambda _: [("alertmanager", message(1)), ("log", message(1))]

    for minute in range(5):
        delivery.deliver_due(at(minute))

    assert channel.got == [("shop.t1",)] * 3
    assert other.got == []


def test_nothing_is_refreshed_while_an_end_still_waits(
    outbox: FillableOutbox, deliver: Deliver
) -> None:
    channel = ScriptedChannel(lambda _: UnreachableError("down"), refresh=minutes(1))
    fill_outbox(outbox, "alertmanager", 1)
    asked: list[datetime] = []

    def reminders(now: datetime) -> Sequence[tuple[str, Message]]:
        asked.append(now)
        return ()

    delivery = deliver(alertmanager=channel)
    delivery.reminders = reminders

    for minute in (0, 0.01, 0.02):
        delivery.deliver_due(at(minute))

    assert asked == []


def test_a_refresh_that_fails_is_tried_at_the_next(
    outbox: FillableOutbox, deliver: Deliver
) -> None:
    channel = ScriptedChannel(lambda _: BusyError("503"), refresh=minutes(1))
    delivery = deliver(alertmanager=channel)
    delivery.reminders = lambda _: [("alertmanager", message(1))]

    tally = delivery.deliver_due(at(0))
    channel.script = lambda _: None
    delivery.deliver_due(at(1))

    assert tally.failing == ("alertmanager",)
    assert channel.got == [("shop.t1",)]


def test_a_refresh_that_fails_counts_as_a_failure_until_one_is_taken_or_none_is_due(
    outbox: FillableOutbox, deliver: Deliver
) -> None:
    channel = ScriptedChannel(lambda _: UnreachableError("down"), refresh=minutes(1))
    delivery = deliver(alertmanager=channel)
    fires = [("alertmanager", message(1))]
    delivery.reminders = lambda _: fires

    failures = []
    for minute in range(4):
        if minute == 2:
            fires.clear()
        delivery.deliver_due(at(minute))
        failures.append(outbox.health("alertmanager").failures)

    assert failures == [1, 2, 0, 0]
