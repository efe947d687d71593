"""All that a real topic of one partition holds, for tests that ask what was sent."""

from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from typing import Any

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError

from demo.processes import wait_until

SOON = timedelta(minutes=3)  # against hanging only: a broker may have come back just now


def records(bootstrap: str, topic: str) -> Iterator[Any]:
    """Every record up to the end there is now, by offset; none if there is no such topic."""
    partition = TopicPartition(topic, 0)
    with closing(_consumer(bootstrap)) as consumer:
        if topic not in consumer.topics():
            return
        consumer.assign([partition])
        end = wait_until(lambda: _end(consumer, partition), SOON, f"end of {topic}")[0]
        while consumer.position(partition) < end:
            for batch in consumer.poll(timeout_ms=1000).values():
                yield from batch


def _consumer(bootstrap: str) -> KafkaConsumer:
    made: list[KafkaConsumer] = []

    def there() -> bool:
        try:
            made.append(
                KafkaConsumer(
                    bootstrap_servers=bootstrap,
                    enable_auto_commit=False,
                    auto_offset_reset="earliest",
                )
            )
        except KafkaError:
            return False
        return True

    wait_until(there, SOON, f"broker at {bootstrap}")
    return made[0]


def _end(consumer: KafkaConsumer, partition: TopicPartition) -> list[int]:
    try:
        return [consumer.end_offsets([partition])[partition]]
    except KafkaError:
        return []
