"""A whole table, read in small reads by a row reader of any database."""

from collections.abc import Sequence
from itertools import pairwise

from pipeline.model import Shard
from pipeline.sources.row_reader import KeyTexts, ReadFence, RowReader, RowsAsked, RowsRead


def one_by_one(
    rows: RowReader, fence: ReadFence, shard: Shard, key: Sequence[str]
) -> tuple[list[str], KeyTexts | None]:
    """All rows, one a read, and the key of the last."""
    single, after = list[str](), None
    while True:
        read = rows.read(fence, RowsAsked(shard, tuple(key), after, None, 1))
        if read.last is None:
            return single, after
        single += read.rows["after"].to_pylist()
        after = read.last


def in_pieces(
    rows: RowReader, fence: ReadFence, shard: Shard, key: Sequence[str], pieces: int
) -> list[RowsRead]:
    """All rows, one read for each piece between the reader's own bounds."""
    ends: list[KeyTexts | None] = [None, *rows.bounds(shard, key, pieces), None]
    return [
        rows.read(fence, RowsAsked(shard, tuple(key), low, high, 10_000))
        for low, high in pairwise(ends)
    ]
