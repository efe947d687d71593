"""Which of a mirror's images stand in their folders?  What was found is rarely asked for again.

A mirror may remember months of images, each look at it comes every few seconds, and each question
is a request to a bucket.  An image that was never asked for is, at once: one that is not told of
is one that is gone.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from pipeline.apply.written_images import ImagePlace, Manifest, WrittenImages
from pipeline.image import Image

FEW = 3  # of those that were not there, asked for again in one look, besides the newest
AGAIN = 20  # looks, after which one that was found is asked for again: somebody may remove it

_Key = tuple[datetime, int, int, int, str]  # cut, version, revision, last batch, mirror's id


@dataclass(eq=False)
class _FolderAnswers:
    """What each image's place held, if that is of it; the one first that was asked longest ago."""

    there: dict[_Key, Manifest | None] = field(default_factory=dict)
    looks: int = 0


@dataclass(eq=False)
class FoundImages:
    """Keeps what was found of each table's; the tables may be looked at side by side."""

    written: WrittenImages
    _tables: dict[str, _FolderAnswers] = field(default_factory=dict)

    def of(self, table: str, images: Sequence[Image], mirror: str) -> tuple[Image, ...]:
        """Those of *images*, oldest first, that can be read, each with where it stands.

        One whose version need not be there any more is told only where it stands by itself.  What
        came late for one is in it where it stands corrected; else it is told all the same,
        for what was said of its cut is to be taken back.

        Raises:
            UnreachableError: the store does not answer.
        """
        asked = self._tables.setdefault(table, _FolderAnswers())
        places = {one.cut: self.written.place(table, one) for one in images}
        named = {
            (one.cut, one.version, len(one.late), one.corrected().through, mirror): one
            for one in images
            if places[one.cut] is not None
        }
        known = asked.there.copy()  # another thread may look at the same table
        there = {key: was for key, was in known.items() if key in named}
        asked.looks += 1
        try:
            for key in dict.fromkeys(_due(there, named, asked.looks)):
                told = self.written.manifest(table, named[key])
                there.pop(key, None)
                there[key] = told if told and told.tells(named[key], mirror) else None
        finally:
            asked.there = there
        found = {key[0]: told for key, told in there.items() if told is not None}
        return tuple(
            _standing(one, places[one.cut], found.get(one.cut))
            for one in images
            if one.cut in found or (places[one.cut] is None and one.pinned) or one.late
        )


def _standing(image: Image, place: ImagePlace | None, found: Manifest | None) -> Image:
    """The image as it can be read: with all that came late where it stands in its own place."""
    if place is None or found is None:
        return image
    return replace(image.corrected(), path=place.path, rows=found.rows)


def _due(
    there: Mapping[_Key, Manifest | None], named: dict[_Key, Image], looks: int
) -> Iterator[_Key]:
    """Which are to be asked for in this look."""
    yield from [key for key in reversed(named) if key not in there]
    lacking = [key for key, was in there.items() if not was]
    found = [key for key, was in there.items() if was]
    if lacking:
        yield max(lacking)
        yield from lacking[:FEW]
    if found and looks % AGAIN == 0:
        yield found[0]
