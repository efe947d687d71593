"""Decides whether a range of the source equals the mirror at one position between two looks.

The mirror is read first, and then the source. The source's answer is the state of one position in
between, because a statement sees the transactions in the order of the log. The rows of the mirror,
with the changes landed since then, go through every such state. So if one of these states has the
source's digest, both sides were equal at that position, even if rows kept changing. No position
fits if a row differs that no change explains.

Only changes that a merge applies count. A redelivered change is not newer than its row and changes
nothing, so it must not explain a wrong row.

This module proves only equality. Ranges without a fitting position are compared row by row.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from checks.world import Range
from pipeline.model import Order
from pipeline.row_digest import RangeDigest

NO_ROW = RangeDigest()


@dataclass(frozen=True, slots=True)
class RowChange:
    """A row after a change at *order*; ``digest`` is ``NO_ROW`` if the change deleted it.

    A ``partial`` change does not have all columns, so its digest is not that of the row.
    """

    order: Order
    id: int
    digest: RangeDigest
    partial: bool = False


@dataclass(frozen=True, slots=True)
class RangeLook:
    """The digests of one range: of the ``mirror``, and of the ``source`` after it."""

    span: Range
    mirror: RangeDigest
    source: RangeDigest

    @property
    def equal(self) -> bool:
        """Whether both digests are equal."""
        return self.mirror == self.source


def find_position(
    look: RangeLook, before: Mapping[int, RangeDigest], changes: Iterable[RowChange]
) -> int | None:
    """Return after how many of *changes* the mirror's rows have the source's digest, or None.

    *changes* are those of the range's ids since the mirror was read, in the order of the log.
    *before* has the mirror's digests at that time, by id, of each changed id that it had.
    """
    now, total = dict(before), look.mirror
    if total == look.source:
        return 0
    for number, change in enumerate(changes, start=1):
        total = total - now.get(change.id, NO_ROW) + change.digest
        now[change.id] = change.digest
        if total == look.source:
            return number
    return None


def last_digests(changes: Iterable[RowChange]) -> dict[int, RangeDigest]:
    """Return the digest of each row after its last change, by id; *changes* have log order.

    A row whose last change is partial is absent. A mirror that has merged all *changes* must hold
    these digests. Otherwise a doubled or unmerged row would seem equal as long as it changes.
    """
    last = {change.id: change for change in changes}
    return {id_: change.digest for id_, change in last.items() if not change.partial}


def drop_redelivered(
    changes: Iterable[RowChange], rows: Mapping[int, Order | None], top: Order | None
) -> list[RowChange] | None:
    """Return those of *changes* that a merge applies to a mirror; None if that is not known.

    *rows* has the order of each row of the mirror, by id; None for a row of unknown order.
    *top* is the highest order that was applied before.  If a change is not above *top* and the
    mirror does not have its row, it may be a redelivery: the row may have been deleted since.
    """
    kept = list[RowChange]()
    for change in changes:
        if change.id in rows:
            own = rows[change.id]
            if own is None:
                return None
            if change.order > own:
                kept.append(change)
        elif top is None or change.order > top:
            kept.append(change)
        elif change.digest != NO_ROW:
            return None
    return kept


def split_changes(
    spans: Sequence[Range], changes: Iterable[RowChange]
) -> dict[Range, list[RowChange]]:
    """Return the changes of each span, in log order; a change that landed twice counts once.

    *spans* are disjoint.  Changes of ids outside *spans* are left out.
    """
    found: dict[Range, list[RowChange]] = {span: [] for span in spans}
    ordered = sorted(spans)
    lows = [low for low, _ in ordered]
    seen = set[RowChange]()
    for change in sorted(changes, key=lambda one: one.order):
        place = bisect_right(lows, change.id) - 1
        if place < 0 or change.id >= ordered[place][1] or change in seen:
            continue
        seen.add(change)
        found[ordered[place]].append(change)
    return found
