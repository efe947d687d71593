"""A table is proven by its sources' own words only; what they were not asked proves nothing."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from checks.unproven import SourceDescription, why_unproven
from pipeline.model import Missing, Shard, Table
from pipeline.sources.mysql.server_facts import ServerFacts
from pipeline.sources.mysql.shard_facts import Cascade, ShardFacts

SEES_ALL = "GRANT SELECT ON *.* TO `sluice`@`%`"
SERVER = ServerFacts((8, 0), mariadb=False, grants=(SEES_ALL,))
BLIND = replace(SERVER, grants=("GRANT SELECT ON `other`.* TO `sluice`@`%`",))
GOES = Cascade("goes", "shop.teams", "ON DELETE CASCADE")
ONE, TWO = Shard("a", "shop.people_0"), Shard("b", "shop.people_1")
PEOPLE = Table("shop.people", (ONE, TWO))


def told(server: ServerFacts, *shards: ShardFacts) -> SourceDescription:
    return SourceDescription(server, {one.shard.name: one for one in shards})


PLAIN = told(SERVER, ShardFacts(ONE))
OTHER = told(SERVER, ShardFacts(TWO))
CASCADING = told(SERVER, ShardFacts(TWO, cascades=(GOES,)))
STRANGER = ShardFacts(Shard("b", "shop.strangers"), cascades=(GOES,))


@pytest.mark.parametrize(
    ("sources", "why"),
    [
        pytest.param({"a": PLAIN, "b": OTHER}, "", id="no cascade anywhere"),
        pytest.param({"a": PLAIN, "b": CASCADING}, "shop.teams", id="a cascade in one shard"),
        pytest.param({"b": CASCADING}, "shop.teams", id="found, whatever the other source says"),
        pytest.param(
            {"a": PLAIN, "b": told(SERVER, *OTHER.shards.values(), STRANGER)},
            "",
            id="another table's",
        ),
        pytest.param({"a": PLAIN, "b": told(SERVER)}, "", id="dropped: it would be seen"),
        pytest.param({"a": PLAIN, "b": told(BLIND)}, None, id="hidden from the user"),
        pytest.param({"a": PLAIN}, None, id="one source not asked"),
        pytest.param({"a": PLAIN, "b": Missing("down")}, None, id="one source silent"),
        pytest.param({}, None, id="nobody asked"),
    ],
)
def test_a_table_is_proven_only_if_every_source_says_so(
    sources: Mapping[str, SourceDescription | Missing], why: str | None
) -> None:
    found = why_unproven(PEOPLE, sources)

    if why is None:
        assert isinstance(found, Missing)
        assert "source b" in found.why or "source a" in found.why
    else:
        assert isinstance(found, str)
        assert why in found
        assert bool(found) is bool(why)


def test_a_server_that_logs_cascades_proves_the_table() -> None:
    newer = replace(SERVER, version=(9, 7))

    assert why_unproven(PEOPLE, {"a": PLAIN, "b": told(newer, *CASCADING.shards.values())}) == ""
