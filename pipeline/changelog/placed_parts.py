"""Which files of the change log may hold changes of some places in a source's log?

By the bounds of their orders: what was written near in a log landed near in time.
"""

from collections.abc import Collection
from dataclasses import dataclass

from pipeline.changelog.scan import Ends, Part, order_ends, overlap, parts
from pipeline.lake.log import Snapshot
from pipeline.model import Op

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
        return overlap(self.logs, *log) and (not one_log or overlap(self.places, *pos))


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
    files = {file.path: file for file in snapshot.files.values()}
    return tuple(
        PlacedPart(one, order_ends(files[one.path], "log"), order_ends(files[one.path], "pos"))
        for one in parts(snapshot, -1, until, ops)
    )
