import pytest

from pipeline.topics.naming import spelled


@pytest.mark.parametrize(
    ("shard", "name"),
    [
        pytest.param("shop.orders_1", "shop.orders_1", id="as it is"),
        pytest.param("shop.Order-Lines", "shop.Order-Lines", id="capitals and a dash stay"),
        pytest.param('shop.we"ird/../<b>', "shop.we_ird_..__b_", id="one for each odd letter"),
        pytest.param("shop.größe", "shop.gr__e", id="no letter beyond ASCII"),
    ],
)
def test_what_a_topic_may_not_hold_is_an_underscore(shard: str, name: str) -> None:
    assert spelled(shard) == name
