"""Does a live change stand below the snapshot that came before it?  Then it is not to be placed.

A collector streams what a snapshot lacks, so a change that its format calls ``AROUND`` came after
the snapshot whatever its order says: below the base it would go unseen, above it nobody knows by
how much.  Its table is quarantined by name, until it has a new base.

Other changes below a base are none of this: rows that are sent again, a partition that is behind,
a table that was read again.  Pure.
"""

from collections.abc import Iterator
from dataclasses import replace

from pipeline.checkpoint import Mark
from pipeline.landing.facts import Facts, unread_changes
from pipeline.model import Order


def with_overlaps(facts: Facts, mark: Mark) -> Facts:
    """*facts* of a batch after *mark*, with such changes among what could not be read."""
    found = {
        name: unread_changes(one.rows)
        for name, one in facts.around.items()
        if any(_is_below(one.order, snapshot) for snapshot in _snapshots(name, facts, mark))
    }
    return replace(facts, errors={**found, **facts.errors}) if found else facts


def _is_below(order: Order, snapshot: Order) -> bool:
    return order.epoch == snapshot.epoch and order < snapshot


def _snapshots(name: str, facts: Facts, mark: Mark) -> Iterator[Order]:
    """Orders of the shard's snapshots that are known; a base that was read again is none."""
    if name in facts.snapshots:
        yield facts.snapshots[name].order
    if name in mark.snaps:
        yield mark.snaps[name].order
    again = mark.rereads.get(name)
    read = () if again is None else (again.order, again.base)
    if name in mark.bases and mark.bases[name] not in read:
        yield mark.bases[name]
