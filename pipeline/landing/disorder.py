"""Which sources were found in disorder, and when is each read again?

A source that is held stays where W stands, so that the same records would be read, decoded and
judged in each round.  What can end it is told without reading: another server or log, a waiver, a
topic that is created anew.  For what nobody foresaw it is read again now and then all the same.
"""

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from pipeline.apply.retries import Retries
from pipeline.errors import NoSchemasError
from pipeline.landing.epochs import Epochs
from pipeline.landing.listing import Listing
from pipeline.landing.plan import Plan
from pipeline.report import Hold


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


def no_schemas(error: NoSchemasError) -> Hold:
    """A source whose messages cannot be read now; they stay where they are."""
    detail = f"{error.why}; nothing is lost, it goes on by itself once that answers"
    return Hold(f"registry:{error.source}", f"source:{error.source}", "registry", detail)


@dataclass(eq=False)
class Disorder:
    """Holds of sources, as long as each is not to be read again."""

    _holds: dict[str, Hold] = field(default_factory=dict)
    _retries: Retries = field(default_factory=Retries)

    def holds(self, source: str) -> bool:
        """Whether it was found in disorder when it was read last."""
        return source in self._holds

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
