"""Which columns has a log from this file on?  Those it had, and what is new.  Pure.

A column that is gone in a file stays, and is null in its rows.  One whose type is another keeps the
type that it had: a value that does not fit it is held with its row, and never guessed.
"""

from collections.abc import Mapping, Sequence

from pipeline.files.message import ADDED, ColumnsHead, own_key


def grown(
    shard: str, known: ColumnsHead | None, told: Mapping[str, str], key: Sequence[str]
) -> ColumnsHead | None:
    """What is told of the columns before a file that has *told* ones; None if nothing is new."""
    if known is None:
        every = (*((name, kind) for name, kind in told.items() if name not in _OWN), *ADDED)
        return ColumnsHead(shard, "create", every, own_key(key))
    names = {name for name, _ in known.columns}
    new = tuple((name, kind) for name, kind in told.items() if name not in names)
    if not new and known.key == own_key(key):
        return None
    return ColumnsHead(shard, "alter", (*known.columns, *new), own_key(key))


_OWN = {name for name, _ in ADDED}
