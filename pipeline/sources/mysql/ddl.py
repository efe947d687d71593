"""What does a statement say that the collector's table of columns leaves out?

Measured: generated columns look like plain ones, computed defaults like ``1970-01-01 00:00:00``
or like text, and a renamed table like one that was altered under a name never seen.  Pure.
"""

import re

from pipeline.model import ShardId
from pipeline.sources.mysql.alter import Altered
from pipeline.sources.mysql.reader import Name
from pipeline.sources.mysql.statement import Renamed, read

_GENERATED = re.compile(r"(?:GENERATED\s+ALWAYS\s+)?\bAS\s*\(", re.IGNORECASE)
_COMPUTED = re.compile(
    r"\bDEFAULT\s*(?:\(|(?:CURRENT_TIMESTAMP|NOW|LOCALTIME|LOCALTIMESTAMP)\b)", re.IGNORECASE
)
_SIZES = re.compile(r"\s*[A-Za-z][A-Za-z ]*?\(\s*([0-9]{1,9})\s*(?:,\s*([0-9]{1,9})\s*)?\)")
_FILLED = re.compile(
    r"\b(?:NOT\s+NULL|DEFAULT|AUTO_INCREMENT|PRIMARY|KEY|SERIAL|AS)\b|\bTIMESTAMP\b", re.IGNORECASE
)
_QUOTED = re.compile(r"'(?:[^'\\]|''|\\.)*'|\"(?:[^\"\\]|\"\"|\\.)*\"", re.DOTALL)


def renamed_from(statement: str, shard: ShardId) -> ShardId | None:
    """Name that *shard* had before this statement; None if it is no rename of it, or not told.

    A new name without a database is one of the session's, which is then that of *shard*.  An old
    one without, beside a new one with a database, is of a database that nobody tells.
    """
    found = None
    for old, new in reversed(_renames(statement)):
        known = ShardId(new.database or shard.database, new.relation)
        if known != (found or shard):
            continue
        if old.database is None and new.database is not None:
            return None
        found = ShardId(old.database or shard.database, old.relation)
    return None if found == shard else found


def _renames(statement: str) -> tuple[tuple[Name, Name], ...]:
    """(old name, new name), one after the other."""
    if "rename" not in statement.casefold():
        return ()
    match read(statement):
        case Renamed(pairs):
            return pairs
        case Altered(table=old, to=new) if new is not None:
            return ((old, new),)
    return ()


def generated(statement: str, column: str) -> bool:
    """Whether the statement defines *column* as computed from others."""
    return bool(_GENERATED.search(_definition(statement, column)))


def computed_default(statement: str, column: str) -> bool:
    """Whether the statement gives *column* a default that is no constant."""
    return bool(_COMPUTED.search(_definition(statement, column)))


def sizes(statement: str, column: str) -> tuple[int | None, int | None]:
    """Numbers behind the type's name where the statement defines *column*; None where not."""
    found = _SIZES.match(_definition(statement, column))
    if found is None:
        return None, None
    return int(found[1]), None if found[2] is None else int(found[2])


def may_be_null(statement: str, column: str) -> bool:
    """Whether the statement defines *column* as one that old rows hold NULL in, for certain."""
    found = _definition(statement, column)
    return bool(found.strip()) and _FILLED.search(found) is None


def _definition(statement: str, column: str) -> str:
    """Text from the column's name to the end of its definition, without quoted text."""
    bare = _QUOTED.sub("''", statement)
    quoted, plain = re.escape(f"`{column.replace('`', '``')}`"), re.escape(column)
    named = rf"(?:{quoted}|(?<![\w`.]){plain})\s+(?=[A-Za-z])"
    found = re.search(named, bare, re.IGNORECASE)
    if found is None:
        return ""
    depth = 0
    for at, char in enumerate(bare[found.end() :], start=found.end()):
        depth += (char == "(") - (char == ")")
        if depth < 0 or (depth == 0 and char == ","):
            return bare[found.end() : at]
    return bare[found.end() :]
