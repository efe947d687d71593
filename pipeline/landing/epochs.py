"""Assigns epochs to rows, and begins a new epoch when a source log is replaced or reset.

A change of the log is judged from the connected server, never from events. A row that is too low
and repeats nothing is explained by a new epoch, or its source is held.

Orders of statements are not checked as those of rows are. But a snapshot of the new log begins with
statements, which may come before the start of its epoch. Then the epoch begins there.

An epoch is valid in a partition from its start offset on, and rows before it belong to earlier
epochs. Two starts may contradict each other: a later epoch starts below an earlier one. Then rows
below the earlier epoch's start keep the epochs before it.
"""

from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.checkpoint import Checkpoint, Epoch, EpochStart
from pipeline.clocks import has_passed
from pipeline.landing.listing import Listing
from pipeline.landing.order_check import order_of
from pipeline.model import Head, Order, Ordering, PartitionEnd, TopicPartition
from pipeline.reports import Hold
from pipeline.sources.positions import explain_reset, locate_position


def explain_log_change(known: Epoch, head: Head) -> str | None:
    """Return why *head* cannot continue the log of *known*; None if it can.

    Another identity is a fail-over. The same identity with a log that cannot have grown from the
    known one is a reset of the log.
    """
    if head.identity != known.identity:
        return f"server {known.identity} was replaced by {head.identity}"
    return explain_reset(known.position, head.position)


def observe_head(known: Epoch | None, head: Head, heartbeat: int) -> Epoch:
    """Return the epoch after seeing *head*: the same one with a higher head, or the next one."""
    if known is None:
        return Epoch(1, head.identity, head.position)
    if explain_log_change(known, head):
        return Epoch(known.number + 1, head.identity, head.position, heartbeat, known.position)
    return replace(known, position=head.position)


EPOCH_ALONE = timedelta(minutes=1)  # after this time a new epoch is committed without rows
NO_BOUNDS: Mapping[TopicPartition, str] = MappingProxyType({})
_AS_REFUSED = (
    " that are known not to be of another log: if the broker refused them at first, waive this and"
    " take a new base of the topic's tables"
)


@dataclass(frozen=True, slots=True)
class Epochs:
    """Sources' epochs, and from which offset of each partition they are valid.

    A partition without a start belongs to the source's newest epoch from its first offset on.
    """

    known: Mapping[str, Epoch]
    starts: Mapping[EpochStart, int]

    def number(self, source: str) -> int:
        """Return the newest epoch; 1 before the server was ever reached."""
        return self.known[source].number if source in self.known else 1

    def ends(self, heads: Mapping[str, tuple[Head, Head]]) -> dict[str, Order]:
        """Return the ends of the logs now; *heads* were read before and after a listing."""
        return {
            source: Order(self.number(source), *locate_position(last.position))
            for source, (_, last) in heads.items()
        }


def find_moved(before: Mapping[str, Epoch], now: Mapping[str, Epoch]) -> set[str]:
    """Return the sources of *before* that are in another epoch *now*."""
    return {n for n, e in now.items() if n in before and e.number != before[n].number}


def find_resending(checkpoint: Checkpoint, epochs: Mapping[str, Epoch]) -> frozenset[str]:
    """Return the sources whose newest epoch has no landed heartbeat of its own."""
    return frozenset(
        source
        for source, epoch in epochs.items()
        if epoch.number > 1 and checkpoint.heartbeats.get(source, -1) <= epoch.heartbeat
    )


@dataclass(slots=True)
class UnrecordedEpochs:
    """Remembers since when a source is in an epoch that no batch has recorded.

    A log that was reset may outgrow the old one before the next row comes. Then no position shows
    the reset any more, so it is recorded without rows. Until ``EPOCH_ALONE`` has passed, the
    collector may still send rows of the old log, which belong to the old epoch.
    """

    since: datetime | None = None

    def note(self, before: Mapping[str, Epoch], now: Mapping[str, Epoch], at: datetime) -> None:
        """Compare the epochs *before* with those *now*, at time *at*."""
        self.since = (self.since or at) if find_moved(before, now) else None

    def are_due(self, at: datetime) -> bool:
        """Return whether the epochs have waited long enough for rows."""
        return self.since is not None and has_passed(self.since, EPOCH_ALONE, at)


