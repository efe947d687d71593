"""How is a table spelled in the name of its topic, and where in it may it stand?  Pure."""

import re
from collections.abc import Iterator

from pipeline.model import ShardId


def spelled(shard: str) -> str:
    """*shard* (``database.table``, or one name alone) as collectors write it in a topic's name.

    They put ``_`` for what a topic's name may not hold.  The names themselves count, without the
    quotes that ours have where a name holds a dot.

    Two shards may be spelled alike, and then share a topic.
    """
    own = ShardId.read(shard)
    text = f"{own.database}.{own.relation}" if own.relation else own.database
    return re.sub(r"[^\w.-]", "_", text, flags=re.ASCII)


def endings(topic: str) -> Iterator[str]:
    """What may be the shard in a topic's name: all that follows one of its dots."""
    parts = topic.split(".")
    return (".".join(parts[start:]) for start in range(1, len(parts)))
