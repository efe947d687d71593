"""Describes MySQL columns, their Spark types, and the labels of ENUM and SET.

The type map is fixed: changing it breaks existing mirrors.

Measured on Debezium 3.5: a snapshot sends the label of an ENUM or SET. The log sends the text
between the quotes of the declaration: escapes and trailing blanks remain, and a comma has a
backslash before it. A schema event also has the labels as the statement wrote them. A text that
may mean two labels becomes null.

In a quoted text the server removes a backslash, except before `%` and `_`, where both remain.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

import pyarrow as pa

from pipeline.schema.model import Dialect, Notation, TableSchema

DIALECT = {
    **dict.fromkeys(("INT1", "BOOL", "BOOLEAN"), "TINYINT"),
    "INT2": "SMALLINT",
    **dict.fromkeys(("INT3", "MIDDLEINT"), "MEDIUMINT"),
    **dict.fromkeys(("INT4", "INTEGER"), "INT"),
    "INT8": "BIGINT",
    **dict.fromkeys(("NUMERIC", "DEC", "FIXED"), "DECIMAL"),
    "FLOAT4": "FLOAT",
    **dict.fromkeys(("REAL", "FLOAT8", "DOUBLE PRECISION"), "DOUBLE"),
    **dict.fromkeys(("CHARACTER", "NCHAR", "NATIONAL CHAR", "NATIONAL CHARACTER"), "CHAR"),
    **{
        f"{start}{end}": "VARCHAR"
        for start in ("", "NATIONAL ", "N")
        for end in ("VARCHAR", "VARCHARACTER", "CHARACTER VARYING", "CHAR VARYING", "CHAR VARCHAR")
    },
    **dict.fromkeys(("LONG", "LONG VARCHAR"), "MEDIUMTEXT"),
    "LONG VARBINARY": "MEDIUMBLOB",
    "CHAR BYTE": "BINARY",
    "GEOMETRYCOLLECTION": "GEOMCOLLECTION",
}
ATTRIBUTES = ("UNSIGNED", "SIGNED", "ZEROFILL", "BINARY")  # words after the name of a type
COMPUTED = ("VIRTUAL", "STORED", "PERSISTENT")  # `extra` of a computed column begins so
LONGEST_FLOAT = 24  # FLOAT(25) and higher are DOUBLE
DIGITS = 10  # default precision of DECIMAL


@lru_cache(maxsize=1_000)  # at its start, the service reads every schema change that has landed
def _plain_kind(described: str) -> str:
    words = described.upper().split()
    plain = " ".join(words[:1] + [word for word in words[1:] if word not in ATTRIBUTES])
    return "BIGINT" if plain == "SERIAL" else DIALECT.get(plain, plain)


@dataclass(frozen=True, slots=True)
class MySqlColumn:
    """A column as a schema event or the server describes it.

    ``type`` is MySQL's name in capitals (``BIGINT UNSIGNED``).  ``length`` is the precision of a
    DECIMAL, the digits of the fraction of a DATETIME, TIMESTAMP or TIME, or the display width of an
    integer, which has no meaning.  ``default`` is the default's text in the schema event, None
    without one; ``has_default`` is also true if the default is NULL.  ``generated`` is true for
    computed columns and computed defaults: old rows have no constant in them.  ``values`` are the
    labels of ENUM and SET; ``notation`` is that of the values in rows.  Only the server reports
    ``charset``, and which columns are ``computed`` from others.
    """

    name: str
    type: str
    length: int | None = None
    scale: int | None = None
    nullable: bool = True
    default: str | None = None
    has_default: bool = False
    generated: bool = False
    position: int = 0
    values: tuple[str, ...] = ()
    notation: Notation = Notation.CONNECT
    charset: str = ""
    computed: bool = False

    @property
    def dialect(self) -> Dialect:
        from pipeline.sources.mysql.dialect import MYSQL  # noqa: PLC0415  - it knows columns itself

        return MYSQL

    @property
    def kind(self) -> str:
        """The canonical name of the type, without sign: INT for INTEGER, TINYINT for BOOL."""
        kind = _plain_kind(self.type)
        wide = kind == "FLOAT" and self.scale is None and (self.length or 0) > LONGEST_FLOAT
        return "DOUBLE" if wide else kind

    @property
    def unsigned(self) -> bool:
        """Whether negative numbers do not fit."""
        return bool({"UNSIGNED", "ZEROFILL", "SERIAL"} & set(self.type.upper().split()))

    @property
    def digits(self) -> int:
        """Precision of a DECIMAL in digits."""
        return self.length or DIGITS

    @property
    def fraction(self) -> int:
        """Digits after the point of a DECIMAL, or of the seconds of a time."""
        return (self.scale if self.kind == "DECIMAL" else self.length) or 0

    @property
    def width(self) -> int:
        """Bits of a BIT, characters or bytes of CHAR, BINARY, VARCHAR, VARBINARY."""
        return self.length or 1

    @property
    def shape(self) -> tuple[object, ...]:
        """The parts of the type that decide which values fit; equal shapes fit the same values."""
        if self.kind in ("ENUM", "SET"):
            return (self.kind, self.values)
        if self.kind == "DECIMAL":
            return (self.kind, self.unsigned, self.digits, self.fraction)
        if self.kind in ("DATETIME", "TIMESTAMP", "TIME"):
            return (self.kind, self.fraction)
        if self.kind in ("BIT", "CHAR", "VARCHAR", "BINARY", "VARBINARY"):
            return (self.kind, self.width)
        return (self.kind, self.unsigned)

    def __str__(self) -> str:
        """Format the type as MySQL does: ``DECIMAL(10,2) UNSIGNED``."""
        kind, *rest = self.shape
        sign = " UNSIGNED" if self.unsigned else ""
        if self.kind in ("ENUM", "SET"):
            return f"{kind}({','.join(repr(v) for v in self.values)})"
        numbers = ",".join(str(part) for part in rest if not isinstance(part, bool))
        return f"{kind}{f'({numbers})' if numbers not in ('', '0') else ''}{sign}"


def mysql_columns(schema: TableSchema) -> tuple[MySqlColumn, ...]:
    """The columns of *schema*, which must be MySQL's."""
    return cast("tuple[MySqlColumn, ...]", schema.columns)


