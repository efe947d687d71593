"""What do the orders of a table's changes rest on, and has its operator accepted that?

A place in the source's log says whether a change was sent again or came out of turn.  Where
messages name none, less is proven, and it is said: by its own name, in each answer that rests on
it.  Nobody gets READY by it who has not asked for it in the config.  Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from checks.model import Reason
from pipeline.model import Ordering, Table

CANNOT: Mapping[Ordering, str] = {
    Ordering.SEQUENCE: (
        "the collector's own clock and count: a clock that steps back, or another collector, "
        "may put an older change above a newer one"
    ),
    Ordering.OFFSET: (
        "where messages stand in their partition: one that is sent again is taken for a new "
        "change, and an older row may stand until the newer one has come again, too"
    ),
}
"""What an order is that is no place in the log, and what it cannot prove."""


@dataclass(frozen=True, slots=True)
class SourceOrdering:
    """What the order of a source's changes is, and the weakest that READY may rest on."""

    ordering: Ordering
    weakest: Ordering = Ordering.LOG

    @property
    def accepted(self) -> bool:
        """Whether it is no weaker than that."""
        return self.ordering.strength >= self.weakest.strength


UNKNOWN_ORDERING = SourceOrdering(Ordering.OFFSET)
"""Of a source that is in no config: nothing is accepted."""


def weakest(table: Table, known: Mapping[str, SourceOrdering]) -> Ordering:
    """The weakest order that changes of *table* have."""
    own = (known.get(source, UNKNOWN_ORDERING).ordering for source in table.sources)
    return min(own, key=lambda one: one.strength, default=Ordering.LOG)


def unaccepted(table: Table, known: Mapping[str, SourceOrdering]) -> tuple[Reason, ...]:
    """Why *table* is not READY by the order of its changes; nobody can waive it but the config."""
    found = []
    for source in table.sources:
        one = known.get(source, UNKNOWN_ORDERING)
        if not one.accepted:
            text = f"source {source}: changes are ordered by {CANNOT[one.ordering]}"
            advice = f"say weakest_order: {one.ordering} of the source where that will do"
            found.append(Reason("weak_order", f"{text}; {advice}"))
    return tuple(found)


def weaker_proof(ordering: Ordering) -> tuple[Reason, ...]:
    """What a yes says that rests on less than places in the log."""
    if ordering is Ordering.LOG:
        return ()
    text = f"proven by {ordering} only, that is by {CANNOT[ordering]}"
    return (Reason("weaker_proof", text),)
