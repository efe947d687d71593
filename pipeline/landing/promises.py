"""What was acknowledged before a listing of ends counts once W has passed those ends; not before.

While batches are capped, W is behind the newest ends for ever; so one listing is kept until it is
passed.  Positions of two logs prove nothing about each other: what was said of a log that is no
longer read, or while it changed, never counts.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pipeline.landing.listing import Listing
from pipeline.landing.plan import Plan
from pipeline.mark import Epoch
from pipeline.model import Acknowledged


@dataclass(eq=False)
class Promises:
    """The oldest listing of each source that W has not passed, with what was said before it."""

    _waiting: dict[str, tuple[Acknowledged, dict[str, int]]] = field(default_factory=dict)

    def passed(
        self,
        listing: Listing,
        chosen: Plan,
        before: Mapping[str, Epoch],
        now: Mapping[str, Epoch],
    ) -> dict[str, Acknowledged]:
        """What counts once W has come to *chosen*; epochs were *before* and are *now*."""
        moved = {n for n, e in now.items() if n not in before or before[n].number != e.number}
        for source in moved:
            self._waiting.pop(source, None)
        for source in listing.acknowledged.keys() - moved:
            self._waiting.setdefault(source, _promise(source, listing))
        found = {}
        for source, (acknowledged, ends) in list(self._waiting.items()):
            if all(_offset(chosen, name) >= end for name, end in ends.items()):
                found[source] = acknowledged
                del self._waiting[source]
        return found


def _promise(source: str, listing: Listing) -> tuple[Acknowledged, dict[str, int]]:
    own = {tp: end for tp, end in listing.ends.items() if listing.source_of[tp.topic] == source}
    return listing.acknowledged[source], {str(tp): end.offset for tp, end in own.items()}


def _offset(chosen: Plan, name: str) -> int:
    return chosen.offsets[name].offset if name in chosen.offsets else -1
