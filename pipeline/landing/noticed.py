"""What was noticed at the sources, of which no log tells, and which of it does no mark say yet?

It is told in each round until a batch that says it is committed, and makes one due; then no more:
a table that has got a new base since is short of nothing.  Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from pipeline.capture import Capture
from pipeline.landing.listing import Listing
from pipeline.mark import Mark, source_of
from pipeline.model import Shard, ShardId

NEVER = float("-inf")


@dataclass(eq=False)
class Noticed:
    """For each source up to when the marks say all, and what it told last."""

    _said: dict[str, float] = field(default_factory=dict)
    _told: Mapping[str, Capture] = field(default_factory=dict)

    def unsaid(self, listing: Listing) -> Listing:
        """*listing* without what a mark says."""
        self._told = listing.captures
        left = {n: one.after(self._said.get(n, NEVER)) for n, one in self._told.items()}
        return replace(listing, captures=left)

    def is_due(self, mark: Mark) -> bool:
        """Whether any of it is news of a table that *mark* knows."""
        news = {n: one for n, one in self._told.items() if one.newest > self._said.get(n, NEVER)}
        return bool(news) and any(
            table is not None and self._is_news(Shard.parse(name))
            for name, table in mark.shards.items()
            if source_of(name) in news
        )

    def say(self) -> None:
        """A batch that says all of it is committed."""
        self._said |= {name: one.newest for name, one in self._told.items()}

    def _is_news(self, shard: Shard) -> bool:
        told = self._told[shard.source]
        began = NEVER if told.broken is None else told.broken.since
        seen = told.replaced.get(ShardId.parse(shard.name), NEVER)
        return max(began, seen) > self._said.get(shard.source, NEVER)
