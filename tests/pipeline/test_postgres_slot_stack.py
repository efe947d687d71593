"""A real slot is made anew between two looks: what it passed over is a gap until a new base."""

import json
from collections.abc import Callable

import pytest

from demo.processes import wait_until
from tests.pipeline.backfill.live_backfills import bootstrap
from tests.pipeline.live import PATIENCE
from tests.pipeline.postgres_live import PostgresPipe

pytestmark = [pytest.mark.stack, pytest.mark.spark, pytest.mark.long]
TRUSTING = {"snapshot.mode": "initial", "offset.mismatch.strategy": "trust_slot"}
FREE = "SELECT count(*) FROM pg_replication_slots WHERE slot_name = '{}' AND NOT active"


def stop_and_go(p: PostgresPipe) -> None:
    """A pause alone is no gap."""
    p.servers.connect.halt(p.name)
    p.servers.connect.resume(p.name)


def make_anew(p: PostgresPipe) -> None:
    """As fast as that may be: landing looks neither before nor between."""
    p.servers.connect.halt(p.name)
    wait_until(lambda: p.sql(FREE.format(p.name)) == [(1,)], PATIENCE, "a slot that nobody reads")
    p.sql(
        f"SELECT pg_drop_replication_slot('{p.name}')",
        "INSERT INTO t VALUES (30, 'sent by nobody')",
        f"SELECT pg_create_logical_replication_slot('{p.name}', 'pgoutput')",
    )
    p.servers.connect.resume(p.name)


def landed_ids(p: PostgresPipe) -> set[int]:
    """The ids of t that the change log has heard of."""
    log = p.session.read.format("delta").load(f"{p.lane.runner.settings.lake}/changes")
    told = log.where("shard = 'public.t' AND op IN ('c', 'r', 'u')").select("after").collect()
    return {int(json.loads(row["after"])["id"]) for row in told}


def test_a_slot_that_was_made_anew_between_two_looks_is_a_gap_until_a_base_after_it(
    postgres_pipe: Callable[..., PostgresPipe],
) -> None:
    """Debezium fails of itself then, unless it is told to trust whatever the slot says."""
    p = postgres_pipe("anew", connector=TRUSTING)
    p.sql(
        *(f"CREATE TABLE {name} (id INT PRIMARY KEY, name VARCHAR(80))" for name in ("t", "e")),
        *(f"INSERT INTO {name} VALUES (1, 'a')" for name in ("t", "e")),
    )
    p.start()
    p.catch_up()
    stop_and_go(p)
    p.sql("UPDATE t SET name = 'b'", "CHECKPOINT")
    p.catch_up()
    assert (p.lane.checkpoint.gaps, p.pairs()) == ({}, {1: "b"})

    make_anew(p)
    p.sql("INSERT INTO t VALUES (31, 'sent')")
    p.catch_up()

    (gap,) = p.lane.checkpoint.gaps.values()
    assert gap.shards == (f"{p.name}/public.e", f"{p.name}/public.t")
    assert f"slot {p.name} was created again: it retains nothing below" in gap.why
    assert landed_ids(p) == {1, 31}, "the connector has noticed nothing, or this were no test"
    assert p.pairs() == {1: "b"}, "held, though more has landed"

    p.servers.connect.halt(p.name)
    p.sql("DELETE FROM e")
    p.servers.connect.forget_offsets(p.name)
    p.servers.connect.resume(p.name)
    p.catch_up()
    assert p.lane.checkpoint.again[p.name].asked
    gaps = {name: text.shards for name, text in p.lane.checkpoint.gaps.items()}
    assert {name.partition(":")[0] for name in gaps} == {"unkept", "again"}
    assert {*gaps.values()} == {(f"{p.name}/public.e",)}, "of that no row was sent"
    assert p.pairs() == p.source_pairs()

    bootstrap(p, "e")
    p.catch_up()
    assert (p.lane.checkpoint.gaps, p.pairs("e")) == ({}, {})
