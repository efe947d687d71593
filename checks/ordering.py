"""Decides what the order of a table's changes rests on, and whether that is accepted.

A position in the source log shows whether a change was redelivered or is out of order.  Messages
without a position prove less, and each answer that rests on them says so.  A weaker ordering yields
READY only if the config accepts it.  Pure.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from checks.model import Reason
from pipeline.model import Ordering, Table, TopicPartition

CANNOT: Mapping[Ordering, str] = {
    Ordering.SEQUENCE: (
        "the collector's own clock and count: a clock that steps back, or another collector, "
        "may put an older change above a newer one"
    ),
    Ordering.OFFSET: (
        "the offset in a partition: a message that is sent again counts as a new change, so an "
        "older row may replace a newer one until that is sent again, too"
    ),
}
"""For each ordering without log positions: what it rests on, and what it cannot prove."""


@dataclass(frozen=True, slots=True)
class SourceOrdering:
    """The ordering of a source's changes, and the weakest ordering that READY may rest on.

    ``topics`` is a regular expression that matches the full names of its topics. ``rests_on`` is
    the assumption about its collector, if that cannot be queried; else empty.
    """

    ordering: Ordering
    weakest: Ordering = Ordering.LOG
    topics: str = ""
    rests_on: str = ""

    @property
    def accepted(self) -> bool:
        """Whether the ordering is not weaker than ``weakest``."""
        return self.ordering.strength >= self.weakest.strength


UNKNOWN_ORDERING = SourceOrdering(Ordering.OFFSET)
"""Ordering of a source that the config does not have: it is not accepted."""


def weakest_ordering(table: Table, known: Mapping[str, SourceOrdering]) -> Ordering:
    """Return the weakest ordering of the changes of *table*."""
    own = (known.get(source, UNKNOWN_ORDERING).ordering for source in table.sources)
    return min(own, key=lambda one: one.strength, default=Ordering.LOG)


def accepted_ordering(table: Table, known: Mapping[str, SourceOrdering]) -> Ordering:
    """Return the weakest ordering that an answer for *table* may rest on, old certificates too."""
    own = (known.get(source, UNKNOWN_ORDERING).weakest for source in table.sources)
    return min(own, key=lambda one: one.strength, default=Ordering.LOG)


def unaccepted_reasons(table: Table, known: Mapping[str, SourceOrdering]) -> tuple[Reason, ...]:
    """Why the ordering of *table* does not allow READY; only the config can accept it."""
    found = []
    for source in table.sources:
        one = known.get(source, UNKNOWN_ORDERING)
        if not one.accepted:
            text = f"source {source}: changes are ordered by {CANNOT[one.ordering]}"
            advice = f"set weakest_order: {one.ordering} of the source if that is enough"
            found.append(Reason("weak_order", f"{text}; {advice}"))
    return tuple(found)


def partition_counts(
    known: Mapping[str, SourceOrdering], landed: Iterable[TopicPartition]
) -> Mapping[str, int]:
    """Return the number of partitions of each source that is ordered by offsets.

    *landed* are all partitions from which messages have landed.
    """
    by_offset = {name: one for name, one in known.items() if one.ordering is Ordering.OFFSET}
    if not by_offset:
        return {}
    topics = [at.topic for at in landed]
    return {
        name: sum(re.fullmatch(one.topics, topic) is not None for topic in topics)
        for name, one in by_offset.items()
    }


def scattered_reasons(table: Table, counts: Mapping[str, int]) -> tuple[Reason, ...]:
    """Why offsets do not order the changes of *table*: a source has several partitions."""
    return tuple(
        Reason(
            "weak_order",
            f"source {source}: its changes come from {counts[source]} partitions, whose offsets"
            " cannot be compared; send all of them through one partition",
        )
        for source in table.sources
        if counts.get(source, 0) > 1
    )


def collector_promises(table: Table, known: Mapping[str, SourceOrdering]) -> tuple[str, ...]:
    """Return the assumptions about collectors that cannot be queried, one per source."""
    promises = ((name, known.get(name, UNKNOWN_ORDERING).rests_on) for name in table.sources)
    return tuple(f"source {name}: {rests_on}" for name, rests_on in promises if rests_on)


def weaker_proof_reasons(ordering: Ordering, promised: Iterable[str] = ()) -> tuple[Reason, ...]:
    """Return the reasons for a READY that rests on a weaker ordering or on *promised* facts."""
    texts = [f"what has arrived is known by {one}" for one in promised]
    if ordering is not Ordering.LOG:
        texts = [f"proven by {ordering} only, that is by {CANNOT[ordering]}", *texts]
    return tuple(Reason("weaker_proof", text) for text in texts)
