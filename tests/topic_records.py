"""All that a real topic of one partition holds, for tests that ask what was sent."""

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError

from tests.patience import answered


def records(bootstrap: str, topic: str) -> Iterator[Any]:
    """Every record up to the end there is now, by offset; none if there is no such topic."""
    partition = TopicPartition(topic, 0)
    with closing(_consumer(bootstrap)) as consumer:
        if topic not in consumer.topics():
            return
        consumer.assign([partition])
        end = _patiently(lambda: consumer.end_offsets([partition])[partition])
        while consumer.position(partition) < end:
            for batch in consumer.poll(timeout_ms=1000).values():
                yield from batch


def _consumer(bootstrap: str) -> KafkaConsumer:
    return _patiently(
        lambda: KafkaConsumer(
            bootstrap_servers=bootstrap,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
        )
    )


def _patiently(asked: Callable[[], Any]) -> Any:
    """A broker may have come back just now, whatever is said of it until then."""
    return answered(asked, meanwhile=KafkaError, says="")
