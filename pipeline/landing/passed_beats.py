"""Below which order can no new change of a source come, though its changes name no places?

A sequence of the sender's orders changes as the log does, whatever table they are of, or a base,
which stands at a heartbeat's order, would win over changes that are newer.  Where that is so, what
is logged after a heartbeat stands above it.  So below a heartbeat behind which all that was logged
has landed, too, only what was sent again can come: anything else is disorder, also in a partition
that has shown nothing as high.

A heartbeat that had landed when the log's end was noted was logged before that end; once all before
the end is acknowledged and landed, the heartbeat is passed, in the partitions that were there then:
one that is met later may hold what is older.  It is kept in memory: after a restart it is found out
anew.  Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pipeline.checkpoint import Mark
from pipeline.landing.listing import Listing
from pipeline.model import Head, Order, Ordering, SourcePartition
from pipeline.sources.positions import reaches


@dataclass(frozen=True, slots=True)
class _SeenBeat:
    """A heartbeat that had landed when its source's log ended at ``head``, and what was read."""

    order: Order
    head: Head
    partitions: frozenset[str]


@dataclass(eq=False)
class PassedBeats:
    """The newest of each source that is passed, and the one that may be next."""

    _passed: dict[str, _SeenBeat] = field(default_factory=dict)
    _next: dict[str, _SeenBeat] = field(default_factory=dict)

    def floors(
        self, mark: Mark, listing: Listing, orderings: Mapping[str, Ordering]
    ) -> Mapping[str, Order]:
        """`SourcePartition` -> order of the heartbeat that is passed in it.

        *listing* was made after *mark*.
        """
        counted = [one for one, its in orderings.items() if its is Ordering.SEQUENCE]
        for source in counted:
            self._learn(source, mark, listing)
        known = (self._passed[source] for source in counted if source in self._passed)
        return {name: one.order for one in known for name in one.partitions}

    def _learn(self, source: str, mark: Mark, listing: Listing) -> None:
        epoch, known = mark.epochs.get(source), mark.acknowledged.get(source)
        if (waiting := self._next.get(source)) is not None and epoch is not None:
            number, head = waiting.order.epoch, waiting.head
            if (number, head.identity) != (epoch.number, epoch.identity):
                del self._next[source]
            elif known is not None and reaches(known.position, head.position):
                self._passed[source] = self._next.pop(source)
        trail = mark.beats.get(source)
        if trail is None or source in self._next or source not in listing.heads:
            return
        if not (trail.resending or trail.divided):
            head, own = listing.heads[source][0], _partitions(source, listing)
            self._next[source] = _SeenBeat(trail.order, head, own)


def _partitions(source: str, listing: Listing) -> frozenset[str]:
    own = (at for at in listing.ends if listing.source_of[at.topic] == source)
    return frozenset(str(SourcePartition(source, at)) for at in own)
