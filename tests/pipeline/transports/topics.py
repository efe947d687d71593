"""Topics on a real broker, filled by librdkafka: quick, and each record where it is wanted."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from itertools import count

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, Producer
from kafka import KafkaAdminClient

from pipeline.errors import UnreachableError
from pipeline.transports.kafka import Consumption
from tests.patience import SOON, answered

Record = tuple[bytes | None, bytes | None]
_names = (f"p1.consume.t{n}" for n in count())


def make(
    bootstrap: str,
    *,
    partitions: int = 1,
    name: str | None = None,
    **configs: str,
) -> str:
    """Create a topic of a new name, or of this one; wait until it is there.

    Its records stay: `send` gives them a time of long ago.
    """
    topic = name or next(_names)
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    settings = {key.replace("_", "."): value for key, value in configs.items()}
    settings["retention.ms"] = "-1"
    wanted = {"num_partitions": partitions, "replication_factor": 1, "configs": settings}
    admin.create_topics({topic: wanted})
    admin.wait_for_topics([topic])
    admin.close()
    return topic


def some(first: int, until: int) -> list[Record]:
    return [(f"k{n}".encode(), f"v{n}".encode()) for n in range(first, until)]


def send(
    bootstrap: str,
    topic: str,
    rows: Iterable[Record],
    *,
    partition: int = 0,
    headers: Sequence[tuple[str, bytes]] = (),
    **settings: str | int,
) -> None:
    """Send *rows* in order; returns when all are acknowledged."""
    config = {key.replace("_", "."): value for key, value in settings.items()}
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 1, "log_level": 0, **config})
    lost: list[str] = []

    def look(error: KafkaError | None, _: object) -> None:
        if error is not None:
            lost.append(error.str())

    for key, value in rows:
        producer.produce(
            topic,
            value,
            key,
            partition,
            on_delivery=look,
            timestamp=1_700_000_000_123,
            headers=[*headers],
        )
    assert producer.flush(SOON.total_seconds()) == 0
    assert lost == []


def read(reading: Consumption) -> pa.Table:
    """All that it reads."""
    return pa.Table.from_batches(list(reading))


def offsets(table: pa.Table) -> Mapping[tuple[str, int], list[int]]:
    """Offsets of each partition, as they came."""
    found: dict[tuple[str, int], list[int]] = {}
    for row in table.select(["topic", "partition", "offset"]).to_pylist():
        found.setdefault((row["topic"], row["partition"]), []).append(row["offset"])
    return found


def refused(
    asked: Callable[[], object], why: str, *, meanwhile: str = "the brokers said nothing"
) -> str:
    """What it says, which *why* fits: while it says only *meanwhile*, brokers may be slow."""

    def told() -> str:
        with pytest.raises(UnreachableError) as error:
            asked()
        said = str(error.value)
        if not re.search(why, said):
            raise AssertionError(said)
        return said

    return answered(told, meanwhile=AssertionError, says=meanwhile, within=timedelta(minutes=1))
