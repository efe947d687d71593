"""S10: order by the collector's clock and a sequence: a clock that steps back reorders changes."""

from dataclasses import dataclass

from pipeline.model import Order


@dataclass(frozen=True)
class Seen:
    """One change as both systems see it: when the collector's clock read it, and its place."""

    name: str
    clock: int
    order: Order


WRITTEN = (
    Seen("first", clock=1_000, order=Order(1, 7, 100)),
    Seen("second", clock=1_001, order=Order(1, 7, 200)),
    Seen("third", clock=400, order=Order(1, 7, 300)),  # NTP stepped the clock back
    Seen("fourth", clock=401, order=Order(2, 1, 4)),  # fail-over: the new log starts low
)


def test_s10_the_newest_change_is_the_last_written_whatever_the_clocks_say() -> None:
    by_clock = max(WRITTEN, key=lambda one: (one.clock, 0))
    by_order = max(WRITTEN, key=lambda one: one.order)

    assert by_clock.name == "second"
    assert by_order.name == "fourth"


def test_s10_orders_rise_as_the_log_was_written() -> None:
    orders = [one.order for one in WRITTEN]

    assert sorted(orders) == orders
