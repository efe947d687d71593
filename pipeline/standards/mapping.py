"""A standard: replaces each value by another id or token, from a file of pairs.

The file is CSV with a heading, or Parquet.  It is read where tasks run, and again after it was
replaced.  While it is being written, its previous content counts.  The file may only grow: a
changed entry would give one value two answers, so it is rejected.  Cannot detect: entries that
change while no process runs; change ``version`` then, which requires a new base.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock
from typing import Any, Literal

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from pipeline.errors import ConfigError, FormatError, SluiceError, UnreachableError
from pipeline.standards.standard import Standard, StandardType

Pairs = Mapping[str, str]
_DIGITS = 19  # of the largest bigint
_LONGEST = 65_536  # bytes of a heading
_lock = Lock()


@dataclass(frozen=True, slots=True)
class IdMapping:
    """``file`` has the source's values in column ``source``, and their answers in ``standard``.

    A value without an entry becomes NULL, or with ``unmapped: hold`` holds its table until it has
    one.  ``type`` is the type of the answers.  ``hides``: whether the source's values are secret.
    Set another ``version`` after entries have changed.
    """

    columns: tuple[str, ...]
    """Columns that are mapped."""
    file: str
    """The file of pairs."""
    source: str = "source"
    """The file's column of the source's values."""
    standard: str = "standard"
    """The file's column of the answers, which replace the source's values."""
    unmapped: Literal["hold", "null"] = "hold"
    """What a value that is not in the file does: hold its table, or become NULL."""
    type: StandardType = "string"
    hides: bool = True
    version: int = 1

    def __post_init__(self) -> None:
        """Reject a relative path, which may be another file in each process.

        Raises:
            ConfigError: ``file`` is not absolute.
        """
        if not Path(self.file).is_absolute():
            raise ConfigError(f"file: {self.file} must be a whole path: it is read by every task")

    @property
    def distinct(self) -> bool:
        """False where all values without an entry become NULL."""
        return self.unmapped == "hold"

    @property
    def lake_type(self) -> StandardType:
        return self.type

    @property
    def fingerprint(self) -> str:
        """All settings except the path and the entries: the file may move, and grow."""
        return f"{self.source}:{self.standard}:{self.unmapped}:{self.type}:{self.version}"

    @property
    def fault(self) -> str:
        """Why no value has an answer now: the file cannot be opened, or a column is missing."""
        try:
            names = _columns(self.file)
        except (OSError, pa.ArrowInvalid) as error:
            return f"file: {_unread(self.file, error)}"
        lacking = [name for name in (self.source, self.standard) if name not in names]
        return f"file: {_explain_missing(self.file, lacking[0], names)}" if lacking else ""

    def value(self, text: str) -> str | None:
        """The entry of a value; None if it has none and ``unmapped`` is ``null``.

        Raises:
            FormatError: the value has no entry, and ``unmapped`` is ``hold`` or the file cannot be
                read now; or the file is invalid.  Each holds this table and no other.
        """
        mapping = read_mapping(self.file, self.source, self.standard, self.type)
        if isinstance(mapping.why, ConfigError):
            raise FormatError(str(mapping.why))
        found = mapping.pairs.get(text)
        if found is None and mapping.why is not None:
            raise FormatError(str(mapping.why))
        if found is None and self.unmapped == "hold":
            raise FormatError(f"the mapping {Path(self.file).name} has no entry for its value")
        return found


@dataclass(frozen=True, slots=True)
class MappingFile:
    """The last complete content of a file; ``why`` states why its present content is not used."""

    stamp: tuple[int, int, int] | None = None
    pairs: Pairs = field(default_factory=dict)
    why: SluiceError | None = None


_known: dict[tuple[str, str, str], MappingFile] = {}  # by file and columns


def read_mapping(file: str, source: str, standard: str, kind: StandardType) -> MappingFile:
    """Return the content of *file*, which is read again only if it was written."""
    asked = (file, source, standard)
    with _lock:
        known = _known.get(asked, MappingFile())
        try:
            stamp = _stamp(file)
        except OSError as error:
            return replace(known, why=UnreachableError(_unread(file, error)))
        if known.stamp == stamp:
            return known
        try:
            found = _read(file, source, standard, kind)
            _refuse_changes(file, known.pairs, found)
            if _stamp(file) != stamp:
                raise UnreachableError(f"mapping {file}: it is being written")
            made = MappingFile(stamp, found)
        except (OSError, SluiceError) as error:
            why = UnreachableError(_unread(file, error)) if isinstance(error, OSError) else error
            kept = None if isinstance(error, OSError) else stamp  # an OSError ends without a sign
            made = replace(known, stamp=kept, why=why)
        _known[asked] = made
        return made


def _stamp(file: str) -> tuple[int, int, int]:
    stat = Path(file).stat()
    return stat.st_mtime_ns, stat.st_size, stat.st_ino


def _read(file: str, source: str, standard: str, kind: StandardType) -> Pairs:
    try:
        table = read_table(file)
    except pa.ArrowInvalid as error:
        raise UnreachableError(_unread(file, error)) from error
    if lacking := {source, standard} - {*table.column_names}:
        raise ConfigError(_explain_missing(file, min(lacking), table.column_names))
    columns = [_texts(table[name]) for name in (source, standard)]
    found = {old: new for old, new in zip(*columns, strict=True) if None not in (old, new)}
    if len(found) < len(columns[0]) or len({*found.values()}) < len(found):
        msg = "a value is empty or occurs twice; write each value once"
        raise ConfigError(f"mapping {file}: {msg}")
    if kind == "bigint" and not all(map(_is_bigint, found.values())):
        msg = "is not of type bigint throughout, written without a sign or zeros before it"
        raise ConfigError(f"mapping {file}: column {standard!r} {msg}")
    return found


def _unread(file: str, error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"mapping {file}: {error.strerror}"
    return f"mapping {file}: cannot be read ({type(error).__name__}); write it as Parquet or CSV"


def _explain_missing(file: str, name: str, names: Sequence[str]) -> str:
    return f"mapping {file}: has no column {name!r}; it has {', '.join(names)}"


def read_table(file: str) -> pa.Table:
    """Read a mapping from Parquet, or from CSV whose last line is complete.

    Raises:
        UnreachableError: the last line has no newline.
    """
    if file.endswith(".parquet"):
        return pyarrow.parquet.read_table(file)
    data = Path(file).read_bytes()
    if not data.endswith(b"\n"):
        msg = "its last line has no newline and may be incomplete; end it with a newline"
        raise UnreachableError(f"mapping {file}: {msg}")
    as_texts = dict.fromkeys(_heading(data.partition(b"\n")[0]), pa.string())
    options = pyarrow.csv.ConvertOptions(column_types=as_texts, strings_can_be_null=False)
    return pyarrow.csv.read_csv(pa.BufferReader(data), convert_options=options)


def _columns(file: str) -> list[str]:
    if file.endswith(".parquet"):
        return list(pyarrow.parquet.read_schema(file).names)
    with Path(file).open("rb") as lines:
        return _heading(lines.readline(_LONGEST))


def _heading(line: bytes) -> list[str]:
    return [one.strip('"') for one in line.decode("utf-8-sig", "replace").rstrip("\r\n").split(",")]


def _texts(column: pa.ChunkedArray) -> list[Any]:
    return list(column.cast(pa.string()).to_pylist())


def _is_bigint(text: str) -> bool:
    """Whether *text* is a bigint in its canonical form: 01 and 1 would be the same number."""
    digits = text.removeprefix("-")
    known = digits.isdecimal() and digits.isascii() and len(digits) <= _DIGITS
    return known and str(int(text)) == text and -(2**63) <= int(text) < 2**63


def _refuse_changes(file: str, before: Pairs, now: Pairs) -> None:
    """Raise ConfigError if an earlier entry was changed or removed."""
    if any(now.get(old) != new for old, new in before.items()):
        msg = "an entry was changed or removed; restore it, or set another `version` and restart"
        raise ConfigError(f"mapping {file}: {msg}")


STANDARD: type[Standard] = IdMapping
