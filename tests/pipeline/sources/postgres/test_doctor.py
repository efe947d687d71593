"""What keeps a Postgres from being mirrored whole is found, with the statement that fixes it."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from pipeline.finding import WARN, FindingSeverity
from pipeline.model import Shard
from pipeline.settings import CollectorSettings, SourceSettings
from pipeline.sources.postgres.doctor import collect_findings
from pipeline.sources.postgres.facts import (
    HeartbeatFacts,
    PostgresFacts,
    PostgresShardFacts,
    PublicationFacts,
    PublishedFacts,
    SlotFacts,
)
from pipeline.sources.postgres.replication import Replication
from pipeline.sources.source import ExaminationScope, FoldedTable

CONNECT = CollectorSettings("http://connect:8083", "shop-1")
SETTINGS = SourceSettings("shop", "db", 5432, "sluice", CONNECT, "shop")
NAMES = Replication("shop", "sluice", "sluice_shop")
GOOD = PostgresFacts(
    settings={
        "wal_level": "logical",
        "fsync": "on",
        "full_page_writes": "on",
        "max_wal_senders": "10",
        "max_replication_slots": "10",
        "max_slot_wal_keep_size": "10240",
        "idle_replication_slot_timeout": "0",
    },
    slots=1,
    senders=1,
    slot=SlotFacts("sluice_shop", database="shop"),
    publication=PublicationFacts("sluice"),
)
KEYED = PostgresShardFacts(
    Shard("shop", "public.t"),
    columns=("id", "a"),
    nullable=("a",),
    identified=("id",),
    unique=(("id",),),
    primary=True,
)
SCOPE = ExaminationScope(FoldedTable, timedelta(hours=24), timedelta(seconds=5))


def findings_of(
    server: PostgresFacts = GOOD,
    *shards: PostgresShardFacts,
    scope: ExaminationScope = SCOPE,
    elsewhere: Mapping[str, str] | None = None,
) -> list[tuple[FindingSeverity, str, str, str]]:
    found = collect_findings(
        SETTINGS, NAMES, server, shards or (KEYED,), scope, elsewhere=elsewhere
    )
    return [(one.severity, one.code, one.what, one.fix) for one in found]


def assert_is(found: tuple[FindingSeverity, str, str, str], expected: str) -> None:
    """*expected* is ``severity code: part of the fix``."""
    rule, _, fix = expected.partition(": ")
    assert f"{found[0]} {found[1]}" == rule
    assert fix in found[3]


def test_a_server_that_is_set_up_well_has_nothing_to_put_right() -> None:
    assert findings_of() == []


def settings(**changed: str) -> PostgresFacts:
    return replace(GOOD, settings={**GOOD.settings, **changed})


def slot(**changed: Any) -> PostgresFacts:
    return replace(GOOD, slot=SlotFacts("sluice_shop", **{"database": "shop", **changed}))


def with_heartbeat(**changed: Any) -> PostgresFacts:
    return replace(GOOD, heartbeat=HeartbeatFacts(**changed))


OF_SERVER = {
    "wal_level": (settings(wal_level="replica"), "refuse wal_level: logical"),
    "fsync": (settings(fsync="off"), "note fsync: 'on'"),
    "standby": (replace(GOOD, standby=True), "refuse standby: takes writes"),
    "no sender is left": (
        replace(GOOD, slot=SlotFacts("s", database="shop", active=False), senders=10),
        "refuse max_wal_senders: ALTER SYSTEM SET max_wal_senders = '12'",
    ),
    "an outage ends the slot": (
        settings(idle_replication_slot_timeout="3600"),
        "warn idle_replication_slot_timeout: ALTER SYSTEM SET idle_replication_slot_timeout = 0",
    ),
    "no publication": (
        replace(GOOD, publication=None),
        'refuse publication: CREATE PUBLICATION "sluice" FOR ALL TABLES',
    ),
    "a publication of some operations": (
        replace(GOOD, publication=PublicationFacts("sluice", operations=("insert",))),
        "refuse publication: SET (publish = 'insert, update, delete, truncate')",
    ),
    "its clock": (replace(GOOD, ahead=timedelta(seconds=-9)), "warn clock: time server"),
    "its load is hidden": (
        replace(GOOD, monitor=False),
        'warn grant_monitor: GRANT pg_monitor TO "sluice"',
    ),
    "no heartbeat's table": (
        with_heartbeat(present=False, creatable=False, schema=True),
        'refuse grant_heartbeat: CREATE TABLE IF NOT EXISTS "sluice"."heartbeat"',
    ),
    "a heartbeat's table of another": (
        with_heartbeat(lacking=("UPDATE",)),
        'refuse grant_heartbeat: GRANT UPDATE ON "sluice"."heartbeat" TO "sluice"',
    ),
    "no slot yet": (replace(GOOD, slot=None), "note slot: register the connector"),
    "its plugin": (slot(plugin="wal2json"), "refuse slot: pg_drop_replication_slot"),
    "of another database": (slot(database="crm"), "refuse slot: another slot"),
    "a lost slot": (slot(status="lost", retained=None), "refuse slot_lost: a new base"),
    "a slot about to be lost": (
        slot(status="unreserved"),
        "refuse slot_lost: SET max_slot_wal_keep_size = -1",
    ),
    "nothing limits what is kept": (
        settings(max_slot_wal_keep_size="-1"),
        "note max_slot_wal_keep_size: less than the disk has",
    ),
}


@pytest.mark.parametrize(("server", "expected"), OF_SERVER.values(), ids=OF_SERVER)
def test_what_is_wrong_with_the_server_is_told_once_with_its_fix(
    server: PostgresFacts, expected: str
) -> None:
    (found,) = (one for one in findings_of(server) if one[1] != "slot_idle")

    assert_is(found, expected)


def test_an_idle_slot_says_what_it_keeps() -> None:
    (found,) = findings_of(slot(active=False, retained=3 * 2**30 // 2))

    assert found[:2] == (WARN, "slot_idle")
    assert "retains 1.5 GB" in found[2]


OF_TABLE = {
    "unlogged": (
        replace(KEYED, logged=False, published=None),
        "refuse unlogged: ALTER TABLE public.t SET LOGGED",
    ),
    "not in the publication": (
        replace(KEYED, published=None),
        'refuse unpublished: ALTER PUBLICATION "sluice" ADD TABLE public.t',
    ),
    "some of its rows": (
        replace(KEYED, published=PublishedFacts("(id > 5)")),
        'refuse unpublished: DROP TABLE public.t; ALTER PUBLICATION "sluice" ADD TABLE public.t',
    ),
    "some of its columns": (
        replace(KEYED, published=PublishedFacts(left_out=("a",))),
        "warn columns_unpublished: ADD TABLE public.t",
    ),
    "replica identity nothing": (
        replace(KEYED, identity="n", identified=()),
        "warn replica_identity: REPLICA IDENTITY FULL",
    ),
    "an index without the key": (
        replace(KEYED, identity="i", identified=("a",)),
        "refuse replica_identity: REPLICA IDENTITY FULL",
    ),
    "no key": (
        replace(KEYED, identity="f", identified=(), unique=(), primary=False),
        "warn no_key: ADD PRIMARY KEY",
    ),
    "hidden": (replace(KEYED, readable=False), "refuse grant_select: pg_read_all_data"),
}


@pytest.mark.parametrize(("shard", "expected"), OF_TABLE.values(), ids=OF_TABLE)
def test_what_is_wrong_with_a_table_is_told_with_its_fix(
    shard: PostgresShardFacts, expected: str
) -> None:
    (found,) = findings_of(GOOD, shard)

    assert_is(found, expected)


@pytest.mark.parametrize(
    ("key", "codes"),
    [
        pytest.param(("id",), [], id="its own"),
        pytest.param(("id", "a"), ["key"], id="may be NULL"),
        pytest.param(("b",), ["key", "replica_identity"], id="no such column"),
    ],
)
def test_a_key_that_the_rules_name_must_name_rows_and_be_sent(
    key: tuple[str, ...], codes: list[str]
) -> None:
    scope = replace(SCOPE, fold=lambda shard: FoldedTable(shard, key))

    found = {one[1] for one in findings_of(GOOD, KEYED, scope=scope)}

    assert found >= set(codes)
    assert bool(found) == bool(codes)


def test_what_is_ignored_is_not_ruled_and_the_heartbeat_always_is() -> None:
    unseen = replace(KEYED, published=None)
    beats = replace(unseen, shard=Shard("shop", "sluice.heartbeat"))

    found = collect_findings(
        SETTINGS, NAMES, GOOD, (unseen, beats), replace(SCOPE, fold=lambda _: None)
    )

    assert [(one.code, one.where) for one in found] == [("unpublished", "table sluice.heartbeat")]


def test_a_table_that_has_no_key_at_all_cannot_be_updated() -> None:
    bare = replace(KEYED, identified=(), unique=(), primary=False)

    assert [one[1] for one in findings_of(GOOD, bare)] == ["no_key", "replica_identity"]


def test_a_captured_table_whose_changes_have_other_names_is_told() -> None:
    told = {"public.root": "it is partitioned"}
    ((severity, code, what, fix),) = findings_of(elsewhere=told)

    assert (severity, code) == (WARN, "sent_elsewhere")
    assert "public.root: it is partitioned" in what
    assert "table.include.list" in fix
    assert findings_of(elsewhere=told, scope=replace(SCOPE, fold=lambda _: None)) == []
