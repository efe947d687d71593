"""Parses column types as SHOW COLUMNS spells them, such as `decimal(10,2) unsigned`.

Canal reports neither NULL nor defaults, so a column is described as NOT NULL without a default. The
format `simple_binlog` and the row reader of MySQL use these functions, too.
"""

import re

from pipeline.schema.model import ColumnDescription, Notation

TYPE = re.compile(
    r"\s*([a-z][a-z0-9_ ]*?)\s*(?:\((.*)\)\s*([a-z0-9_ ]*))?\s*", re.IGNORECASE | re.DOTALL
)
NUMBERS = re.compile(r"\s*([0-9]{1,9})\s*(?:,\s*([0-9]{1,9})\s*)?")
LABELS = re.compile(r"'((?:[^'\\]|''|\\.)*)'", re.DOTALL)
ENUMERATIONS = ("ENUM", "SET")
SIGNS = ("UNSIGNED", "ZEROFILL")
SIGNED = re.compile(r"(TINY|SMALL|MEDIUM|BIG)?INT|DECIMAL|FLOAT|DOUBLE")
KINDS = re.compile(
    rf"{SIGNED.pattern}|BIT|YEAR|DATE|DATETIME|TIMESTAMP|TIME|JSON|ENUM|SET|CHAR|VARCHAR"
    r"|(TINY|MEDIUM|LONG)?(TEXT|BLOB)|BINARY|VARBINARY"
    r"|GEOMETRY|GEOMCOLLECTION|GEOMETRYCOLLECTION|(MULTI)?(POINT|LINESTRING|POLYGON)"
    r"|UUID|INET[46]|VECTOR"  # kept as texts
)


COMMENT = re.compile(r"\s*/\*[^*]*\*/\s*$")  # MariaDB's comment for a type from before version 5.3


def find_type_fault(text: str) -> str:
    """Return why SHOW COLUMNS never spells a type like this; empty if it may."""
    column = describe_column("", COMMENT.sub("", text), 1)
    kind, *signs = column.type.split(" ")
    if column.notation is not Notation.TEXTS or KINDS.fullmatch(kind) is None:
        return f"no type {text!r}; write it as SHOW COLUMNS does, such as bigint(20) unsigned"
    if kind in ENUMERATIONS and not column.values:
        return f"{text!r} names no labels; write it as SHOW COLUMNS does, such as enum('a','b')"
    if signs and not (SIGNED.fullmatch(kind) and {*signs} <= {*SIGNS}):
        return f"{text!r}: {' '.join(signs).lower()} is nothing that {kind.lower()} may be"
    if kind == "DECIMAL" and (column.scale or 0) > (10 if column.length is None else column.length):
        return f"{text!r} has more digits behind the point than at all"
    return ""


def describe_column(name: str, text: str, position: int) -> ColumnDescription:
    """Describe a column with the type *text*, as SHOW COLUMNS spells it.

    A type that cannot be read is kept as its text. The column is described as NOT NULL without a
    default. Canal reports neither, so old rows of an added column cannot be filled.
    """
    found = TYPE.fullmatch(text)
    if found is None:
        return ColumnDescription(name, text.upper(), None, None, False, None, position)
    words, inner = found[1].upper().split(), found[2]
    kind = " ".join(word for word in words if word not in SIGNS)
    sign = [word for word in (*words, *(found[3] or "").upper().split()) if word in SIGNS]
    numbers = NUMBERS.fullmatch(inner or "")
    labels = LABELS.findall(inner or "") if kind in ENUMERATIONS else ()
    return ColumnDescription(
        name=name,
        type=" ".join([kind, *sign]),
        length=int(numbers[1]) if numbers else None,
        scale=int(numbers[2]) if numbers and numbers[2] else None,
        nullable=False,
        position=position,
        values=tuple(label.replace("''", "'") for label in labels),
        notation=Notation.TEXTS,
    )
