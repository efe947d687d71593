"""Of which tables are rows sent?  As a collector's lists say, and its source lets it.  Pure."""

import json
from collections.abc import Callable
from dataclasses import dataclass

from pipeline.model import ShardId


@dataclass(frozen=True, slots=True)
class Capture:
    """Of which tables rows are sent, as it is set now.

    ``text`` is another whenever that may be.  Where lists cannot be read, they are not ``known``,
    and let nothing in.  ``said_by`` names them to people.  ``replaced`` are tables whose
    rows became others of late without a word in the log: dropped, made anew, exchanged.
    """

    sends: Callable[[ShardId], bool]
    text: str = ""
    known: bool = True
    said_by: str = "the collector's lists"
    replaced: frozenset[ShardId] = frozenset()

    def __call__(self, shard: ShardId) -> bool:
        """Whether rows of *shard* are sent."""
        return self.sends(shard)


def both(lists: Capture, source: Capture | None) -> Capture:
    """What the *lists* of a collector let in and its *source* sends; None: that sends all."""
    if source is None:
        return lists
    return Capture(
        lambda shard: lists(shard) and source(shard),
        json.dumps([lists.text, source.text]),
        lists.known and source.known,
        f"{lists.said_by} or {source.said_by}",
        lists.replaced | source.replaced,
    )
