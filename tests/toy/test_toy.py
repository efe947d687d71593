"""Another source, collector and format land, merge, are watched and gated; no product file knows.

One story on a real broker, with the service as a process and its Spark: each step stands on the
one before.  Messages hold three changes each and no position.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from demo.kafka import Kafka
from demo.ports import free_ports
from demo.processes import wait_until
from tests.pipeline.transports.topics import make
from tests.toy.collector import to_kafka
from tests.toy.stand import COLUMNS, SOON, TABLE, Stand, now

pytestmark = [pytest.mark.stack, pytest.mark.spark]


@pytest.fixture(scope="module")
def stand(server_folder: Path) -> Iterator[Stand]:
    home = server_folder / "toy"
    home.mkdir()
    port, controller = free_ports(2)
    kafka = Kafka(home / "kafka", port, controller)
    kafka.start()
    made = Stand(home, to_kafka(kafka.bootstrap, "toy"), {"TOY_KAFKA": kafka.bootstrap})
    try:
        make(kafka.bootstrap, name="toy")
        made.start()
        yield made
    finally:
        made.stop()
        kafka.stop()


def test_a_toy_lands_merges_is_watched_and_gated(stand: Stand) -> None:
    stand.database.put(TABLE, *({"id": n, "name": f"n{n}"} for n in range(1, 101)))
    stand.database.put(TABLE, {"id": 7, "name": "seven"}, {"id": 7, "name": "Seven"})
    stand.database.delete(TABLE, 100)
    cut = now()

    assert stand.ready(cut)
    assert stand.mirrored() == stand.database.rows(TABLE)
    assert len(stand.mirrored()) == 99
    wait_until(lambda: stand.lags() == {"collection", "consumer", "merge"}, SOON, "lags")
    assert stand.incidents() == []


def test_what_is_not_sent_is_not_ready(stand: Stand) -> None:
    stand.pump.stop()
    stand.database.put(TABLE, {"id": 1, "name": "waits"})
    cut = now()

    stand.stays_shut(cut)
    assert stand.mirrored()[1] == {"id": 1, "name": "n1"}

    stand.pump.start()
    assert stand.ready(cut)
    assert stand.mirrored() == stand.database.rows(TABLE)


def test_what_is_sent_and_merged_but_not_acknowledged_is_not_ready(stand: Stand) -> None:
    stand.pump.acknowledging = False
    stand.database.put(TABLE, {"id": 2, "name": "unsaid"})
    cut = now()

    there = {"id": 2, "name": "unsaid"}
    wait_until(lambda: stand.mirrored()[2] == there, SOON, "the mirrored row")
    stand.stays_shut(cut)

    stand.pump.acknowledging = True
    assert stand.ready(cut)


def test_the_toys_own_rule_takes_a_column_and_blocks_a_changed_type(stand: Stand) -> None:
    stand.database.define(TABLE, {**COLUMNS, "amount": "number"}, "id")
    stand.database.put(TABLE, {"id": 3, "name": "more", "amount": 33})
    assert stand.ready(now())
    assert stand.mirrored()[3] == {"id": 3, "name": "more", "amount": 33}
    assert stand.mirrored()[4]["amount"] is None

    stand.database.define(TABLE, {**COLUMNS, "amount": "word"}, "id")
    stand.database.put(TABLE, {"id": 4, "name": "other", "amount": "four"})
    cut = now()

    wait_until(lambda: stand.ask(cut)[0] == 409, SOON, "BLOCKED")
    assert "schema" in stand.ask(cut)[1]
    assert stand.mirrored()[4]["amount"] is None
