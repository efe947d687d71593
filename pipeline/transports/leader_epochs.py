"""Where does the log of an earlier leader end, in the log there is now?

Kafka's OffsetsForLeaderEpoch (KIP-101): the first offset of the next leader epoch, or the log's end
for the newest.  An end below what was read under that epoch says that a new leader, elected
without being in sync, has cut the log off; offsets alone cannot tell once it has grown again.
kafka-python has the request, and no public method for it.
"""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from kafka import KafkaAdminClient
from kafka import TopicPartition as Partition
from kafka.errors import NoError, for_code
from kafka.protocol.consumer.offsets import OffsetForLeaderEpochRequest

_NOBODY = -1  # as a replica's id: we are a consumer


def ends_of_epochs(
    admin: KafkaAdminClient, epochs: Mapping[Partition, int]
) -> dict[Partition, int]:
    """Where the given leader epoch of each partition ends; -1 where no leader knows it.

    Raises:
        KafkaError: a partition was not answered for.
    """
    found: dict[Partition, int] = admin._manager.run(_ask, admin, epochs)
    return found


async def _ask(admin: Any, epochs: Mapping[Partition, int]) -> dict[Partition, int]:
    leaders = await admin._async_get_leader_for_partitions(set(epochs))
    found: dict[Partition, int] = {}
    for leader, partitions in leaders.items():
        asked = {partition: epochs[partition] for partition in partitions}
        response = await admin._manager.send(_request(asked), node_id=leader)
        found |= _answers(response)
    return found


def _request(epochs: Mapping[Partition, int]) -> Any:
    topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    parts = defaultdict(list)
    for at, epoch in epochs.items():
        parts[at.topic].append(
            topic.OffsetForLeaderPartition(
                partition=at.partition, current_leader_epoch=-1, leader_epoch=epoch
            )
        )
    topics = [topic(topic=name, partitions=listed) for name, listed in parts.items()]
    return OffsetForLeaderEpochRequest(replica_id=_NOBODY, topics=topics)


def _answers(response: Any) -> dict[Partition, int]:
    found = {}
    for topic in response.topics:
        for partition in topic.partitions:
            error = for_code(partition.error_code)
            if error is not NoError:
                msg = f"{topic.topic}:{partition.partition}: end of a leader epoch not told"
                raise error(msg)
            found[Partition(topic.topic, partition.partition)] = int(partition.end_offset)
    return found
