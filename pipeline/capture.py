"""Of which tables are rows sent?  As a collector's lists say, and its source lets it.  Pure."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from pipeline.finding import Finding
from pipeline.model import LogKeeper, ShardId


@dataclass(frozen=True, slots=True)
class Break:
    """Nothing kept, for the collector, what was written to any table: ``why``.

    ``since`` is when that was first noticed, ``over`` once it is kept again: what was written
    until then is sent by nobody.
    """

    why: str
    since: float
    over: bool = False


@dataclass(frozen=True, slots=True)
class Capture:
    """Of which tables rows are sent, as it is set now.

    ``text`` is another whenever that may be.  Where lists cannot be read, they are not ``known``,
    and let nothing in.  ``said_by`` names them to people.  ``replaced`` are tables whose
    rows became others without a word in the log (dropped, made anew, exchanged), each with when
    that was noticed last; such times are seconds of this process's own clock.
    ``keeper`` keeps the log of what is sent; None if nothing does, or it needs nothing that does.
    ``remembered`` is what the source has behind each table's name, in its own words, to be kept in
    the landing checkpoint; ``differs`` names the tables that have something else behind them than
    was remembered.
    ``alters`` tells of a column, ``database.table.column``, by which setting it is left out or its
    values are changed, empty if by none; it is None where that is so of no column.
    ``hazards`` are settings by which changes may be dropped, rewritten or delayed; they are all
    of which that may still be so once the looks are ``steady``, but for those of whom is asked and
    is ``unanswered``, named as a hazard's ``where``.  ``untold`` returns the alternatives of a
    remembered hazard's ``shards`` of which nothing was told: for them it lasts.
    """

    sends: Callable[[ShardId], bool]
    text: str = ""
    known: bool = True
    said_by: str = "the collector's lists"
    replaced: Mapping[ShardId, float] = field(default_factory=dict)
    broken: Break | None = None
    keeper: LogKeeper | None = None
    alters: Callable[[str], str] | None = None
    remembered: Mapping[str, str] = field(default_factory=dict)
    differs: Callable[[Mapping[str, str]], frozenset[ShardId]] = lambda _: frozenset()
    hazards: tuple[Finding, ...] = ()
    steady: bool = True
    unanswered: frozenset[str] = frozenset()
    untold: Callable[[Finding], frozenset[str]] = lambda _: frozenset()

    def __call__(self, shard: ShardId) -> bool:
        """Whether rows of *shard* are sent."""
        return self.sends(shard)

    @property
    def newest(self) -> float:
        """When anything was noticed last."""
        began = () if self.broken is None else (self.broken.since,)
        return max((*self.replaced.values(), *began), default=float("-inf"))

    def after(self, at: float) -> "Capture":
        """Without what was noticed up to *at*, unless it still lasts."""
        left = {shard: seen for shard, seen in self.replaced.items() if seen > at}
        ended = self.broken is not None and self.broken.over and self.broken.since <= at
        return replace(self, replaced=left, broken=None if ended else self.broken)


def both(lists: Capture, source: Capture | None) -> Capture:
    """What the *lists* of a collector let in and its *source* sends; None: that sends all.

    A source without a ``text`` sends all, too, and tells hazards only.
    """
    if source is None:
        return lists
    hazards = (*lists.hazards, *source.hazards)
    if not source.text:
        return replace(lists, hazards=hazards)
    return Capture(
        lambda shard: lists(shard) and source(shard),
        json.dumps([lists.text, source.text]),
        lists.known and source.known,
        f"{lists.said_by} or {source.said_by}",
        {**lists.replaced, **source.replaced},
        source.broken,
        source.keeper,
        lists.alters,
        source.remembered,
        source.differs,
        hazards,
    )
