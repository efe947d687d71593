"""How is a table spelled in the name of its topic?  Pure."""

import re


def spelled(shard: str) -> str:
    """*shard* (``database.table``) with what a topic's name may not hold: collectors put ``_``.

    Two shards may be spelled alike, and then share a topic.
    """
    return re.sub(r"[^\w.-]", "_", shard, flags=re.ASCII)
