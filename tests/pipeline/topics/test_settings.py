"""What Kafka tells of its topics' settings, and what it refuses to tell.  No broker."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from kafka import KafkaAdminClient
from kafka.admin._configs import ConfigAdminMixin
from kafka.errors import TopicAuthorizationFailedError
from kafka.protocol.admin import DescribeConfigsResponse

from pipeline.errors import UnreachableError
from pipeline.transports.topics import (
    DEMANDS,
    TopicFacts,
    _described,
    find_topic_hazards,
    require_told,
)

RESULT = DescribeConfigsResponse.DescribeConfigsResult
ENTRY = RESULT.DescribeConfigsResourceResult
TOPIC, OWN, DEFAULT = 2, 1, 5  # a kind of resource; where a setting comes from
ORDERS = "shop.shop.orders"


def entry(name: str, value: str | None, source: int = DEFAULT) -> Any:
    fields = {"read_only": False, "is_sensitive": False, "synonyms": [], "config_type": 2}
    more = {"documentation": None, "config_source": source}
    return ENTRY(name=name, value=value, **fields, **more)


@dataclass
class Admin:
    """Topics as the client makes them of what a broker answers."""

    results: Sequence[Any]
    partitions: Sequence[Mapping[str, Any]] = ({"replica_nodes": [1, 2, 3]},)
    names: Sequence[str] = (ORDERS,)
    asked: list[str] = field(default_factory=list)
    later: Sequence[str] | None = None  # names once settings were asked for

    def describe_topics(self) -> list[dict[str, Any]]:
        names = self.later if self.asked and self.later is not None else self.names
        return [{"name": one, "partitions": list(self.partitions)} for one in names]

    def describe_configs(self, asked: Sequence[Any], config_filter: str) -> Mapping[str, Any]:
        self.asked = [one.name for one in asked]
        told = DescribeConfigsResponse(throttle_time_ms=0, results=list(self.results))
        made = ConfigAdminMixin._describe_configs_process_responses([told], config_filter)
        return cast(Mapping[str, Any], made)

    def described(self) -> tuple[TopicFacts, ...]:
        return _described(cast(KafkaAdminClient, self), ".*")


def result(name: str, *entries: Any, error: int = 0) -> Any:
    return RESULT(
        *(error, None if not error else "Topic authorization failed.", TOPIC, name, [*entries])
    )


GOOD = entry("cleanup.policy", "delete")


@pytest.mark.parametrize(
    "results",
    [
        pytest.param(
            [result(ORDERS, error=TopicAuthorizationFailedError.errno)], id="it is refused"
        ),
        pytest.param([], id="nothing is said of it"),
        pytest.param([result("shop.shop.other", GOOD)], id="another is told"),
    ],
)
def test_f102_a_topic_whose_settings_are_not_told_is_unknown(results: list[Any]) -> None:
    (found,) = described = Admin(results).described()

    assert found == TopicFacts(ORDERS, 3, told=False)
    assert not any(found.meets(demand) for demand in DEMANDS), "nothing of it looks harmless"
    assert list(find_topic_hazards(described, "shop", frozenset(), routed=False)) == []
    with pytest.raises(UnreachableError, match=f"settings of {ORDERS} are not told; grant Desc"):
        require_told(described)


def test_f102_many_topics_whose_settings_are_not_told_are_named_in_part() -> None:
    with pytest.raises(UnreachableError, match="settings of a, b, c and 2 more are not told"):
        require_told(Admin([], names="abcde").described())


def test_f102_a_topic_that_is_not_told_hides_no_other() -> None:
    compact = result("p.db.t", entry("cleanup.policy", "compact", OWN))

    told, untold = Admin([compact], names=("p.db.t", "p.db.u")).described()

    assert told == TopicFacts("p.db.t", 3, {"cleanup.policy": "compact"})
    assert untold == TopicFacts("p.db.u", 3, told=False)


def test_f102_a_topic_that_was_deleted_before_its_settings_were_asked_for_is_absent() -> None:
    admin = Admin([result("kept", GOOD)], names=("gone", "kept"), later=("kept",))

    assert [one.name for one in admin.described()] == ["kept"]


def test_f102_a_topic_without_partitions_has_settings_all_the_same() -> None:
    (found,) = Admin([result(ORDERS, entry("cleanup.policy", "compact"))], ()).described()

    assert found == TopicFacts(
        ORDERS, 1, {"cleanup.policy": "compact"}, frozenset({"cleanup.policy"})
    )


def test_f102_whose_a_setting_is_and_one_without_a_value() -> None:
    compact, nothing = entry("cleanup.policy", "compact", OWN), entry("unclean", None)

    (found,) = Admin([result(ORDERS, compact, nothing, entry("x", "1"))]).described()

    assert found == TopicFacts(ORDERS, 3, {"cleanup.policy": "compact", "x": "1"}, frozenset({"x"}))


def test_no_topics_no_question() -> None:
    asked = Admin([], names=())

    assert asked.described() == ()
    assert asked.asked == []
