"""Decides whether a range of the source equals the mirror at one position between two looks.

The mirror is looked at first, and then the source. The source's answer is the state of one
position in between, because a statement sees the transactions in the order of the log. The rows
of the mirror, with the landed changes since, pass through every such state. So if one of these
states has the source's digest, both sides were equal at that position, even though rows changed
all the time. No position fits if a row differs that no change explains.

Only changes count that a merge applies: one that is sent again is not newer than its row, and
changes nothing. It must not explain a wrong row either.

Only equality is proven here. Ranges without a fitting position are looked at row by row.
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

    A ``partial`` one says nothing of some columns, so its digest is not that of the row.
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
        """Whether nothing has to be explained."""
        return self.mirror == self.source


def find_position(
    look: RangeLook, before: Mapping[int, RangeDigest], changes: Iterable[RowChange]
) -> int | None:
    """After how many of *changes* the mirror's rows have the source's digest; None for no number.

    *changes* are those of the range's ids since the mirror's look, in the order of the log.
    *before* are the mirror's rows at that look, by id, of each id that is changed and was there.
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
    """What the last of *changes* made of each row, by id; they are in the order of the log.

    A row whose last change is partial is absent. A mirror that has all of them must hold the rest.
    Else a row that is doubled or not merged would be equal as long as it changes.
    """
    last = {change.id: change for change in changes}
    return {id_: change.digest for id_, change in last.items() if not change.partial}


def drop_redelivered(
    changes: Iterable[RowChange], rows: Mapping[int, Order | None], top: Order | None
) -> list[RowChange] | None:
    """Those of *changes* that a merge applies to a mirror; None where that is not known.

    *rows* has the order of each row that the mirror holds, by id; None where it is not known.
    *top* is the highest order that was applied before.  A change of a row that is not there may
    be a redelivery if it is not above that: the row may have been deleted since.
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
    """The changes of each span, in the order of the log; one that landed twice counts once.

    *spans* are disjoint.  A change of an id in none of them is left out.
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
