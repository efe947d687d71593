import pytest

from pipeline.model import Shard, ShardId
from pipeline.transports.topics import spell_topic


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
    assert spell_topic(shard) == name


@pytest.mark.parametrize(
    ("database", "relation", "topic"),
    [
        pytest.param("shop", "orders", "shop.orders", id="plain"),
        pytest.param("shop", "a.b", "shop.a.b", id="a dot in the table"),
        pytest.param("odd.names", "t", "odd.names.t", id="a dot in the database"),
        pytest.param("shop", "../a'b/c", "shop..._a_b_c", id="a path"),
        pytest.param("shop", 'say "x"', "shop.say__x_", id="quotes"),
    ],
)
def test_f115_a_shard_has_both_its_names_whatever_they_hold(
    database: str, relation: str, topic: str
) -> None:
    shard = Shard("shop", str(ShardId(database, relation)))

    assert (shard.database, shard.relation) == (database, relation)
    assert spell_topic(shard.name) == topic
    assert ShardId.read(shard.name) == shard.id


def test_f115_a_text_that_is_not_canonical_is_parted_at_its_first_dot() -> None:
    assert ShardId.read("shop.a.b") == ShardId("shop", "a.b")


def test_a_name_alone_is_written_without_a_dot() -> None:
    assert spell_topic("heart beat") == "heart_beat"
