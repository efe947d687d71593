"""A standard: another id, or token, for each value, as a file of pairs tells it.

The file is CSV with a heading, or Parquet; it is read where tasks run, and again when it was
written anew.  It may only grow: an entry that says otherwise than before would give one value two
answers, so it is refused.  What that cannot see is an entry changed while no process ran: change
``version`` then, and a new base is asked for.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any, Literal

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from pipeline.errors import ConfigError, FormatError, UnreachableError
from pipeline.standards.standard import Standard, StandardType

Pairs = Mapping[str, str]
_DIGITS = 19  # of the largest bigint
_lock = Lock()
_known: dict[tuple[str, str, str], tuple[tuple[int, int, int], Pairs]] = {}  # by file and columns


@dataclass(frozen=True, slots=True)
class IdMapping:
    """``file`` has a column of the source's values, ``source``, and one of what stands for them.

    A value that is not there holds its table (``unmapped: hold``) until it is, or becomes NULL.
    ``type`` is that of the answers.  ``hides``: whether the source's values are for nobody's eyes.
    ``version`` is another number once entries have changed.
    """

    columns: tuple[str, ...]
    file: str
    source: str = "source"
    standard: str = "standard"
    unmapped: Literal["hold", "null"] = "hold"
    type: StandardType = "string"
    hides: bool = True
    version: int = 1

    def __post_init__(self) -> None:
        """Refuse a place that is another one for each process.

        Raises:
            ConfigError: it is not absolute.
        """
        if not Path(self.file).is_absolute():
            raise ConfigError(f"file: {self.file} must be a whole path: it is read by every task")

    @property
    def distinct(self) -> bool:
        """Not where all that have no entry become NULL."""
        return self.unmapped == "hold"

    @property
    def lake_type(self) -> StandardType:
        """As the settings say."""
        return self.type

    @property
    def fingerprint(self) -> str:
        """All but where the file lies, and what it holds: it may move, and grow."""
        return f"{self.source}:{self.standard}:{self.unmapped}:{self.type}:{self.version}"

    def value(self, text: str) -> str | None:
        """The entry of a value.

        Raises:
            FormatError: there is none, and it is to be held then; or the file cannot be read, which
                is to stop no other table.
        """
        try:
            found = pairs(self.file, self.source, self.standard, self.type).get(text)
        except (UnreachableError, ConfigError) as error:
            raise FormatError(str(error)) from error
        if found is None and self.unmapped == "hold":
            raise FormatError(f"the mapping {Path(self.file).name} has no entry for its value")
        return found


def pairs(file: str, source: str, standard: str, kind: StandardType) -> Pairs:
    """What *file* says by now.

    Raises:
        UnreachableError: it cannot be read.
        ConfigError: it lacks a column, or one value stands there twice.
    """
    asked = (file, source, standard)
    try:
        told = Path(file).stat()
    except OSError as error:
        raise UnreachableError(f"mapping {file}: {error.strerror}") from error
    stamp = (told.st_mtime_ns, told.st_size, told.st_ino)
    with _lock:
        known = _known.get(asked)
        if known is None or known[0] != stamp:
            found = _read(file, source, standard, kind)
            _refuse_changes(file, {} if known is None else known[1], found)
            known = _known[asked] = stamp, found
    return known[1]


def _read(file: str, source: str, standard: str, kind: StandardType) -> Pairs:
    try:
        table = _table(file)
    except (OSError, pa.ArrowInvalid) as error:
        raise UnreachableError(f"mapping {file}: {type(error).__name__}; write it anew") from error
    if lacking := {source, standard} - {*table.column_names}:
        have = ", ".join(table.column_names)
        raise ConfigError(f"mapping {file}: has no column {min(lacking)!r}; it has {have}")
    columns = [_texts(table[name]) for name in (source, standard)]
    found = {old: new for old, new in zip(*columns, strict=True) if None not in (old, new)}
    if len(found) < len(columns[0]) or len({*found.values()}) < len(found):
        msg = "a value stands there twice, or empty; each must have an answer of its own"
        raise ConfigError(f"mapping {file}: {msg}")
    if kind == "bigint" and not all(map(_is_bigint, found.values())):
        msg = "is not of type bigint throughout, written without a sign or zeros before it"
        raise ConfigError(f"mapping {file}: column {standard!r} {msg}")
    return found


def _table(file: str) -> pa.Table:
    if file.endswith(".parquet"):
        return pyarrow.parquet.read_table(file)
    with Path(file).open("rb") as lines:
        heading = lines.readline().decode("utf-8-sig", "replace").rstrip("\r\n").split(",")
    as_texts = dict.fromkeys((name.strip('"') for name in heading), pa.string())
    told = pyarrow.csv.ConvertOptions(column_types=as_texts, strings_can_be_null=False)
    return pyarrow.csv.read_csv(file, convert_options=told)


def _texts(column: pa.ChunkedArray) -> list[Any]:
    return list(column.cast(pa.string()).to_pylist())


def _is_bigint(text: str) -> bool:
    """Whether it is one, in the only text that stands for it: 01 beside 1 would be one number."""
    digits = text.removeprefix("-")
    known = digits.isdecimal() and digits.isascii() and len(digits) <= _DIGITS
    return known and str(int(text)) == text and -(2**63) <= int(text) < 2**63


def _refuse_changes(file: str, before: Pairs, now: Pairs) -> None:
    """Raise where an answer that was given is another one now."""
    if any(now.get(old) != new for old, new in before.items()):
        msg = "an entry changed, or went; put it back, or give it another `version` and restart"
        raise ConfigError(f"mapping {file}: {msg}")


STANDARD: type[Standard] = IdMapping
