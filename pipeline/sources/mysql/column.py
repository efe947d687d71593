"""What is one column of a MySQL table, whatever name its type goes by?  Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

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
ATTRIBUTES = ("UNSIGNED", "SIGNED", "ZEROFILL", "BINARY")  # of a number, of a text
LONGEST_FLOAT = 24  # FLOAT(25) and more are a DOUBLE
DIGITS = 10  # of a DECIMAL that names none


@dataclass(frozen=True, slots=True)
class MySqlColumn:
    """A column as a schema change tells it.

    ``type`` is MySQL's name in capitals (``BIGINT UNSIGNED``); ``length`` is the precision of a
    DECIMAL, the fraction's digits of a DATETIME, TIMESTAMP or TIME, the display width of an
    integer (which means nothing).  ``default`` is the text of the schema change, None for none;
    ``has_default`` is true as well when the default is NULL.  ``generated`` columns, and those
    with a computed default, held no constant when they were added.  ``values`` are ENUM's, SET's;
    ``notation`` is that of the values in rows.
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

    @property
    def dialect(self) -> Dialect:
        """MySQL's."""
        from pipeline.sources.mysql.dialect import MYSQL  # noqa: PLC0415  - it knows columns itself

        return MYSQL

    @property
    def kind(self) -> str:
        """The type's one name, without sign: INT for INTEGER, TINYINT for BOOL."""
        words = self.type.upper().split()
        plain = " ".join(words[:1] + [word for word in words[1:] if word not in ATTRIBUTES])
        kind = "BIGINT" if plain == "SERIAL" else DIALECT.get(plain, plain)
        wide = kind == "FLOAT" and self.scale is None and (self.length or 0) > LONGEST_FLOAT
        return "DOUBLE" if wide else kind

    @property
    def unsigned(self) -> bool:
        """Whether only numbers from 0 on fit."""
        return bool({"UNSIGNED", "ZEROFILL", "SERIAL"} & set(self.type.upper().split()))

    @property
    def digits(self) -> int:
        """Precision of a DECIMAL."""
        return self.length or DIGITS

    @property
    def fraction(self) -> int:
        """Digits after the point: of a DECIMAL, or of a time's seconds."""
        return (self.scale if self.kind == "DECIMAL" else self.length) or 0

    @property
    def width(self) -> int:
        """Bits of a BIT, characters or bytes of CHAR, BINARY, VARCHAR, VARBINARY."""
        return self.length or 1

    @property
    def shape(self) -> tuple[object, ...]:
        """All of the type that decides which values fit, so that equal shapes hold the same."""
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
        """Render the type as MySQL would: ``DECIMAL(10,2) UNSIGNED``."""
        kind, *rest = self.shape
        sign = " UNSIGNED" if self.unsigned else ""
        if self.kind in ("ENUM", "SET"):
            return f"{kind}({','.join(repr(v) for v in self.values)})"
        numbers = ",".join(str(part) for part in rest if not isinstance(part, bool))
        return f"{kind}{f'({numbers})' if numbers not in ('', '0') else ''}{sign}"


def columns(schema: TableSchema) -> tuple[MySqlColumn, ...]:
    """The columns of a schema that is MySQL's."""
    return cast("tuple[MySqlColumn, ...]", schema.columns)


def described(row: Mapping[str, Any]) -> MySqlColumn:
    """The column that *row* of information_schema.columns tells; its keys in small letters.

    A type may end in a comment (``datetime /* mariadb-5.3 */``).  Text that the server cannot say
    in utf8mb3 (labels, defaults) stands there with ``?`` in it.
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
    )