def read_column(row: Mapping[str, Any]) -> MySqlColumn:
    """Build the column of a *row* of information_schema.columns, whose keys are in lower case.

    A type may end in a comment (``datetime /* mariadb-5.3 */``).  In labels and defaults, ``?``
    may replace a character outside utf8mb3.
    """
    kind = re.sub(r"\(.*\)|/\*.*\*/", "", row["column_type"], flags=re.DOTALL).upper()
    sizes = ("numeric_precision", "character_maximum_length", "datetime_precision")
    length = next((int(row[size]) for size in sizes if row.get(size) is not None), None)
    labels = (
        re.findall(r"'((?:[^']|'')*)'", row["column_type"]) if "'" in row["column_type"] else ()
    )
    default = row.get("column_default")
    return MySqlColumn(
        name=row["column_name"],
        type=" ".join(kind.split()),
        length=length,
        scale=None if row.get("numeric_scale") is None else int(row["numeric_scale"]),
        nullable=row["is_nullable"] == "YES",
        default=None if default is None else str(default),
        values=tuple(label.replace("''", "'") for label in labels),
        charset=str(row.get("character_set_name") or ""),
        computed=row.get("extra", "").upper().startswith(COMPUTED),
    )


WHOLE = {"TINYINT": "tinyint", "SMALLINT": "smallint", "MEDIUMINT": "int", "INT": "int"}
WHOLE_UNSIGNED = {"TINYINT": "smallint", "SMALLINT": "int", "MEDIUMINT": "int", "INT": "bigint"}
TEXTS = ("CHAR", "VARCHAR", "TINYTEXT", "TEXT", "MEDIUMTEXT", "LONGTEXT")
WORDS = (*TEXTS, "ENUM", "SET", "JSON")
BYTES = ("BINARY", "VARBINARY", "TINYBLOB", "BLOB", "MEDIUMBLOB", "LONGBLOB")
FIXED = {
    **{"BIGINT": "bigint", "FLOAT": "float", "DOUBLE": "double", "YEAR": "int", "DATE": "date"},
    **{"DATETIME": "timestamp_ntz", "TIMESTAMP": "timestamp", "TIME": "bigint"},
    **dict.fromkeys(WORDS, "string"),
    **dict.fromkeys(BYTES, "binary"),
}
GEOMETRY = ("GEOMETRY", "POINT", "LINESTRING", "POLYGON", "GEOMCOLLECTION", "GEOMETRYCOLLECTION")
GEOMETRIES = (*GEOMETRY, "MULTIPOINT", "MULTILINESTRING", "MULTIPOLYGON")
DATED = ("DATE", "DATETIME", "TIMESTAMP")
MOST_DIGITS = 38


