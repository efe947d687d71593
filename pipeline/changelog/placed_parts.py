"""Which files of the change log may hold changes of some places in a source's log?

By the bounds of their orders: what was written near in a log landed near in time.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pipeline.changelog.scan import Part, bounds, parts
from pipeline.lake.log import Snapshot
from pipeline.model import Op

Ends = tuple[int | None, int | None]
"""The least and the greatest; None where nobody tells."""
KNOWN = 4  # versions, and kinds of rows, of which files are remembered
_known: dict[tuple[object, ...], tuple["PlacedPart", ...]] = {}


@dataclass(frozen=True, slots=True)
class PlacedPart:
    """A file, and between which logs and places in them its orders lie."""

    part: Part
    logs: Ends
    places: Ends

    def near(self, log: tuple[int, int], pos: tuple[int, int]) -> bool:
        """Whether it may hold one of the places between two, in the logs between two."""
        one_log = self.logs == log and log[0] == log[1]
        return _cross(self.logs, log) and (not one_log or _cross(self.places, pos))


def placed_parts(snapshot: Snapshot, until: int, ops: Collection[Op]) -> tuple[PlacedPart, ...]:
    """All that may hold rows of one of *ops*, of batches up to *until*.

    Found once of each version, for all tables that ask.
    """
    key = (snapshot.uri, snapshot.version, snapshot.entry, until, tuple(ops))
    found = _known.get(key)
    if found is None:
        found = _found(snapshot, until, ops)
        if len(_known) >= KNOWN:
            _known.clear()
        _known[key] = found
    return found


def _found(snapshot: Snapshot, until: int, ops: Collection[Op]) -> tuple[PlacedPart, ...]:
    orders = {file.path: bounds(file, "order") for file in snapshot.files.values()}
    return tuple(
        PlacedPart(part, _between(orders[part.path], "log"), _between(orders[part.path], "pos"))
        for part in parts(snapshot, -1, until, ops)
    )


def _between(ends: Iterable[Any], name: str) -> Ends:
    low, high = (one.get(name) if isinstance(one, Mapping) else None for one in ends)
    return low, high


def _cross(known: Ends, asked: tuple[int, int]) -> bool:
    (low, high), (first, last) = known, asked
    return (high is None or high >= first) and (low is None or low <= last)