def current_epochs(
    checkpoint: Checkpoint, listing: Listing, orderings: Mapping[str, Ordering]
) -> Epochs:
    """Return the epochs after seeing the servers' heads and what orders are based on now."""
    return follow_orderings(follow_heads(checkpoint, listing), checkpoint, listing, orderings)


def follow_heads(checkpoint: Checkpoint, listing: Listing) -> Epochs:
    """Return the epochs after seeing the servers' heads.

    A new epoch is valid from the listed ends. A row of the new log before these ends is
    correct in the old epoch if it is above all rows of the old log. Otherwise it is found too low.
    """
    known = dict(checkpoint.epochs)
    starts = dict(checkpoint.starts)
    for source, (first, second) in listing.heads.items():
        heartbeat = checkpoint.heartbeats.get(source, -1)
        before = known.get(source)
        known[source] = observe_head(observe_head(before, first, heartbeat), second, heartbeat)
        if before is not None and known[source].number > before.number:
            starts |= _from_ends(source, known[source].number, listing)
    return Epochs(known, starts)


def follow_orderings(
    epochs: Epochs, checkpoint: Checkpoint, listing: Listing, orderings: Mapping[str, Ordering]
) -> Epochs:
    """Begin a new epoch for each source whose changes are ordered by something else than before.

    *orderings*: source -> what orders are based on now. Log positions and offsets are never
    compared. The new epoch is valid from W, and in all of a partition from which nothing has
    landed.
    """
    known, starts = dict(epochs.known), dict(epochs.starts)
    for source, now in orderings.items():
        if checkpoint.orderings.get(source, now) == now or source not in known:
            continue
        one, heartbeat = known[source], checkpoint.heartbeats.get(source, -1)
        known[source] = replace(
            one, number=one.number + 1, heartbeat=heartbeat, before=one.position
        )
        for at, end in checkpoint.offsets.items():
            if listing.source_of.get(at.topic) == source:
                starts[EpochStart(source, one.number + 1, at)] = end.offset
    return Epochs(known, starts)


def explain_strange_rows(
    epochs: Epochs,
    listing: Listing,
    strange: Mapping[TopicPartition, int],
    waived: frozenset[str],
    bounds: Mapping[TopicPartition, str] = NO_BOUNDS,
) -> tuple[Epochs, dict[str, Hold]]:
    """Begin new epochs at the strange rows, and hold the sources whose log did not change.

    *strange*: partition -> lowest offset of a row that is too low and repeats nothing. *bounds*:
    partition -> the limit that was exceeded, so it is unknown whether a broker had refused the row.
    A hold that a user has waived counts as a new log; all waived holds of a source give one new
    epoch.
    """
    known, starts, held = dict(epochs.known), dict(epochs.starts), {}
    for partition, offset in strange.items():
        source = listing.source_of[partition.topic]
        hold = _hold(source, partition, offset, listing, epochs.number(source))
        if bound := bounds.get(partition):
            hold = replace(hold, detail=f"{hold.detail}; {bound}{_AS_REFUSED}")
        as_before = source in known and known[source] == epochs.known[source]
        if hold.id in waived and as_before:
            known[source] = replace(known[source], number=known[source].number + 1)
            starts |= _from_ends(source, known[source].number, listing)
        begun = EpochStart(source, Epochs(known, starts).number(source), partition)
        if offset < starts.get(begun, 0):
            starts[begun] = offset
        else:
            held[source] = hold
    return Epochs(known, starts), held


def begin_at_snapshots(
    epochs: Epochs, statements: Iterable[Mapping[str, Any]], high: Mapping[str, Order]
) -> Epochs:
    """Return *epochs* that begin no later than the statements of the new log's snapshot.

    *statements* are rows of ``SLIM``, *high* is the highest order landed of each source. Orders of
    statements are not checked as those of rows are. A snapshot statement is of the new log if it is
    before the start of its epoch, and below what has landed of the epoch before.
    """
    starts = dict(epochs.starts)
    for row in statements:
        top, at = high.get(row["source"]), TopicPartition(row["topic"], row["partition"])
        if row["snapshot"] is None or row["log"] is None or top is None:
            continue
        order, begun = order_of(row), EpochStart(row["source"], epochs.number(row["source"]), at)
        if order.epoch == top.epoch < begun.number and order < top:
            starts[begun] = min(row["offset"], starts.get(begun, 0))
    return replace(epochs, starts=starts)


