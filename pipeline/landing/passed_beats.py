"""Below which order can no new change of a source come, though its changes name no places?

A sequence of the sender's orders changes as the log does, whatever table they are of, or a base,
which stands at a heartbeat's order, would win over changes that are newer.  Where that is so, what
is logged after a heartbeat stands above it.  So below a heartbeat behind which all that was logged
has landed, too, only what was sent again can come: anything else is disorder, also in a partition
that has shown nothing as high.

A heartbeat that had landed when the log's end was noted was logged before that end; once all before
the end is acknowledged and landed, the heartbeat is passed.  It is kept in memory: after a restart
it is found out anew.  Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pipeline.mark import Mark
from pipeline.model import Head, Order, Ordering
from pipeline.sources.positions import reaches


@dataclass(eq=False)
class PassedBeats:
    """The newest of each source that is passed, and the one that may be next, with an end."""

    _passed: dict[str, Order] = field(default_factory=dict)
    _next: dict[str, tuple[Order, Head]] = field(default_factory=dict)

    def floors(
        self,
        mark: Mark,
        heads: Mapping[str, tuple[Head, Head]],
        orderings: Mapping[str, Ordering],
    ) -> Mapping[str, Order]:
        """Source -> order of its passed heartbeat; *heads* were noted after *mark* was made."""
        counted = [one for one, its in orderings.items() if its is Ordering.SEQUENCE]
        for source in counted:
            self._learn(source, mark, heads)
        return {one: self._passed[one] for one in counted if one in self._passed}

    def _learn(self, source: str, mark: Mark, heads: Mapping[str, tuple[Head, Head]]) -> None:
        epoch, known = mark.epochs.get(source), mark.acknowledged.get(source)
        if (waiting := self._next.get(source)) is not None and epoch is not None:
            order, head = waiting
            of_it = order.epoch == epoch.number and head.identity == epoch.identity
            if not of_it:
                del self._next[source]
            elif known is not None and reaches(known.position, head.position):
                self._passed[source] = order
                del self._next[source]
        trail = mark.beats.get(source)
        if trail is not None and source in heads and not (trail.resending or trail.divided):
            self._next.setdefault(source, (trail.order, heads[source][0]))
