"""What does a statement say that the collector's table of columns leaves out?

Measured: generated columns look like plain ones, computed defaults like ``1970-01-01 00:00:00``
or like text, and a renamed table like one that was altered under a name never seen.  Pure.
"""

import re

_NAME = r"(?:`(?:[^`]|``)+`|[\w$]+)"
_TABLE = rf"(?:{_NAME}\s*\.\s*)?({_NAME})"
_RENAME_TABLE = re.compile(rf"^\s*RENAME\s+TABLES?\s+{_TABLE}\s+TO\s+{_TABLE}", re.IGNORECASE)
_ALTER_RENAME = re.compile(
    rf"^\s*ALTER\s+TABLE\s+{_TABLE}\s.*?\bRENAME\s+(?!COLUMN|INDEX|KEY)(?:TO\s+|AS\s+|=\s*)?{_TABLE}",
    re.IGNORECASE | re.DOTALL,
)
_GENERATED = re.compile(r"(?:GENERATED\s+ALWAYS\s+)?\bAS\s*\(", re.IGNORECASE)
_COMPUTED = re.compile(
    r"\bDEFAULT\s*(?:\(|(?:CURRENT_TIMESTAMP|NOW|LOCALTIME|LOCALTIMESTAMP)\b)", re.IGNORECASE
)
_SIZES = re.compile(r"\s*[A-Za-z][A-Za-z ]*?\(\s*([0-9]{1,9})\s*(?:,\s*([0-9]{1,9})\s*)?\)")
_FILLED = re.compile(
    r"\b(?:NOT\s+NULL|DEFAULT|AUTO_INCREMENT|PRIMARY|KEY|SERIAL|AS)\b|\bTIMESTAMP\b", re.IGNORECASE
)
_QUOTED = re.compile(r"'(?:[^'\\]|''|\\.)*'|\"(?:[^\"\\]|\"\"|\\.)*\"", re.DOTALL)


def renamed_from(statement: str, table: str) -> str | None:
    """Name *table* had before this statement; None if it is no rename of it."""
    for pattern in (_RENAME_TABLE, _ALTER_RENAME):
        found = pattern.search(statement)
        if found and _bare(found[2]) == table and _bare(found[1]) != table:
            return _bare(found[1])
    return None


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


def _bare(name: str) -> str:
    return name[1:-1].replace("``", "`") if name.startswith("`") else name
