"""A table is proven by its sources' own words only; what they were not asked proves nothing."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from checks.blocks import why_unproven
from pipeline.model import Missing, Shard, Table
from pipeline.sources.mysql.facts import Cascade, ServerFacts, ShardFacts, describe_source
from pipeline.sources.source import SourceDescription

SEES_ALL = "GRANT SELECT ON *.* TO `sluice`@`%`"
SERVER = ServerFacts((8, 0), mariadb=False, grants=(SEES_ALL,))
BLIND = replace(SERVER, grants=("GRANT SELECT ON `other`.* TO `sluice`@`%`",))
GOES = Cascade("goes", "shop.teams", "ON DELETE CASCADE")
ONE, TWO = Shard("a", "shop.people_0"), Shard("b", "shop.people_1")
PEOPLE = Table("shop.people", (ONE, TWO))


def told(server: ServerFacts, *shards: ShardFacts) -> SourceDescription:
    """Of a MySQL, asked about all that it shows and the table's own shards."""
    asked = {ONE.name, TWO.name, *(one.shard.name for one in shards)}
    return describe_source(server, shards, asked)


ONES, TWOS = ShardFacts(ONE), ShardFacts(TWO)
GOING = ShardFacts(TWO, cascades=(GOES,))
PLAIN, OTHER, CASCADING = told(SERVER, ONES), told(SERVER, TWOS), told(SERVER, GOING)
STRANGER = ShardFacts(Shard("b", "shop.strangers"), cascades=(GOES,))


@pytest.mark.parametrize(
    ("sources", "why"),
    [
        pytest.param({"a": PLAIN, "b": OTHER}, "", id="no cascade anywhere"),
        pytest.param({"a": PLAIN, "b": CASCADING}, "shop.teams", id="a cascade in one shard"),
        pytest.param({"b": CASCADING}, "shop.teams", id="found, whatever the other source says"),
        pytest.param(
            {"a": PLAIN, "b": told(SERVER, TWOS, STRANGER)},
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

    assert why_unproven(PEOPLE, {"a": PLAIN, "b": told(newer, GOING)}) == ""


def test_a_source_that_is_silent_is_named_once() -> None:
    silent = Missing("source:a: loaded: 65 threads run, limits.running is 64")

    said = why_unproven(PEOPLE, {"a": silent, "b": OTHER})

    why = "source a has not described its tables: loaded: 65 threads run, limits.running is 64"
    assert said == Missing(why)