def lake_type(column: MySqlColumn) -> str:
    """Spark type of *column* in a mirror; text for types Sluice does not know."""
    kind = column.kind
    if kind in WHOLE:
        return WHOLE_UNSIGNED[kind] if column.unsigned else WHOLE[kind]
    if kind == "BIGINT" and column.unsigned:
        return "decimal(20,0)"
    if kind == "DECIMAL":
        fits = column.digits <= MOST_DIGITS
        return f"decimal({column.digits},{column.fraction})" if fits else "string"
    if kind == "BIT":
        return "boolean" if column.width == 1 else "binary"
    return FIXED.get(kind, "string")


def why_unverifiable(column: MySqlColumn, *, zero_dates: bool = False) -> str | None:
    """Why *column* of source and mirror cannot be compared; None if it can.

    *zero_dates*: the server's ``sql_mode`` allows ``0000-00-00`` (no ``NO_ZERO_DATE``).
    """
    kind = column.kind
    if kind in GEOMETRIES:
        return f"{column.name}: geometry is kept as the collector's text and is not compared"
    if kind not in FIXED and kind not in WHOLE and kind not in ("DECIMAL", "BIT"):
        return f"{column.name}: type {column.type} is not known; it is kept as text, not compared"
    evident = (column.default or "").startswith("0000-00-00")
    if kind in DATED and (zero_dates or evident):
        return f"{column.name}: 0000-00-00 arrives as NULL or 1970-01-01, as if it were that"
    if kind == "YEAR":
        return f"{column.name}: the year 0000 arrives from a snapshot as 2000"
    if kind in ("ENUM", "SET") and any("?" in label for label in column.values):
        return f"{column.name}: a label the server writes as ? (outside utf8mb3) arrives as ?"
    return None


def is_rounded(column: MySqlColumn) -> bool:
    """Whether a snapshot rounds *column*: the server prints six digits of a FLOAT.

    FLOAT(10,2), with a number of decimals, is printed with all of them.
    """
    return column.kind == "FLOAT" and column.scale is None


ESCAPES = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a"}
KEPT = ("%", "_")


def unquote_text(text: str) -> str:
    """Resolve escapes and doubled quotes in *text*."""
    return re.sub(r"''|\\(.)", _unescape_match, text, flags=re.DOTALL)


def unescape_text(text: str) -> str:
    """Resolve escapes in *text*, whose doubled quotes are already resolved."""
    return re.sub(r"\\(.)", _unescape_match, text, flags=re.DOTALL)


def _unescape_match(found: re.Match[str]) -> str:
    if found[1] is None:
        return "'"
    return found[0] if found[1] in KEPT else ESCAPES.get(found[1], found[1])


def decode_labels(column: MySqlColumn, texts: pa.StringArray) -> pa.StringArray:
    """The labels that *texts* mean; null if ambiguous.

    A text that is not a label and has no backslash stays as it is.  Such texts are the empty text
    of an invalid value, and labels that the server cannot report.
    """
    if not column.values:
        return texts
    declared = frozenset(decode_label(value) for value in column.values)
    coded = texts.dictionary_encode()
    distinct = coded.dictionary.to_pylist()
    if column.kind == "SET":
        labels = [_members(text, declared) for text in distinct]
    else:
        labels = [_label(text, declared) for text in distinct]
    return pa.array(labels, pa.string()).take(coded.indices)


def has_one_spelling(column: MySqlColumn) -> bool:
    """Whether a snapshot and the log send each label as the same text."""
    if column.kind not in ("ENUM", "SET"):
        return True
    return all(value == decode_label(value) and "," not in value for value in column.values)


def decode_label(literal: str) -> str:
    """The label that the server makes of the text between the quotes, without trailing blanks."""
    return unescape_text(literal).rstrip(" ")


def _members(text: str, declared: frozenset[str]) -> str | None:
    """The labels of a SET value, which contain no comma; None if one is ambiguous."""
    found = [_label(part, declared) for part in text.split(",")]
    return None if None in found else ",".join(part for part in found if part is not None)


def _label(text: str, declared: frozenset[str]) -> str | None:
    spelled = decode_label(text.replace("\\,", ","))
    if text in declared:
        clear = spelled == text or spelled not in declared
        return text if clear else None
    if spelled in declared:
        return spelled
    return None if "\\" in text else text
