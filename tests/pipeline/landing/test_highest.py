from pipeline.landing.order_check import highest_by_source
from pipeline.model import Order

LOW, HIGH = Order(1, 2, 3), Order(1, 2, 4)


def test_each_source_has_the_highest_of_its_partitions_in_whichever_order_they_come() -> None:
    high = {"a/t:0": LOW, "b/t:0": LOW, "a/t:1": HIGH, "a/u:0": LOW}

    assert highest_by_source(high) == {"a": HIGH, "b": LOW}
    assert highest_by_source(dict(reversed(high.items()))) == {"a": HIGH, "b": LOW}
    assert highest_by_source({}) == {}
