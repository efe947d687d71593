from dataclasses import replace

import pytest

from pipeline.model import Shard
from pipeline.sources.postgres.description import description
from pipeline.sources.postgres.server_facts import PostgresFacts, PublicationFacts, SlotFacts
from pipeline.sources.postgres.shard_facts import PostgresShardFacts, PublishedFacts
from pipeline.sources.source import LogBacklog

T = Shard("shop", "public.t")
PUBLICATION = PublicationFacts("sluice")
SERVER = PostgresFacts(publication=PUBLICATION)


def test_a_log_is_kept_without_an_end_of_time_and_no_table_is_hidden() -> None:
    found = description(
        SERVER, (PostgresShardFacts(T, rows=7), PostgresShardFacts(Shard("shop", "a.b"))), "sluice"
    )

    assert (found.kept, found.hidden, found.unlogged) == (None, frozenset(), {})
    assert found.rows == {"public.t": 7}


@pytest.mark.parametrize(
    ("server", "shard", "why"),
    [
        pytest.param(
            SERVER, PostgresShardFacts(T, logged=False), "UNLOGGED", id="an unlogged table"
        ),
        pytest.param(
            PostgresFacts(), PostgresShardFacts(T), "no publication sluice", id="no publication"
        ),
        pytest.param(
            SERVER, PostgresShardFacts(T, published=None), "does not hold it", id="not in it"
        ),
        pytest.param(
            SERVER,
            PostgresShardFacts(T, published=PublishedFacts("(id > 5)")),
            "only rows where (id > 5)",
            id="some rows of it",
        ),
        pytest.param(
            PostgresFacts(publication=PublicationFacts("sluice", operations=("insert", "update"))),
            PostgresShardFacts(T),
            "leaves out each delete, truncate",
            id="some operations",
        ),
    ],
)
def test_a_table_whose_changes_are_not_all_sent_is_unlogged(
    server: PostgresFacts, shard: PostgresShardFacts, why: str
) -> None:
    found = description(server, (shard,), "sluice")

    assert list(found.unlogged) == ["public.t"]
    assert why in found.unlogged["public.t"]


@pytest.mark.parametrize(
    ("slot", "held", "left"),
    [
        pytest.param(SlotFacts("s", retained=5, safe=7, written=99), 5, 7, id="limited"),
        pytest.param(SlotFacts("s", retained=5, written=99), 5, None, id="not limited"),
        pytest.param(SlotFacts("s", status="lost", retained=None, written=99), 0, 0, id="lost"),
    ],
)
def test_what_the_slot_keeps_is_its_backlog(slot: SlotFacts, held: int, left: int | None) -> None:
    found = description(replace(SERVER, slot=slot), (), "sluice")

    assert found.backlog == LogBacklog("s", 99, held, left)


def test_without_a_slot_nothing_is_kept() -> None:
    assert description(SERVER, (), "sluice").backlog is None
