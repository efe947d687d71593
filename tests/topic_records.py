"""All that a real topic of one partition holds, for tests that ask what was sent."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

from kafka import KafkaConsumer, TopicPartition


def records(bootstrap: str, topic: str) -> Iterator[Any]:
    """Every record up to the end there is now, by offset; none if there is no such topic."""
    settings = {"bootstrap_servers": bootstrap, "enable_auto_commit": False}
    with closing(KafkaConsumer(**settings, auto_offset_reset="earliest")) as consumer:
        if topic not in consumer.topics():
            return
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])
        end = consumer.end_offsets([partition])[partition]
        while consumer.position(partition) < end:
            for batch in consumer.poll(timeout_ms=1000).values():
                yield from batch
