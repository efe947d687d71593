"""Under which key does a change stand in the change log?

The key is the canonical JSON array of the key values' texts.  Shards that may hold the same key
for different rows must not share one, so the source and the shard stand in front, unless the
config says that keys are unique across shards.  The text is compared byte by byte: one key and a
column of keys escape exactly alike.  Pure.
"""

import json
from collections.abc import Sequence
from functools import lru_cache
from itertools import product

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.formats.canonical import quote


def canonical(
    values: Sequence[str | None], source: str, shard: str, *, unique: bool = False
) -> str:
    """Key of the row with these key values, in the order of the message's key object."""
    parts = values if unique else (source, shard, *values)
    return f"[{','.join('null' if part is None else quote(part) for part in parts)}]"


def parse(key: str) -> tuple[str | None, ...]:
    """Give back what stands in a canonical key, the source and the shard too if it has them."""
    return tuple(json.loads(key))


def column(
    key_values: pa.Array, source: pa.Array, shard: pa.Array, *, unique: pa.Array
) -> pa.Array:
    """Build the key of each change from a format's ``key_values``; null stays null.

    In: arrays of one length: *key_values* never an empty list, *source* and *shard* strings,
    *unique* boolean.  Out: string.  A change without a shard has a key only where it is unique.
    """
    behind = pc.binary_replace_slice(key_values.cast(pa.binary()), 0, 1, b"").cast(pa.string())
    placed = pc.binary_join_element_wise(_before(source, shard), behind, "")
    return pc.if_else(unique, key_values, placed) if unique.true_count else placed


def _before(source: pa.Array, shard: pa.Array) -> pa.Array:
    """What stands before the values: of sources and shards a batch has few, each quoted once."""
    sources, shards = source.dictionary_encode(), shard.dictionary_encode()
    pairs = product(sources.dictionary.to_pylist(), shards.dictionary.to_pylist())
    texts = pa.array([_beginning(one, other) for one, other in pairs], pa.string())
    width = pa.scalar(len(shards.dictionary), pa.int32())
    return texts.take(pc.add(pc.multiply(sources.indices, width), shards.indices))


@lru_cache(maxsize=2**16)  # the shards of one batch are those of the next
def _beginning(source: str, shard: str) -> str:
    return f"[{quote(source)},{quote(shard)},"
