"""Renders MySQL columns as the texts of `pipeline.row_digest`, in SQL.

The session's time zone is UTC.

* ZEROFILL pads what the server prints, so such a column is added to 0.
* CHAR has no blanks at its end in the log, and is trimmed: a server may print them. BINARY has
  zeros at its end, which the log does not have; they are stripped on each side.
* A date with a day or month of 0 does not exist in a lake. Collectors send NULL for it, or
  1970-01-01 where the column is NOT NULL; `TO_DAYS` returns NULL for it.
"""

from collections.abc import Callable, Sequence

from pipeline.row_digest import (
    END_DATE,
    FIRST_DATE,
    HEX_DIGITS,
    NO_FLOATS,
    NULL,
    UNPROVEN,
    Form,
)
from pipeline.sources.mysql.types import (
    BYTES,
    GEOMETRIES,
    TEXTS,
    WHOLE,
    MySqlColumn,
    why_unverifiable,
)

UNIX_DAY = 719_528  # TO_DAYS('1970-01-01')
UNIX_SECOND = UNIX_DAY * 86_400
MISSING = "0"  # 1970-01-01
FORMS = {
    **dict.fromkeys((*WHOLE, "BIGINT", "TIME"), Form.INTEGER),
    "DECIMAL": Form.DECIMAL,
    "DATE": Form.DATE,
    **dict.fromkeys(("DATETIME", "TIMESTAMP"), Form.MOMENT),
    **dict.fromkeys((*TEXTS, "ENUM", "SET"), Form.TEXT),
    **dict.fromkeys(BYTES, Form.BYTES),
    "BINARY": Form.PADDED,
}
NO_FORM = {
    **dict.fromkeys(("FLOAT", "DOUBLE"), NO_FLOATS),
    "JSON": "the collector spells JSON otherwise than the server",
    "BIT": "its bits arrive in the collector's own order",
    **dict.fromkeys(GEOMETRIES, "geometry is kept as the collector's text"),
}


def value_form(column: MySqlColumn) -> Form | str:
    """The form of its values, or why they are not compared."""
    if column.kind == "BIT" and column.width == 1:
        return Form.BOOLEAN
    if column.kind == "DECIMAL" and column.digits > 38:
        return Form.TEXT
    if (form := FORMS.get(column.kind)) is not None:
        return form
    why = NO_FORM.get(column.kind) or why_unverifiable(column) or f"type {column.type} is not known"
    return why.removeprefix(f"{column.name}: ")


def digest_sql(columns: Sequence[MySqlColumn], quoted: Callable[[str], str]) -> str:
    """The digest of a row as an unsigned integer of 64 bits; *columns* have forms."""
    texts = ", ".join(_text_sql(column, quoted(column.name)) for column in columns)
    return f"CAST(CONV(LEFT(MD5(CONCAT_WS('|', {texts})), {HEX_DIGITS}), 16, 10) AS UNSIGNED)"


def _text_sql(column: MySqlColumn, name: str) -> str:
    form = value_form(column)
    if form is Form.TEXT:
        name = f"TRIM(TRAILING ' ' FROM {name})" if column.kind == "CHAR" else name
        text, length = f"CONVERT({name} USING utf8mb4)", f"CHAR_LENGTH({name})"
        return f"{_or(length, column, NULL)}, {_or(text, column, '')}"
    return _or(_value_sql(column, name, form), column, NULL)


def _value_sql(column: MySqlColumn, name: str, form: Form | str) -> str:
    if form is Form.BYTES:
        return f"MD5({name})"
    if form is Form.PADDED:
        return f"MD5(TRIM(TRAILING 0x00 FROM {name}))"
    if form is Form.DATE:
        return _proven(column, name, f"TO_DAYS({name}) - {UNIX_DAY}")
    if form is Form.MOMENT:
        micros = f"(TO_SECONDS({name}) - {UNIX_SECOND}) * 1000000"
        micros += f" + MICROSECOND({name})" if column.fraction else ""
        return _proven(column, name, micros)
    if column.kind == "TIME":
        sign = f"IF({name} < 0, -1, 1)"
        return f"TIME_TO_SEC({name}) * 1000000 + {sign} * MICROSECOND({name})"
    padded = "ZEROFILL" in column.type.upper()
    return f"{name} + 0" if padded or form is Form.BOOLEAN else name


def _proven(column: MySqlColumn, name: str, value: str) -> str:
    """*value* from ``FIRST_DAY`` until ``END_DAY``; NULL for a date that does not exist."""
    inside, missing = f"{name} >= '{FIRST_DATE}' AND {name} < '{END_DATE}'", "NULL"
    if not column.nullable:
        value, missing = f"IFNULL({value}, '{MISSING}')", f"'{MISSING}'"
    other = f"IF(TO_DAYS({name}) IS NULL, {missing}, '{UNPROVEN}')"
    return f"IF({inside}, {value}, {other})"


def _or(text: str, column: MySqlColumn, instead: str) -> str:
    return f"IFNULL({text}, '{instead}')" if column.nullable else text
