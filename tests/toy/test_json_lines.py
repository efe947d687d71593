"""The toy once more, without any Kafka: its messages go through the transport of examples/."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from demo.processes import wait_until
from pipeline.changelog.change_log import ChangeLog
from pipeline.changelog.scan import find_parts, scan_files
from pipeline.changelog.table import CHANGES, Stamp
from pipeline.delta.actions import remove_file
from pipeline.delta.commit import commit_actions
from pipeline.delta.store import open_store
from pipeline.errors import LostRaceError
from pipeline.landing.staging import write_rows
from pipeline.model import Op
from tests.toy.stand import SOON, TABLE, Stand, now, without_kafka

TUNING = "pipeline:\n"
IN_TASKS = "  small_batch_rows: 0\n"  # each batch is a Spark job

pytestmark = [pytest.mark.stack, pytest.mark.spark]


@pytest.fixture
def stand(server_folder: Path) -> Iterator[Stand]:
    with without_kafka(server_folder / "toy_lines", {TUNING: f"{TUNING}{IN_TASKS}"}) as made:
        yield made


def test_what_comes_by_files_lands_merges_and_opens_the_gate(stand: Stand) -> None:
    stand.database.put(TABLE, *({"id": n, "name": f"n{n}"} for n in range(1, 101)))
    stand.database.delete(TABLE, 100)

    assert stand.ready(now())
    assert stand.mirrored() == stand.database.rows(TABLE)
    assert len(stand.mirrored()) == 99
    assert stand.incidents() == []
    landed = add_up(stand.ledger(), "came_out")
    assert (landed["u"], landed["d"]) == (100, 1)  # the toy puts rows
    assert {one["state"] for one in stand.ledger()} == {"balanced"}

    stand.pause()
    stand.database.put(TABLE, *({"id": n, "name": f"n{n}"} for n in range(101, 104)))
    wait_until(lambda: add_up(stand.ledger(), "in_flight")["u"] == 3, SOON, "landed rows")
    *_, flying = (one for one in stand.ledger() if one["in_flight"])
    take_out(stand, 102)
    stand.unpause()
    wait_until(lambda: {101, 103} <= stand.mirrored().keys(), SOON, "a merge")
    wait_until(lambda: stand.residual() == 1, SOON, "a residual")

    assert 102 not in stand.mirrored()
    (lost,) = (one for one in stand.ledger() if one["state"] == "residual")
    assert lost["missing"] == {"u": 1}
    assert lost["minute"] == flying["minute"]


def add_up(minutes: list[dict[str, Any]], name: str) -> Counter[str]:
    """Rows by op."""
    return sum((Counter(one[name]) for one in minutes), Counter())


def take_out(stand: Stand, key: int) -> None:
    """Take the landed change of that key out of the change log."""
    log = ChangeLog(open_store(str(stand.home / "lake" / "changes")), "main")
    names = [name for name in CHANGES.names if name != "dt"]
    while True:
        log.look()
        for part in find_parts(log.snapshot, -1, log.batch()):
            rows = scan_files(
                log.store, (part,), among=("lane", ("main",)), ops=tuple(Op), columns=names
            )
            own = pc.equal(rows["key"], f'["toy","{TABLE}","{key}"]')
            if pc.any(own, min_count=0).as_py():
                break
        (gone,) = rows.filter(own).select(["batch", "received"]).to_pylist()
        kept = rows.filter(pc.invert(pc.fill_null(own, False)))
        kept = kept.append_column("dt", pa.repeat(gone["received"].date(), len(kept)))
        (batch,) = kept.select(CHANGES.names).combine_chunks().to_batches()
        file = write_rows(log, batch, Stamp("main", gone["batch"], gone["received"]))
        old = log.snapshot.files[part.path]
        actions = [remove_file(old, at=gone["received"]), file.added(gone["received"])]
        try:
            commit_actions(
                log.store, log.snapshot, actions, operation="WRITE", clock=gone["received"]
            )
        except LostRaceError:
            continue
        return
