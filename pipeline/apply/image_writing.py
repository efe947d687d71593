"""What mirrors remember of images becomes what stands beside them: days of Parquet, clones.

And corrected images: what came too late for one is put into a clone of it, whatever way images of
its table are made, for an older version of a mirror cannot be changed.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from typing import Any

import msgspec
import pyarrow as pa
import structlog

from pipeline.apply.corrections import correction
from pipeline.apply.landed_state import LandedState
from pipeline.apply.mirror_snapshot import MirrorSnapshot, images_of
from pipeline.apply.mirrors import Mirrors
from pipeline.apply.written_images import (
    DAY,
    ImagePlace,
    Manifest,
    WrittenImages,
    beside,
    read,
    readable,
    staging,
    tidy,
    told,
    write,
)
from pipeline.archive import ArchiveRules
from pipeline.changelog.change_log import ChangeLog
from pipeline.delta.store import Store, open_store
from pipeline.errors import HeldError, SluiceError
from pipeline.image import Image
from pipeline.settings import PipelineSettings

_FORSAKEN = timedelta(days=1)  # nobody writes one image as long as that
_SWEPT = 14  # days; the service slept no longer, or somebody else must tidy up
_AGAIN = timedelta(minutes=10)  # after which what was refused is tried again
log = structlog.get_logger(__name__)


@dataclass(eq=False)
class ImageWriting:
    """Writes what is not there yet of images that mirrors remember; removes what is too old.

    Beside landing and merging: a version of a mirror stays as it is while others are made.
    ``archive_of`` tells what is said of a table's archives.
    """

    settings: PipelineSettings
    mirrors: Mirrors[Any]
    clock: Callable[[], datetime]
    archive_of: Callable[[str], ArchiveRules | None] = lambda _: None
    written: WrittenImages = field(init=False)
    changes: ChangeLog = field(init=False)
    _refused: dict[tuple[str, datetime, int], datetime] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Look at nothing yet."""
        self.written = WrittenImages(self.settings)
        self.changes = ChangeLog(open_store(self.settings.changes), self.settings.lane)

    def run(self, landed: LandedState) -> tuple[Manifest, ...]:
        """Write what is missing, of each table; one that fails is tried again the next time."""
        made: list[Manifest] = []
        tidied: set[str] = set()
        for table in sorted(landed.mark.tables):
            place = self.settings.written_images(table) or self.settings.cloned_images(table)
            if place is None:
                continue
            try:
                if place[0] not in tidied:
                    tidied.add(place[0])
                    tidy(self.written.store(place[0]), self.clock() - _FORSAKEN)
                made += self._table(table, landed)
            except SluiceError as error:
                log.warning("image_unwritten", table=table, why=str(error))
            except Exception:  # the boundary of one table: its image stops no other, nor the rest
                log.exception("image_unwritten", table=table)
        return tuple(made)

    def _table(self, table: str, landed: LandedState) -> Iterator[Manifest]:
        seen, now = self.mirrors.look(table), self.clock()
        if seen is None:
            return
        for image in images_of(seen):
            place = self.written.place(table, image)
            if place is not None and image.held(now):
                yield from self._lacking(UnwrittenImage(table, seen, image, place, landed))

    def _lacking(self, one: "UnwrittenImage") -> Iterator[Manifest]:
        """Make the image if its place lacks it; one that cannot be made keeps no other from it."""
        now, image = self.clock(), one.image
        known = self.written.manifest(one.table, image)
        key = (one.table, image.cut, image.corrected().through)
        tried = self._refused.get(key)
        if (known and known.tells(image, one.seen.id)) or (tried and now - tried < _AGAIN):
            return
        try:
            yield self._made(one)
        except SluiceError as error:
            if isinstance(error, HeldError):
                self._refused[key] = now
            log.warning("image_unwritten", table=one.table, day=image.day, why=str(error))
        except Exception:  # the boundary of one image
            self._refused[key] = now
            log.exception("image_unwritten", table=one.table, day=image.day)

    def _made(self, one: "UnwrittenImage") -> Manifest:
        store, now = self.written.store(one.place.uri), self.clock()
        if one.place.cloned:
            made = self._clone(store, one)
            _sweep_clones(store, one.place, one.image, now)
            return made
        if not one.image.late:
            made = self._days(store, one, one.seen.uri, one.image.version)
        else:
            with staging(store) as staged:
                clone = f"{store.uri}/{beside(staged)}"
                self._cloned(clone, one)
                made = self._days(store, one, clone, 0)
        _sweep(store, one.place.folder.rpartition("/")[0], one.image, now)
        return made

    def _days(self, store: Store, one: "UnwrittenImage", uri: str, version: int) -> Manifest:
        """The folder of the day, with the rows of that version of the table at *uri*."""
        rows: Iterator[pa.RecordBatch] = self.mirrors.table_format.rows(uri, version)
        return write(store, one.place.folder, readable(one.table, rows), one.about(self.clock()))

    def _clone(self, store: Store, one: "UnwrittenImage") -> Manifest:
        """The table of its own, and then its manifest; one that nobody tells of is made anew."""
        store.remove(one.place.manifest)
        store.drop(one.place.folder)
        made = replace(one.about(self.clock()), rows=self._cloned(one.place.path, one))
        store.put(one.place.manifest, msgspec.json.encode(made))
        return made

    def _cloned(self, where: str, one: "UnwrittenImage") -> int:
        """A table at *where* with the rows of an image, and what came late for it; how many."""
        now, correct = self.clock(), None
        if one.image.late:
            rules = self.archive_of(one.table)
            correct = correction(one.image, one.table, one.landed, self.changes, now, rules=rules)
        table_format = self.mirrors.table_format
        return table_format.cloned(one.seen.uri, one.image.version, where, now, correct)


@dataclass(frozen=True, slots=True)
class UnwrittenImage:
    """An image of ``table`` that its mirror, as it was ``seen``, remembers, and its place lacks."""

    table: str
    seen: MirrorSnapshot
    image: Image
    place: ImagePlace
    landed: LandedState

    def about(self, now: datetime) -> Manifest:
        """What its place is to tell of it, without numbers."""
        image, named = self.image, (self.table, self.image.cut, self.seen.id, self.image.version)
        whole = image.corrected()
        return Manifest(*named, 0, 0, now, image.until, whole.revision, whole.through)


def _sweep(store: Store, folder: str, newest: Image, now: datetime) -> None:
    """Remove folders of days that are kept no longer; those of some days are looked at."""
    last = date.fromisoformat(newest.day) - newest.keep
    for back in range(_SWEPT):
        old = f"{folder}/{DAY}={last - timedelta(days=back)}"
        known = read(store, old)
        if known is not None and known.until < now:
            store.drop(old)


def _sweep_clones(store: Store, place: ImagePlace, newest: Image, now: datetime) -> None:
    """Remove clones that are kept no longer, each with all that was corrected of it."""
    last = str(date.fromisoformat(newest.day) - newest.keep)
    for entry in store.names(place.folder.rpartition("/")[0]):
        clone = entry.name.removesuffix(".json")
        if clone == entry.name or clone.rpartition("/")[2][: len(last)] > last:
            continue
        known = told(store, entry.name)
        if known is not None and known.until < now:
            store.drop(clone)
            store.remove(entry.name)  # last, or nobody knows of the rest
