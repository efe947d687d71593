"""The toy once more, without any Kafka: its messages go through the transport of examples/."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.toy.stand import TABLE, Stand, now, without_kafka

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