def _from_ends(source: str, number: int, listing: Listing) -> dict[EpochStart, int]:
    return {
        EpochStart(source, number, partition): end.offset
        for partition, end in listing.ends.items()
        if listing.source_of[partition.topic] == source
    }


def _hold(
    source: str, partition: TopicPartition, offset: int, listing: Listing, epoch: int
) -> Hold:
    server = "is still the same" if source in listing.heads else "does not answer"
    detail = (
        f"{partition} offset {offset}: change is older than the landed order and not a redelivery"
        f" (the server {server}); check which server the collector reads, then take a new snapshot"
        " or waive this; if the broker rejected the change before a DDL statement about its table,"
        " waive this, then run `sluice bootstrap TABLE --reason ...`, also for the renamed table"
    )
    name = f"disorder:{source}:{partition}:{offset}@{epoch}"
    return Hold(name, f"source:{source}", "disorder", detail)


@dataclass(frozen=True, slots=True)
class EpochBounds:
    """The epochs of a partition by offset.

    ``steps``: (first offset, epoch), both rising; the first offset is 0.
    """

    steps: tuple[tuple[int, int], ...]

    def at(self, offset: int) -> int:
        """Return the epoch of one offset."""
        return self.steps[bisect_right(self.steps, offset, key=lambda step: step[0]) - 1][1]

    def epochs(self, offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the epoch of each offset."""
        firsts = np.array([first for first, _ in self.steps], np.int64)
        numbers = np.array([number for _, number in self.steps], np.int64)
        return numbers[np.searchsorted(firsts, offsets, side="right") - 1]


def find_epoch_bounds(
    source: str,
    partitions: Iterable[TopicPartition],
    known: Mapping[str, Epoch],
    starts: Mapping[EpochStart, int],
    *,
    renewed: Collection[TopicPartition] = (),
) -> dict[TopicPartition, EpochBounds]:
    """Return the bounds of each partition; one that was *renewed* forgets its starts.

    A source that is not *known* was never reached and is in its first epoch. A partition without a
    start belongs to the newest epoch from its first offset on.
    """
    newest = known[source].number if source in known else 1
    former = range(1, newest)
    return {
        at: _bounds(newest, [starts.get(EpochStart(source, n + 1, at), 0) for n in former])
        if at not in renewed
        else EpochBounds(((0, newest),))
        for at in partitions
    }


def find_needed_starts(
    starts: Mapping[EpochStart, int],
    w: Mapping[TopicPartition, PartitionEnd],
    *,
    renewed: Collection[TopicPartition] = (),
    kept: Collection[tuple[str, int]] = (),
) -> dict[EpochStart, int]:
    """Return the starts that still matter: W is below them, or has not reached the partition.

    Every row from W on belongs to such an epoch or a later one without a start. In a partition that
    was *renewed* earlier offsets mean nothing. Starts of *kept* (source, epoch) are dropped only
    for that reason.
    """
    found = {}
    for one, first in starts.items():
        end = w.get(one.at)
        passed = end is not None and end.offset >= first
        if one.at not in renewed and (not passed or (one.source, one.number) in kept):
            found[one] = first
    return found


def newest_starts(
    known: Mapping[str, Epoch], starts: Mapping[EpochStart, int]
) -> dict[TopicPartition, int]:
    """Return the first offset of its source's newest epoch for each partition with a start."""
    return {
        one.at: first for one, first in starts.items() if one.number == known[one.source].number
    }


def _bounds(newest: int, ends: list[int]) -> EpochBounds:
    """Make bounds; *ends* are those of the epochs 1, 2, ... before *newest*."""
    steps, reached = [], 0
    for number, end in enumerate(ends, 1):
        if end > reached:
            steps.append((reached, number))
            reached = end
    return EpochBounds((*steps, (reached, newest)))
