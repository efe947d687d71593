from dataclasses import replace

import pytest

from pipeline.model import Missing, Shard
from pipeline.sources.postgres.facts import (
    PostgresFacts,
    PostgresShardFacts,
    PublicationFacts,
    PublishedFacts,
    SlotFacts,
    describe_source,
    is_default_in_rows,
)
from pipeline.sources.postgres.replication import Replication
from pipeline.sources.source import LogBacklog

T = Shard("shop", "public.t")
PUBLICATION = PublicationFacts("sluice")
NAMES = Replication("shop", "sluice", "sluice_shop")
SLOT = SlotFacts("sluice_shop")
SERVER = PostgresFacts(publication=PUBLICATION, slot=SLOT)
KEYED = PostgresShardFacts(T, identified=("id",), unique=(("id",),), primary=True)


def test_a_log_is_kept_without_an_end_of_time_and_no_table_is_hidden() -> None:
    found = describe_source(
        SERVER, (PostgresShardFacts(T, rows=7), PostgresShardFacts(Shard("shop", "a.b"))), NAMES
    )

    assert (found.kept, found.hidden, found.unlogged) == (None, frozenset(), {})
    assert found.rows == {"public.t": 7}


UNLOGGED = {
    "an unlogged table": (SERVER, PostgresShardFacts(T, logged=False), "UNLOGGED"),
    "no publication": (PostgresFacts(), PostgresShardFacts(T), "publication sluice does not exist"),
    "not in it": (SERVER, PostgresShardFacts(T, published=None), "does not contain it"),
    "some rows of it": (
        SERVER,
        PostgresShardFacts(T, published=PublishedFacts("(id > 5)")),
        "only rows where (id > 5)",
    ),
    "some operations": (
        PostgresFacts(publication=PublicationFacts("sluice", operations=("insert", "update"))),
        PostgresShardFacts(T),
        "leaves out every delete, truncate",
    ),
    "old rows by another index": (
        SERVER,
        replace(KEYED, identity="i", identified=("a",)),
        "id of its key is not in its replica identity",
    ),
    "old rows by an index that was dropped": (
        SERVER,
        replace(KEYED, identity="i", identified=()),
        "id of its key is not in its replica identity",
    ),
    "no old rows": (SERVER, replace(KEYED, identity="n", identified=()), "NOTHING"),
}


@pytest.mark.parametrize(("server", "shard", "why"), UNLOGGED.values(), ids=UNLOGGED)
def test_a_table_whose_changes_are_not_all_sent_is_unlogged(
    server: PostgresFacts, shard: PostgresShardFacts, why: str
) -> None:
    found = describe_source(server, (shard,), NAMES)

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
    found = describe_source(replace(SERVER, slot=slot), (), NAMES)

    assert found.backlog == LogBacklog("s", 99, held, left)


def test_without_a_slot_nothing_is_kept() -> None:
    assert describe_source(replace(SERVER, slot=None), (), NAMES).backlog is None


@pytest.mark.parametrize(
    "shard",
    [
        pytest.param(KEYED, id="its primary key"),
        pytest.param(replace(KEYED, identity="f", identified=()), id="all of it"),
        pytest.param(replace(KEYED, identity="i", identified=("a", "id")), id="more than its key"),
        pytest.param(
            replace(KEYED, primary=False, identified=()), id="no primary key: no row is deleted"
        ),
    ],
)
def test_a_table_whose_old_rows_tell_their_key_is_logged(shard: PostgresShardFacts) -> None:
    assert describe_source(SERVER, (shard,), NAMES).unlogged == {}


def test_a_table_that_is_sent_under_other_names_is_unlogged() -> None:
    found = describe_source(SERVER, (), NAMES, {"public.t": "it is partitioned"})

    assert found.unlogged == {"public.t": "it is partitioned"}


@pytest.mark.parametrize(
    ("slot", "why"),
    [
        pytest.param(None, "sluice_shop does not exist", id="no slot"),
        pytest.param(replace(SLOT, status="lost", retained=None), "is lost", id="lost"),
        pytest.param(replace(SLOT, status="unreserved"), "next checkpoint", id="about to be"),
        pytest.param(SLOT, None, id="reserved"),
    ],
)
def test_a_slot_that_is_gone_keeps_nothing(slot: SlotFacts | None, why: str | None) -> None:
    found = describe_source(replace(SERVER, slot=slot), (), NAMES).kept

    assert found is None if why is None else isinstance(found, Missing) and why in found.why


def test_columns_that_old_rows_may_have_got_values_in_are_named() -> None:
    found = describe_source(SERVER, (replace(KEYED, filled=("at", "who")), KEYED), NAMES)

    assert "a default in at, who" in found.filled["public.t"]
    assert found.unlogged == {}


@pytest.mark.parametrize(
    ("kind", "default", "missing", "told"),
    [
        pytest.param("int4", "5", "{5}", True, id="a number"),
        pytest.param("int4", "'-1'::integer", "{-1}", True, id="below zero"),
        pytest.param("bool", "true", "{t}", True, id="a flag"),
        pytest.param("varchar", "'a ''b'::character varying", '{"a \'b"}', True, id="a text"),
        pytest.param("int4", "5", "{6}", False, id="another one was set later"),
        pytest.param("int4", None, "{6}", False, id="it was dropped later"),
        pytest.param("timestamptz", "now()", '{"2026-01-01 00:00:00+00"}', False, id="computed"),
        pytest.param("uuid", "gen_random_uuid()", None, False, id="another one for each row"),
        pytest.param(
            "jsonb", "'{}'::jsonb", '{"{}"}', False, id="a type whose default is not told"
        ),
    ],
)
def test_only_a_constant_is_told(
    kind: str, default: str | None, missing: str | None, told: bool
) -> None:
    assert is_default_in_rows(kind, default, missing) is told
