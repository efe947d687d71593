"""A table whose rows tell its columns has no base by that, and is BLOCKED; covers bases.

Nothing tells of a Postgres table that was empty at the snapshot, or made after it.
"""

import json
from pathlib import Path

import pytest

from checks.blocks import find_blocks
from pipeline.checkpoint import Checkpoint
from pipeline.model import Shard, Table
from pipeline.sources.postgres.dialect import POSTGRES
from tests.builders.harness import LandingHarness
from tests.checks.test_readiness import inputs

LATE = Table("public.late", (Shard("a", "public.late"),), key=("id",))
OLD = Table("public.old", (Shard("a", "public.old"),), key=("id",))
ID = {"type": "int32", "field": "id", "parameters": {"__debezium.source.column.type": "INT4"}}
MORE = {"type": "int32", "field": "more", "optional": True}


def message(
    table: str, lsn: int, key: int, snapshot: str = "false", *more: object, signalled: bool = False
) -> tuple[bytes, bytes]:
    """One row as Debezium writes it; *more* are schemas of columns beside its id.

    *signalled*: one of a snapshot that a signal asked for.
    """
    fields = [{"field": "after", "type": "struct", "fields": [ID, *more]}]
    commit = f'"{lsn - 50}"' if snapshot == "false" else f'"{lsn}"' if signalled else "null"
    place = {"connector": "postgresql", "schema": "public", "table": table, "lsn": lsn}
    source = {**place, "sequence": f'[{commit},"{lsn}"]', "snapshot": snapshot}
    op = "c" if snapshot == "false" else "r"
    payload = {"op": op, "before": None, "after": {"id": key}, "source": source}
    value = json.dumps(
        {"schema": {"type": "struct", "fields": fields}, "payload": payload}
    ).encode()
    return json.dumps({"schema": {}, "payload": {"id": key}}).encode(), value


def heartbeat_message(
    lsn: int, number: int, snapshot: str = "true", *, signalled: bool = False
) -> tuple[bytes, bytes]:
    """A heartbeat, as a snapshot of all tables or a signal reads it, or as the log has it."""
    _, value = message("heartbeat", lsn, 1, snapshot, signalled=signalled)
    read = json.loads(value)
    read["payload"]["source"]["schema"] = "sluice"
    read["payload"]["after"] = {"source": "a", "n": number}
    return json.dumps({"schema": {}, "payload": {"source": "a"}}).encode(), json.dumps(
        read
    ).encode()


@pytest.mark.parametrize("rows", [1, 3])
def test_a_postgres_table_that_the_snapshot_did_not_read_is_blocked(
    tmp_path: Path, rows: int
) -> None:
    harness = LandingHarness(tmp_path, names="a", dialect=POSTGRES)
    held = harness.topics.held
    held["a.public.old"] = [message("old", 500, 1, "last"), message("old", 600, 2)]
    harness.land()
    held["a.public.late"] = [message("late", 700 + key, key) for key in range(rows)]
    harness.land()
    held["a.public.old"] += [message("old", 900, 3)]
    harness.land()

    assert {*map(str, harness.checkpoint.existing)} == {"a/public.old", "a/public.late"}
    late, old = (_blocking(harness.checkpoint, table) for table in (LATE, OLD))
    assert (late, old) == (["no_base"], [])


def test_columns_are_newer_than_the_base_only_if_they_are_others_than_came_with_it(
    tmp_path: Path,
) -> None:
    """By this a default that filled old rows is told from one that the snapshot has read."""
    harness = LandingHarness(tmp_path, names="a", dialect=POSTGRES)
    topic = harness.topics.held.setdefault("a.public.old", [message("old", 500, 1, "last")])
    newer = []
    for lsn, more in ((600, ()), (700, ()), (800, (MORE,)), (900, (MORE,))):
        topic.append(message("old", lsn, lsn, "false", *more))
        harness.land()
        told, base = (
            harness.checkpoint.existing[Shard.parse("a/public.old")],
            harness.checkpoint.bases[Shard("a", "public.old")],
        )
        newer.append(told.order > base)

    assert newer == [False, False, True, True]


def _blocking(checkpoint: Checkpoint, table: Table) -> list[str]:
    found = inputs(taken={"landed": checkpoint}, table=table)
    return [reason.code for reason in find_blocks(found, frozenset())]
