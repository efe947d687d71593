"""Settings of a MirrorMaker 2 that copies topics from one cluster to another."""

BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"


def mirroring(there: str, here: str, topics: str, alias: str) -> dict[str, str]:
    """A connector's settings; there and here are servers to ask, *alias* stands before names."""
    return {
        "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
        "tasks.max": "1",
        "source.cluster.alias": alias,
        "target.cluster.alias": "here",
        "source.cluster.bootstrap.servers": there,
        "target.cluster.bootstrap.servers": here,
        "topics": topics,
        "replication.factor": "1",
        "offset-syncs.topic.replication.factor": "1",
        "refresh.topics.interval.seconds": "1",
        "sync.topic.acls.enabled": "false",
        "key.converter": BYTES,
        "value.converter": BYTES,
    }
