"""Decides what the orders of a table's changes rest on, and whether that is accepted.

A place in the source's log says whether a change was sent again or came out of turn.  Where
messages name none, less is proven, and it is said: by its own name, in each answer that rests on
it.  It yields READY only if the config accepts it.  Pure.
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
"""What an order is that is no place in the log, and what it cannot prove."""


@dataclass(frozen=True, slots=True)
class SourceOrdering:
    """What the order of a source's changes is, and the weakest that READY may rest on.

    ``topics`` is a regular expression on the whole name of each of its topics, ``rests_on`` what
    the word of its collector rests on, empty if on nothing.
    """

    ordering: Ordering
    weakest: Ordering = Ordering.LOG
    topics: str = ""
    rests_on: str = ""

    @property
    def accepted(self) -> bool:
        """Whether it is no weaker than that."""
        return self.ordering.strength >= self.weakest.strength


UNKNOWN_ORDERING = SourceOrdering(Ordering.OFFSET)
"""Of a source that is in no config: nothing is accepted."""


def weakest_ordering(table: Table, known: Mapping[str, SourceOrdering]) -> Ordering:
    """The weakest order that changes of *table* have."""
    own = (known.get(source, UNKNOWN_ORDERING).ordering for source in table.sources)
    return min(own, key=lambda one: one.strength, default=Ordering.LOG)


def accepted_ordering(table: Table, known: Mapping[str, SourceOrdering]) -> Ordering:
    """The weakest order that an answer of *table* may rest on, also one that was given before."""
    own = (known.get(source, UNKNOWN_ORDERING).weakest for source in table.sources)
    return min(own, key=lambda one: one.strength, default=Ordering.LOG)


def unaccepted_reasons(table: Table, known: Mapping[str, SourceOrdering]) -> tuple[Reason, ...]:
    """Why *table* is not READY by the order of its changes; only the config can waive it."""
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
    """From how many partitions changes of each source come that go by offsets.

    *landed* are all partitions that anything was landed from.
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
    """Why offsets do not order changes of *table*: they were counted in several partitions."""
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
    """What is believed of collectors that cannot be queried, each source once."""
    promises = ((name, known.get(name, UNKNOWN_ORDERING).rests_on) for name in table.sources)
    return tuple(f"source {name}: {rests_on}" for name, rests_on in promises if rests_on)


def weaker_proof_reasons(ordering: Ordering, promised: Iterable[str] = ()) -> tuple[Reason, ...]:
    """What a yes says that rests on less than places in the log, or on what is *promised*."""
    texts = [f"what has arrived is known by {one}" for one in promised]
    if ordering is not Ordering.LOG:
        texts = [f"proven by {ordering} only, that is by {CANNOT[ordering]}", *texts]
    return tuple(Reason("weaker_proof", text) for text in texts)
