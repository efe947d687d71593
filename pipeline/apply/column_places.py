"""Which of two changes tells a column's value, where columns have versions of their own?

A row's columns stand where the row does, but for those that it tells in a lower version (the column
``COLUMN_VERSIONS``).  The value in the highest version counts, however late it comes in a change of
a higher one.  Versions of two epochs are never compared: what is of an older epoch is below.  Where
a table has no such column, each stands where its change does, so the newest counts.  Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from pipeline.errors import HeldError

Place = tuple[int, int]
"""Epoch and version; compared left to right."""

OLDER = -1  # the version of what is of an older epoch


@dataclass(frozen=True, slots=True)
class ColumnPlaces:
    """Where the columns of one row stand: all at ``own``, but for ``late`` ones of its epoch."""

    own: Place
    late: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of_row(cls, rank: tuple[int, ...], versions: str | bytes | None) -> "ColumnPlaces":
        """Of a row of that *rank* (epoch, log, pos, ...), with what its column tells.

        Raises:
            HeldError: ``misread``, it tells no versions.
        """
        epoch, _, version, *_ = rank
        try:
            late = _VERSIONS.decode(versions or b"null") or {}
        except (msgspec.MsgspecError, RecursionError) as error:
            raise HeldError("misread", f"a row tells no versions of columns: {error}") from error
        return cls((epoch, version), late)

    def of(self, name: str) -> Place:
        """Where that column stands."""
        return self.own[0], self.late.get(name, self.own[1])


def told(own: Place, places: Mapping[str, Place]) -> bytes:
    """What the column of a row at *own* tells, whose columns stand at *places*: JSON, or null."""
    late = {
        name: place[1] if place[0] == own[0] else OLDER
        for name, place in places.items()
        if place < own
    }
    return msgspec.json.encode(dict(sorted(late.items()))) if late else b"null"


_VERSIONS = msgspec.json.Decoder(dict[str, int] | None)
