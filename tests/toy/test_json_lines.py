"""The toy once more, without any Kafka: its messages go through the transport of examples/."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.toy.collector import to_lines
from tests.toy.stand import CONFIG, KAFKA, LINES, TABLE, Stand, now

TUNING = "pipeline:\n"
IN_TASKS = "  small_batch_rows: 0\n"  # each batch is a Spark job

pytestmark = [pytest.mark.stack, pytest.mark.spark]


@pytest.fixture
def stand(server_folder: Path) -> Iterator[Stand]:
    home = server_folder / "toy_lines"
    home.mkdir()
    text = CONFIG.read_text("utf-8")
    assert KAFKA in text
    config = home / "sluice.yaml"
    config.write_text(text.replace(KAFKA, LINES).replace(TUNING, f"{TUNING}{IN_TASKS}"))
    made = Stand(home, to_lines(home / "toy.jsonl"), {"TOY_LINES": str(home)}, config)
    try:
        made.start()
        yield made
    finally:
        made.stop()


def test_what_comes_by_files_lands_merges_and_opens_the_gate(stand: Stand) -> None:
    stand.database.put(TABLE, *({"id": n, "name": f"n{n}"} for n in range(1, 101)))
    stand.database.delete(TABLE, 100)

    assert stand.ready(now())
    assert stand.mirrored() == stand.database.rows(TABLE)
    assert len(stand.mirrored()) == 99
    assert stand.incidents() == []
