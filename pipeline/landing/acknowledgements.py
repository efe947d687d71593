"""Which of a collector's acknowledgements hold for what is landed?

What was acknowledged before a listing of ends counts once W has passed those ends; not before.
While batches are capped, W is behind the newest ends for ever; so one listing is kept until it is
passed.  Positions of two logs prove nothing about each other: what was said of a log that is no
longer read, or while it changed, never counts.  After a fail-over the stored offset may still be
the old server's for a while, and its position may well be a likely one of the new server.  Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pipeline.checkpoint import Epoch, Mark
from pipeline.landing.listing import Listing
from pipeline.landing.plan import Ends, Plan
from pipeline.model import Acknowledged
from pipeline.sources.positions import beyond, proper


@dataclass(frozen=True, slots=True)
class Promise:
    """What was acknowledged, and the ends that were listed after it."""

    acknowledged: Acknowledged
    ends: Ends

    def broken(self, ends: Ends) -> bool:
        """Whether W can never pass: a partition is gone, was created anew, or was cut off."""
        return any(
            (now := ends.get(tp)) is None or now.topic_id != end.topic_id or now.offset < end.offset
            for tp, end in self.ends.items()
        )

    def kept(self, chosen: Plan) -> bool:
        """Whether W has passed, once *chosen* is landed."""
        w = chosen.offsets
        return all(str(tp) in w and w[str(tp)].offset >= at.offset for tp, at in self.ends.items())


@dataclass(eq=False)
class Acknowledgements:
    """The oldest listing of each source that W has not passed, with what was said before it.

    ``_stale`` is what a collector that names no transactions said first in an epoch, which may be
    of the log before: the next thing it says is not.
    """

    _waiting: dict[str, Promise] = field(default_factory=dict)
    _stale: dict[tuple[str, int], Acknowledged] = field(default_factory=dict)

    def passed(
        self, listing: Listing, chosen: Plan, mark: Mark, epochs: Mapping[str, Epoch]
    ) -> dict[str, Acknowledged]:
        """What counts once W has come to *chosen*; *mark* is that before, *epochs* are those now.

        A promise that can no longer be kept is made anew, from this listing.
        """
        before = mark.epochs
        moved = {n for n, e in epochs.items() if n not in before or before[n].number != e.number}
        for source, promise in list(self._waiting.items()):
            if source in moved or promise.broken(listing.ends):
                del self._waiting[source]
        for source in listing.acknowledged.keys() - moved - self._waiting.keys():
            if source in epochs and self._credible(source, listing, mark, epochs[source]):
                self._waiting[source] = _promise(source, listing)
        found = {name: one for name, one in self._waiting.items() if one.kept(chosen)}
        for source in found:
            del self._waiting[source]
        return {source: promise.acknowledged for source, promise in found.items()}

    def _credible(self, source: str, listing: Listing, mark: Mark, epoch: Epoch) -> bool:
        said = listing.acknowledged[source]
        heads = listing.heads.get(source)
        end = heads[1].position if heads else epoch.position
        if beyond(said.position, end) is not None:
            return False
        told = proper(said.position) and proper(end)
        if epoch.number == 1 or source in mark.acknowledged or told:
            return True
        if mark.heartbeats.get(source, -1) <= epoch.heartbeat:
            return False  # nothing shows that the collector reads this log already
        return self._stale.setdefault((source, epoch.number), said) != said


def _promise(source: str, listing: Listing) -> Promise:
    own = {tp: end for tp, end in listing.ends.items() if listing.source_of[tp.topic] == source}
    return Promise(listing.acknowledged[source], own)
