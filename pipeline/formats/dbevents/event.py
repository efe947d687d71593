"""What does one DBEvent say?  A row, or the columns of it that changed, each in its own version.

The reference key is a row's version, and its order here: not a place in the source's log, but a
sequence of the sender's, so it proves less, and where it falls within a partition landing holds the
source.  ``changelog_columns`` say which columns changed, and in which version each did: columns of
one version are one change, the oldest first, so that they are merged column by column.  Without any
the row is whole.  An event that its sender could not conform is quarantined with its reason, and so
is one that asks to be applied though it is older: nothing here can tell what it is to lose against.
Pure.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from msgspec import Raw

from pipeline.errors import FormatError
from pipeline.formats import canonical, flat_rows
from pipeline.formats.canonical import quote
from pipeline.formats.format import SENDER_SAYS, Decoded
from pipeline.model import Op

ROW_KEY = "row_key"
END_OF_TIME = 253_402_300_800_000  # milliseconds: the year 10000

NO_ROW = "the event is no record of columns beside its metadata"
NO_METADATA = "its metadata is missing, or a field of it is of a wrong kind"
NO_KEY = "its row key is missing, or a column of the table's key is missing, null or a list"
NO_COLUMN = "changelog_columns name a column that the event has not: {name}"
NEWER = "changelog_columns name a version above the event's own"
FORCED = (
    "ForceUpdate: it is to be applied though it may be older; send the row again in a new version"
)


class ChangedColumns(msgspec.Struct):
    """Columns that changed together, and their version."""

    ref_key: int
    hadoop_changelog_fields: list[str]
    name: str = ""


class EventMetadata(msgspec.Struct):
    """What stands beside each row; ``timestamp`` is in milliseconds."""

    ref_key: int
    row_key: Raw = flat_rows.NULL
    changelog_columns: list[ChangedColumns] | None = None
    timestamp: int | None = None
    is_deleted: bool = False
    error_exception: str | None = None
    force_update: bool = False

    @property
    def at(self) -> datetime | None:
        """When the event was made; None if in no calendar."""
        if self.timestamp is None or not 0 <= self.timestamp < END_OF_TIME:
            return None
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=self.timestamp)


@dataclass(frozen=True, slots=True)
class EventShape:
    """How events of a table are built: whose they are, which field is metadata, and their key.

    Without a ``key`` the row key is one, as a column of its own.
    """

    shard: str
    metadata: str
    key: tuple[str, ...] = ()

    @property
    def keyed_by(self) -> tuple[str, ...]:
        """Names of the key's columns."""
        return self.key or (ROW_KEY,)


def changes(text: bytes, shape: EventShape) -> Sequence[Decoded]:
    """All that an event says, whose JSON is *text*, the oldest version first.

    Raises:
        FormatError: it makes no sense, or is not to be applied.
    """
    row = flat_rows.read(Raw(text))
    if row is None:
        raise FormatError(NO_ROW)
    told = _metadata(row.get(shape.metadata, flat_rows.NULL))
    if told.error_exception is not None:
        raise FormatError(f"{SENDER_SAYS}{told.error_exception}")
    if told.force_update:
        raise FormatError(FORCED)
    row, key = _keyed(row, told, shape)
    if told.is_deleted:
        before = flat_rows.written({name: row[name] for name in shape.keyed_by})
        return (_placed(Op.DELETE, shape, key, told, told.ref_key, before=before),)
    return tuple(_versions(row, key, told, shape))


def _metadata(raw: Raw) -> EventMetadata:
    try:
        return _METADATA.decode(raw)
    except (ValueError, RecursionError) as error:
        raise FormatError(NO_METADATA) from error


def _keyed(row: flat_rows.Row, told: EventMetadata, shape: EventShape) -> tuple[flat_rows.Row, str]:
    """The row with its key's columns, and the key."""
    if not shape.key:
        row = row | {ROW_KEY: _row_key(told.row_key)}
    try:
        return row, flat_rows.key(row, shape.keyed_by)
    except (KeyError, ValueError) as error:
        raise FormatError(NO_KEY) from error


def _row_key(raw: Raw) -> Raw:
    """As a text, whatever it was sent as."""
    found = canonical.read('{"v":' + flat_rows.text_of(raw) + "}")
    text = None if found is None else canonical.write(found.get("v"))
    if text is None:
        raise FormatError(NO_KEY)
    return Raw(quote(text).encode())


def _versions(
    row: flat_rows.Row, key: str, told: EventMetadata, shape: EventShape
) -> Iterator[Decoded]:
    """One change for each version; a whole row where no columns are named."""
    if not told.changelog_columns:
        yield _placed(Op.UPDATE, shape, key, told, told.ref_key, after=flat_rows.written(row))
        return
    beside = (*shape.keyed_by, shape.metadata)
    for version, names in sorted(_by_version(told, row).items()):
        if version > told.ref_key:
            raise FormatError(NEWER)
        columns = {name: row[name] for name in dict.fromkeys((*beside, *names))}
        after, changed = flat_rows.written(columns), tuple(columns)
        yield _placed(Op.UPDATE, shape, key, told, version, after=after, changed=changed)


def _by_version(told: EventMetadata, row: Mapping[str, Raw]) -> dict[int, list[str]]:
    """Names of columns by version; of one that is named twice, the newest counts."""
    newest: dict[str, int] = {}
    for one in told.changelog_columns or ():
        for name in one.hadoop_changelog_fields:
            if name not in row:
                raise FormatError(NO_COLUMN.format(name=name))
            newest[name] = max(one.ref_key, newest.get(name, one.ref_key))
    found: dict[int, list[str]] = {}
    for name, version in newest.items():
        found.setdefault(version, []).append(name)
    return found


def _placed(
    op: Op, shape: EventShape, key: str, told: EventMetadata, version: int, **images: Any
) -> Decoded:
    return Decoded(op, shape.shard, key, at=told.at, log=0, pos=version, row=0, **images)


_METADATA = msgspec.json.Decoder(EventMetadata)
