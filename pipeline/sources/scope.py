"""What is a source asked to examine?  The tables that are collected, and what becomes of them.

Pure.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from pipeline.model import ShardId


@dataclass(frozen=True, slots=True)
class FoldedTable:
    """The table that a shard folds into, and the key that its rule names, if any."""

    table: str
    key: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ExaminationScope:
    """Without a word on ``captured``, every table is collected.

    ``fold`` is asked of a ``database.table``; None for a shard that the rules ignore.  ``named``
    are those that topics are named for: a server may hide them.  ``own_keys``: the collector may
    send other keys than those that tables declare.  ``outage`` is how long the pipeline may stand
    still without losing a change, ``clock_skew`` how far the source's clock may be from ours.
    ``largest`` is the size in bytes of the largest record that gets through to the topics.
    """

    fold: Callable[[str], FoldedTable | None]
    outage: timedelta
    clock_skew: timedelta
    captured: Callable[[ShardId], bool] = lambda _: True
    named: frozenset[str] = frozenset()
    own_keys: bool = False
    largest: int | None = None
