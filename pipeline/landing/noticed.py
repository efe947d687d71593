"""What was noticed at the sources, of which no log tells, and which of it does no mark say yet?

It is told in each round until a batch that says it is committed, and makes one due; then no more:
a table that has got a new base since is short of nothing.  Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from pipeline.checkpoint import Mark, source_of
from pipeline.finding import Finding
from pipeline.landing.listing import Listing
from pipeline.model import Capture, Shard, ShardId

NEVER = float("-inf")


@dataclass(eq=False)
class Noticed:
    """For each source up to when the marks say all, with which hazards, and what it told last."""

    _said: dict[str, float] = field(default_factory=dict)
    _hazards: dict[str, frozenset[Finding]] = field(default_factory=dict)
    _told: Mapping[str, Capture] = field(default_factory=dict)

    def unsaid(self, listing: Listing) -> Listing:
        """*listing* without what a mark says."""
        self._told = listing.captures
        left = {n: one.after(self._said.get(n, NEVER)) for n, one in self._told.items()}
        return replace(listing, captures=left)

    def is_due(self, mark: Mark) -> bool:
        """Whether any of it is news of a table that *mark* knows."""
        news = {
            name
            for name, one in self._told.items()
            if one.newest > self._said.get(name, NEVER) or self._unsaid_hazards(name)
        }
        return bool(news) and any(
            table is not None and self._is_news(Shard.parse(name))
            for name, table in mark.shards.items()
            if source_of(name) in news
        )

    def say(self) -> Mapping[str, Capture]:
        """A batch that says all of it is committed; returns what each source told."""
        self._said |= {name: one.newest for name, one in self._told.items()}
        self._hazards |= {name: frozenset(one.hazards) for name, one in self._told.items()}
        return self._told

    def _unsaid_hazards(self, source: str) -> set[Finding]:
        return set(self._told[source].hazards) - self._hazards.get(source, frozenset())

    def _is_news(self, shard: Shard) -> bool:
        told = self._told[shard.source]
        began = NEVER if told.broken is None else told.broken.since
        seen = told.replaced.get(ShardId.parse(shard.name), NEVER)
        if max(began, seen) > self._said.get(shard.source, NEVER):
            return True
        return any(one.affects(shard.name) for one in self._unsaid_hazards(shard.source))
