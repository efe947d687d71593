"""A live change that stands below the snapshot before it is quarantined, and no other."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pipeline.backfill_state import Backfill
from pipeline.checkpoint import Checkpoint, OpenSnapshot
from pipeline.formats.format import AROUND
from pipeline.landing.bases import with_overlaps
from pipeline.landing.batch_stats import BatchStats, UnreadChanges, gather, tally
from pipeline.landing.task import SLIM
from pipeline.model import Order, Origin
from tests.pipeline.landing.desk import Desk
from tests.pipeline.reading import readings

NAME = "shop/public.t"
SNAPSHOT = Order(1, 500, 500, 1)
LATER = Order(1, 700, 700, 1)
MARK = Checkpoint("shop", 0)


def row(offset: int, lsn: int, **changed: Any) -> dict[str, Any]:
    plain = {
        "source": "shop", "topic": "p.public.t", "partition": 0, "offset": offset,
        "table": "public.t", "shard": "public.t", "op": "c", "origin": int(Origin.LIVE),
        "epoch": 1, "log": lsn, "pos": lsn, "row": 1, "snapshot": AROUND, "note": None,
    }  # fmt: skip
    return plain | changed


READ = row(0, 500, op="r", origin=int(Origin.SNAPSHOT), snapshot="last")


def facts(*runs: list[dict[str, Any]]) -> BatchStats:
    told = [tally(pa.Table.from_pylist(rows, schema=SLIM)) for rows in runs]
    return gather(told, {}, readings("shop"))


def test_all_rows_of_a_transaction_that_was_open_while_the_snapshot_was_made_are_named() -> None:
    found = with_overlaps(facts([READ, row(1, 400)], [row(2, 410), row(3, 600)]), MARK)

    ids = tuple(f"p.public.t:0:{offset}" for offset in (1, 2, 3))
    assert found.errors == {NAME: UnreadChanges("shop", "public.t", 3, ids)}


def test_a_delete_at_the_place_of_the_snapshot_is_below_it() -> None:
    assert with_overlaps(facts([READ, row(1, 500, op="d", row=0)]), MARK).errors


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param([READ, row(1, 501)], id="above it"),
        pytest.param([READ, row(1, 400, snapshot=None)], id="sent again, or of a partition behind"),
        pytest.param([READ, row(1, 400, epoch=2)], id="of another log"),
        pytest.param([row(1, 400)], id="of a table without a snapshot"),
        pytest.param([READ, row(1, 400, table=None)], id="of a shard that is ignored"),
    ],
)
def test_other_changes_are_left_alone(rows: list[dict[str, Any]]) -> None:
    found = facts(rows)

    assert with_overlaps(found, MARK) is found


@pytest.mark.parametrize(
    ("checkpoint", "quarantined"),
    [
        pytest.param(
            Checkpoint("shop", 0, snaps={NAME: OpenSnapshot(SNAPSHOT, 0)}),
            True,
            id="it still comes",
        ),
        pytest.param(Checkpoint("shop", 0, bases={NAME: SNAPSHOT}), True, id="it is the base"),
        pytest.param(
            Checkpoint(
                "shop",
                0,
                bases={NAME: SNAPSHOT},
                rereads={NAME: Backfill("1", Origin.SNAPSHOT, SNAPSHOT, "s", 0, done=0)},
            ),
            False,
            id="the base was read again, while older changes were on their way",
        ),
        pytest.param(
            Checkpoint(
                "shop",
                0,
                bases={NAME: SNAPSHOT},
                rereads={NAME: Backfill("2", Origin.REPAIR, LATER, "s", 0, base=SNAPSHOT)},
            ),
            False,
            id="and rows were repaired since",
        ),
    ],
)
def test_a_snapshot_of_a_batch_before_counts_too(checkpoint: Checkpoint, quarantined: bool) -> None:
    assert (NAME in with_overlaps(facts([row(1, 400)]), checkpoint).errors) is quarantined


def message(lsn: int, key: int, **changed: str) -> tuple[bytes, bytes]:
    place = {"connector": "postgresql", "schema": "public", "table": "t", "lsn": lsn}
    source = {**place, "sequence": f'[null,"{lsn}"]', "snapshot": "false"} | changed
    op = "c" if source["snapshot"] == "false" else "r"
    value = {"op": op, "before": None, "after": {"id": key}, "source": source}
    return json.dumps({"id": key}).encode(), json.dumps(value).encode()


@pytest.mark.parametrize(("lsn", "quarantined"), [(400, True), (600, False)])
def test_a_first_transaction_is_quarantined_when_it_lands_and_not_lost(
    tmp_path: Path, lsn: int, *, quarantined: bool
) -> None:
    desk = Desk(tmp_path, names="a")
    topic = desk.topics.held.setdefault("a.public.t", [])
    topic += [message(500, 1, snapshot="first"), message(500, 2, snapshot="last")]
    desk.land()

    topic += [message(lsn, 3), message(700, 4, sequence='["650","700"]')]
    desk.land()

    assert desk.loop.checkpoint.bases == {"a/public.t": Order(1, 500, 500, 1)}
    told = {"public.t": ("a.public.t:0:2@1",)} if quarantined else {}
    assert desk.loop.checkpoint.quarantined == told
