"""Tables whose topics a router sends elsewhere count as left out; documented set-ups do not."""

import re
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from pipeline.collectors.connect.routing import follow_routers, route_topic
from pipeline.collectors.connect.table_filter import read_capture
from pipeline.model import ShardId
from pipeline.settings import CollectorSettings, SourceSettings

RENAMER = "org.apache.kafka.connect.transforms.RegexRouter"
FOLDER = "io.debezium.transforms.ByLogicalTableRouter"
PAGE = Path("docs/systems/liulishuo.md").read_text(encoding="utf-8")


def router(regex: str, replacement: str, **more: str) -> dict[str, str]:
    named = {"type": RENAMER, "regex": regex, "replacement": replacement, **more}
    return {
        "topic.prefix": "shop",
        "transforms": "r",
        **{f"transforms.r.{name}": value for name, value in named.items()},
    }


def sent(config: Mapping[str, str], topics: str = "") -> set[str]:
    """Which of two tables are sent into topics that the source reads."""
    collector = CollectorSettings("http://c:1", "shop")
    source = SourceSettings("shop", "db", 3306, "s", collector, "shop", topics=topics)
    lists = follow_routers(read_capture(config), config, source)
    assert lists.known
    return {name for name in ("db.orders", "db.users") if lists(ShardId.read(name))}


BOTH = {"db.orders", "db.users"}
BY_TOPIC = {
    "predicates": "p",
    "predicates.p.type": "org.apache.kafka.connect.transforms.predicates.TopicNameMatches",
    "predicates.p.pattern": r".*\.users",
}


@pytest.mark.parametrize(
    ("config", "topics", "expected"),
    [
        pytest.param({}, "", BOTH, id="no router"),
        pytest.param(router(r".*\.orders", "other.orders"), "", {"db.users"}, id="one table"),
        pytest.param(router(r"shop\.(.*)", "$1"), "", set(), id="the prefix is taken off"),
        pytest.param(router(r"shop\.(.*)", "cdc-$1"), "cdc-.+", BOTH, id="to topics that are read"),
        pytest.param(router(r"shop\.db\.(.*)", "shop.all.$1"), "", BOTH, id="below the prefix"),
        pytest.param(router(r"SHOP\..*", "gone"), "", BOTH, id="the size of letters counts"),
        pytest.param(router(r"shop\.x", "gone"), "", BOTH, id="a topic of no table"),
        pytest.param(
            {**router(".*", "gone", predicate="p"), **BY_TOPIC},
            *("", {"db.orders"}),
            id="by a predicate of topics",
        ),
        pytest.param(
            {**router(".*", "gone", predicate="p", negate="true"), **BY_TOPIC},
            *("", {"db.users"}),
            id="by its opposite",
        ),
        pytest.param(
            {
                "topic.naming.strategy": "io.debezium.schema.DefaultRegexTopicNamingStrategy",
                "topic.regex": r"(.*)\.db\.orders",
                "topic.replacement": "old-$1",
            },
            *("", {"db.users"}),
            id="by the naming strategy",
        ),
        pytest.param(
            {
                "topic.naming.strategy": "io.debezium.schema.SchemaRegexTopicNamingStrategy",
                "topic.regex": r"(.*)\.db\.orders",
                "topic.replacement": "old-$1",
            },
            *("", {"db.users"}),
            id="by the naming strategy with the schema",
        ),
    ],
)
def test_a_table_is_left_out_if_its_topic_is_not_read(
    config: Mapping[str, str], topics: str, expected: set[str]
) -> None:
    assert sent(config, topics) == expected


def test_the_documented_routers_leave_out_no_table() -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    (source,) = yaml.safe_load(block)["sources"]
    config = {"topic.prefix": "shop", **source["collector"]["options"]["settings"]}

    assert config["transforms.fold.type"] == FOLDER
    assert route_topic(config, "shop.shop_01.orders_07") == "cdc-shop-orders"
    assert sent(config, source["topics"]) == BOTH


def test_lists_change_with_a_router_and_one_that_cannot_be_read_leaves_out_all() -> None:
    collector = CollectorSettings("http://c:1", "shop")
    source = SourceSettings("shop", "db", 3306, "s", collector, "shop")
    odd, plain = router(r"[a&&[b]]", "x"), router("a", "b")
    unread, read = (follow_routers(read_capture(c), c, source) for c in (odd, plain))

    assert not unread.known
    assert "a set of sets" in unread.said_by
    assert len({read_capture({}).text, read.text, unread.text}) == 3
