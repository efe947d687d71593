"""Images that stand beside their mirrors: where, of what, and how a day of Parquet is written.

``<where>/<database>/<table>/dt=2026-03-28/part-00000-1f3c.parquet`` is for engines that know
neither Delta nor vectors; beside the parts ``_image.json`` says of what they are.  Who sees the
manifest sees all parts, and no others; while a day is written anew it is not there, and its parts
have other names.  ``<where>/<database>/<table>/2026-03-28.r0`` is a table of its own, a clone, with
its manifest beside it; each correction is another, and none is ever changed.
"""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.delta.store import Store, open_store
from pipeline.errors import ConfigError, UnreachableError
from pipeline.image import Image
from pipeline.settings import PipelineSettings

MANIFEST = "_image.json"
DAY = "dt"  # the column that readers of folders make of a folder's name
STAGED = "_staged"  # a name that readers of folders pass over
_GROUP = 64 << 20  # bytes in Arrow that become one row group
_FILE = 256 << 20  # after which a part ends; a bucket's is held in memory
_BEGUN = ".begun"
_CLONE = "-clone"


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a folder holds: ``rows`` of ``version`` of the ``mirror``, a table's id, at ``cut``.

    With the first ``revision`` of what came late for it, all that landed up to batch ``through``;
    None where nobody noted it.  A clone has no ``parts``.
    """

    table: str
    cut: datetime
    mirror: str
    version: int
    rows: int
    parts: int
    written: datetime
    until: datetime
    revision: int = 0
    through: int | None = None

    def tells(self, image: Image, mirror: str) -> bool:
        """Whether it is of *image*, with all that came late for it."""
        own = (self.cut, self.version, self.mirror, self.revision)
        same = own == (image.cut, image.version, mirror, len(image.late))
        return same and self.through in (None, image.corrected().through)


@dataclass(frozen=True, slots=True)
class ImagePlace:
    """Where an image stands: below the address ``uri``, its ``folder`` and its ``manifest``."""

    uri: str
    folder: str
    manifest: str
    cloned: bool

    @property
    def path(self) -> str:
        """The folder's address."""
        return f"{self.uri}/{self.folder}"


@dataclass(eq=False)
class WrittenImages:
    """Finds where images stand beside their mirrors; what is there is looked up each time."""

    settings: PipelineSettings
    _stores: dict[str, Store] = field(default_factory=dict)

    def place(self, table: str, image: Image) -> ImagePlace | None:
        """Where *image*, with all that came late for it, stands or is to stand.

        None where it is read as a version of the mirror: one that is pinned, till it is corrected.
        """
        if (place := self.settings.written_images(table)) is not None:
            folder = f"{place[1]}/{DAY}={image.day}"
            return ImagePlace(place[0], folder, f"{folder}/{MANIFEST}", cloned=False)
        rule, place = self.settings.published(table), self.settings.cloned_images(table)
        if rule is None or place is None or (rule.how == "pin" and not image.late):
            return None
        folder = f"{place[1]}/{image.day}.r{len(image.late)}"
        return ImagePlace(place[0], folder, f"{folder}.json", cloned=True)

    def path(self, table: str, image: Image) -> str | None:
        """The address of *image*, whether or not it is there; None where it is the mirror's."""
        place = self.place(table, image)
        return None if place is None else place.path

    def manifest(self, table: str, image: Image) -> Manifest | None:
        """What stands in its place; None if nothing does, or nobody knows what.

        Raises:
            UnreachableError: the store does not answer.
        """
        place = self.place(table, image)
        return None if place is None else told(self.store(place.uri), place.manifest)

    def store(self, uri: str) -> Store:
        """The place of all images of a rule, opened once."""
        if uri not in self._stores:
            self._stores[uri] = open_store(uri)
        return self._stores[uri]


def readable(table: str, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same *rows*.

    Raises:
        ConfigError: they have a column that readers of folders replace by the day, silently.
    """
    for batch in rows:
        if taken := [name for name in batch.schema.names if name.casefold() == DAY]:
            raise ConfigError(
                f"{table} has a column {taken[0]}, and readers of its images would read the day of "
                f"the folder ({DAY}=...) in its place: write `how: pin` for it in `publish`, and "
                "read its images as versions of the mirror"
            )
        yield batch


def write(store: Store, folder: str, rows: Iterator[pa.RecordBatch], about: Manifest) -> Manifest:
    """Write *rows* as the *folder*, in the place of what was there; *about* lacks the numbers.

    Until then they are beside it, under a name that tells when that began, should it never end.
    """
    with staging(store) as staged:
        store.make_folder(staged)
        made = _staged(store, staged, rows, about)
        store.place(staged, folder)
    return made


@contextmanager
def staging(store: Store) -> Iterator[str]:
    """A name below *store* for what is not to stay; what lies there is removed in the end.

    So is what lies at :func:`beside` it.
    """
    staged = f"{STAGED}/{uuid.uuid4()}"
    store.make_folder(STAGED)
    try:
        store.put(f"{staged}{_BEGUN}", b"")
        yield staged
    finally:
        with suppress(UnreachableError):  # then another day
            _forsake(store, staged)


def beside(staged: str) -> str:
    """Where a table may be made that is read while the parts are written."""
    return f"{staged}{_CLONE}"


def _staged(store: Store, staged: str, rows: Iterator[pa.RecordBatch], about: Manifest) -> Manifest:
    count, parts, groups, own = 0, 0, _groups(rows), uuid.uuid4().hex[:8]
    while (first := next(groups, None)) is not None:
        with store.sink(f"{staged}/part-{parts:05}-{own}.parquet") as output:
            count += _part(output, first, groups)
        parts += 1
    made = replace(about, rows=count, parts=parts)
    store.put(f"{staged}/{MANIFEST}", msgspec.json.encode(made))
    return made


def _forsake(store: Store, staged: str) -> None:
    """Remove what is left of writing an image, and of the one that it replaced."""
    store.drop(staged)
    store.drop(f"{staged}-before")
    store.drop(beside(staged))
    store.remove(f"{staged}{_BEGUN}")  # last, or nobody knows of the rest


def tidy(store: Store, before: datetime) -> None:
    """Remove what was begun *before* then by those that were killed."""
    for entry in store.names(STAGED):
        if entry.name.endswith(_BEGUN) and entry.modified < before:
            _forsake(store, entry.name.removesuffix(_BEGUN))


def read(store: Store, folder: str) -> Manifest | None:
    """What is written out in *folder*; None if nothing is, or nobody knows what."""
    return told(store, f"{folder}/{MANIFEST}")


def told(store: Store, manifest: str) -> Manifest | None:
    """What *manifest* says; None if it is not there, or says nothing that can be read."""
    try:
        return msgspec.json.decode(store.read(manifest), type=Manifest)
    except (FileNotFoundError, msgspec.DecodeError):
        return None


def _groups(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Join batches until they are a row group's size; one at least, with the columns."""
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in rows:
        held.append(batch)
        size += batch.nbytes
        if size >= _GROUP:
            yield pa.Table.from_batches(held)
            held, size = [], 0
    if held:
        yield pa.Table.from_batches(held)


def _part(output: Any, first: pa.Table, groups: Iterator[pa.Table]) -> int:
    """Write row groups until the part is large enough; how many rows."""
    with pq.ParquetWriter(output, first.schema, compression="zstd") as writer:
        group, count, size = first, 0, 0
        while True:
            writer.write_table(group, row_group_size=max(1, len(group)))
            count, size = count + len(group), size + group.nbytes
            following = next(groups, None) if size < _FILE else None
            if following is None:
                return count
            group = following
