"""Which sources were found in disorder, and when is each read again?

A source that is held stays where W stands, so that the same records would be read, decoded and
judged in each round.  What can end it is told without reading: another server or log, a waiver, a
topic that is created anew.  For what nobody foresaw it is read again now and then all the same.
"""

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from pipeline.apply.retries import Retries
from pipeline.clocks import over
from pipeline.errors import NoSchemasError
from pipeline.landing.epochs import Epochs
from pipeline.landing.listing import Listing
from pipeline.landing.plan import Plan
from pipeline.registry import SchemaRegistry
from pipeline.report import Hold

PATIENCE = timedelta(minutes=1)  # with a registry that does not know a number yet, or just now


@dataclass(frozen=True, slots=True)
class Circumstances:
    """All that could let a source go on that was found in disorder."""

    chosen: Plan
    listing: Listing
    epochs: Epochs
    waived: frozenset[str]

    def of(self, source: str) -> Hashable:
        """Stable while nothing of it changes."""
        gaps = tuple(
            gap.id for gap in self.chosen.gaps if self.listing.source_of.get(gap.topic) == source
        )
        return self.epochs.number(source), source in self.listing.heads, self.waived, gaps


@dataclass(eq=False)
class Disorder:
    """Holds of sources, as long as each is not to be read again."""

    _holds: dict[str, Hold] = field(default_factory=dict)
    _retries: Retries = field(default_factory=Retries)
    _unknown: dict[tuple[str, int], datetime] = field(default_factory=dict)  # schemas, since when
    _lost: dict[str, frozenset[int]] = field(default_factory=dict)  # schemas, by source

    def holds(self, source: str) -> bool:
        """Whether it was found in disorder when it was read last."""
        return source in self._holds

    def no_schemas(self, error: NoSchemasError, at: datetime) -> Hold:
        """A source whose messages cannot be read now; they stay where they are.

        A number that its registry has not known for a while is nothing to wait for any more.
        """
        source, more = error.source, ""
        for number in error.numbers:
            since = self._unknown.setdefault((source, number), at)
            if over(since, PATIENCE, at):
                self._lost[source] = self._lost.get(source, frozenset()) | {number}
        if error.numbers:
            more = "; if it stays unknown, while others are known, what names it is quarantined"
        detail = f"{error.why}; nothing is lost, it goes on by itself once that answers{more}"
        return Hold(f"registry:{source}", f"source:{source}", "registry", detail)

    def registry(self, source: str, registry: SchemaRegistry | None) -> SchemaRegistry | None:
        """The *registry* of a source with the numbers that nobody waits for."""
        if registry is None:
            return None
        return replace(registry, lost=self._lost.get(source, frozenset()), others=registry.told())

    def standing(self, now: Circumstances, at: datetime) -> Mapping[str, Hold]:
        """Sources that are left out of this round unread."""
        return {
            source: hold
            for source, hold in self._holds.items()
            if not self._retries.due(source, now.of(source), at)
        }

    def judged(
        self, read: Iterable[str], found: Mapping[str, Hold], now: Circumstances, at: datetime
    ) -> None:
        """Remember what was *found* of the sources that were *read*."""
        for source in read:
            if source in found:
                self._holds[source] = found[source]
                self._retries.failed(source, now.of(source), at)
            else:
                self._holds.pop(source, None)
                self._retries.succeeded(source)
                for one in [one for one in self._unknown if one[0] == source]:
                    del self._unknown[one]
