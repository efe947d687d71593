"""Under which key does a change stand in the change log?

The key is the canonical JSON array of the key values' texts.  Shards that may hold the same key
for different rows must not share one, so the source and the shard stand in front, unless the
config says that keys are unique across shards.  The text is compared byte by byte: both faces
escape exactly alike.
"""

import json
from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F

from pipeline.messages.jsontext import quote

LONGEST = 2**31 - 1


def canonical(
    values: Sequence[str | None], source: str, shard: str, *, unique: bool = False
) -> str:
    """Key of the row with these key values, in the order of the message's key object."""
    parts = values if unique else (source, shard, *values)
    return f"[{','.join('null' if part is None else quote(part) for part in parts)}]"


def parse(key: str) -> tuple[str | None, ...]:
    """Give back what stands in a canonical key, the source and the shard too if it has them."""
    return tuple(json.loads(key))


def column(key_values: Column, source: Column, shard: Column, *, unique: Column) -> Column:
    """Build the key of each change from a format's ``key_values``; null stays null.

    In: *key_values*, *source* and *shard* strings, *unique* boolean.  Out: string.
    """
    place = F.to_json(F.array(source, shard))
    placed = F.concat(F.rtrim(place, F.lit("]")), F.lit(","), F.substring(key_values, 2, LONGEST))
    return F.when(unique, key_values).otherwise(placed)
