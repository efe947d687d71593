"""The toy once more, without any Kafka: its messages go through the transport of examples/."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from demo.processes import wait_until
from pipeline.changelog.change_log import ChangeLog
from pipeline.delta.store import open_store
from tests.builders.change_log import take_out
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

    source = stand.ledger_hops()["collection"]
    assert (source["residual"], source["minutes"]) == (None, [])

    stand.pause()
    stand.database.put(TABLE, *({"id": n, "name": f"n{n}"} for n in range(101, 104)))
    wait_until(lambda: add_up(stand.ledger(), "in_flight")["u"] == 3, SOON, "landed rows")
    *_, flying = (one for one in stand.ledger() if one["in_flight"])
    log = ChangeLog(open_store(str(stand.home / "lake" / "changes")), "main")
    take_out(log, "key", f'["toy","{TABLE}","102"]')
    stand.unpause()
    wait_until(lambda: {101, 103} <= stand.mirrored().keys(), SOON, "a merge")
    wait_until(lambda: stand.residual() == 1, SOON, "a residual")

    assert 102 not in stand.mirrored()
    (lost,) = (one for one in stand.ledger() if one["state"] == "residual")
    assert lost["missing"] == {"u": 1}
    assert lost["minute"] == flying["minute"]
    wait_until(lambda: "ledger" in losses(stand), SOON, "an incident")
    assert stand.ask(now())[0] == 409


def losses(stand: Stand) -> set[str]:
    """Checks with an open incident of a loss."""
    return {one["check"] for one in stand.incidents() if one["kind"] == "lost"}


def add_up(minutes: list[dict[str, Any]], name: str) -> Counter[str]:
    """Rows by op."""
    return sum((Counter(one[name]) for one in minutes), Counter())
