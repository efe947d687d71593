"""How is a table spelled in the name of its topic, and where in it may it stand?  Pure."""

import re
from collections.abc import Iterator

from pipeline.model import ShardId


def spelled(shard: str) -> str:
    """*shard* (``database.table``) with what a topic's name may not hold: collectors put ``_``.

    The names themselves count, without the quotes in which ours stand where they hold a dot.

    Two shards may be spelled alike, and then share a topic.
    """
    own = ShardId.read(shard)
    return re.sub(r"[^\w.-]", "_", f"{own.database}.{own.relation}", flags=re.ASCII)


def endings(topic: str) -> Iterator[str]:
    """What may be the shard in a topic's name: all that follows one of its dots."""
    parts = topic.split(".")
    return (".".join(parts[start:]) for start in range(1, len(parts)))
