"""Topics that forget are found, each kind in one finding."""

from collections.abc import Mapping
from datetime import timedelta

import pytest

from checks.doctor import check_topics
from pipeline.finding import NOTE, REFUSE, WARN, FindingSeverity
from pipeline.transports.topics import TopicFacts

KEPT = {"cleanup.policy": "delete", "retention.ms": "604800000", "retention.bytes": "-1"}
EVER = {"cleanup.policy": "delete", "retention.ms": "9223372036854775807"}
NOTHING: Mapping[str, str] = {}
NAMES = ("shop", "shop.transaction", "shop.shop.users")


def severities(*topics: TopicFacts) -> dict[str, FindingSeverity]:
    found = check_topics(
        topics, "kafka:shop", prefix="shop", history="history", outage=timedelta(days=3)
    )
    assert all(finding.fix for finding in found)
    return {finding.code: finding.severity for finding in found}


def topics(name: str, settings: Mapping[str, str] = NOTHING, copies: int = 3) -> list[TopicFacts]:
    plain = {own: TopicFacts(own, 3, {**KEPT, "min.insync.replicas": "2"}) for own in NAMES}
    plain["history"] = TopicFacts("history", 3, EVER)
    plain[name] = TopicFacts(name, copies, {**plain[name].settings, **settings})
    return list(plain.values())


def test_topics_that_keep_everything_have_a_clean_bill() -> None:
    assert severities(*topics("shop")) == {}


@pytest.mark.parametrize(
    ("name", "settings", "expected"),
    [
        pytest.param("shop", {"cleanup.policy": "compact"}, {"compacted": REFUSE}, id="schemas"),
        pytest.param("history", {"cleanup.policy": "compact"}, {"compacted": REFUSE}, id="history"),
        pytest.param(
            "shop.shop.users",
            {"cleanup.policy": "compact,delete"},
            {"compacted": REFUSE},
            id="rows",
        ),
        pytest.param("shop.shop.users", {"retention.ms": "3600000"}, {"retention": WARN}, id="1 h"),
        pytest.param("shop.shop.users", {"retention.ms": "-1"}, {}, id="for ever"),
        pytest.param("history", {"retention.ms": "604800000"}, {"retention": REFUSE}, id="7 days"),
        pytest.param(
            "shop.shop.users", {"retention.bytes": "1000"}, {"retention_bytes": NOTE}, id="bytes"
        ),
        pytest.param(
            "shop.shop.users",
            {"unclean.leader.election.enable": "true"},
            {"unclean_election": WARN},
            id="any broker may lead",
        ),
        pytest.param(
            "shop.shop.users", {"min.insync.replicas": "1"}, {"in_sync": WARN}, id="one ack is all"
        ),
    ],
)
def test_a_topic_that_forgets_is_found(
    name: str, settings: Mapping[str, str], expected: Mapping[str, FindingSeverity]
) -> None:
    assert severities(*topics(name, settings)) == expected


def test_one_copy_of_a_topic_is_noted() -> None:
    assert severities(*topics("shop.shop.users", {"min.insync.replicas": "1"}, copies=1)) == {
        "copies": NOTE
    }


def test_many_topics_are_one_finding_with_a_statement() -> None:
    short = [TopicFacts(f"shop.shop.t{n}", 3, {"retention.ms": "1"}) for n in range(5)]

    found = check_topics(short, "kafka:shop", prefix="shop", history="", outage=timedelta(days=1))

    assert [f.what.partition(":")[0] for f in found] == [
        "shop.shop.t0, shop.shop.t1, shop.shop.t2 and 2 more"
    ]
    assert "--add-config retention.ms=86400000, and so on" in found[0].fix
