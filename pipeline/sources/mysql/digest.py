"""Renders MySQL columns as the texts of `pipeline.row_digest`, in SQL.

The session's time zone is UTC.

* ZEROFILL pads the number that the server prints, so 0 is added to such a column.
* A server may print trailing blanks of CHAR, which the log does not have, so they are trimmed.
  BINARY has trailing zeros, which the log does not have; they are stripped on both sides.
* A date with a day or month of 0, or a 30th of February, does not exist in a lake. Collectors send
  NULL for it, or 1970-01-01 if the column is NOT NULL, which may have changed. So the invalid
  date, NULL and 1970-01-01 have the same text.
* The collector converts character sets other than Unicode, ASCII and latin1 by its own tables.
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
    DATED,
    GEOMETRIES,
    MOST_DIGITS,
    TEXTS,
    WHOLE,
    MySqlColumn,
    why_unverifiable,
)

UNIX_DAY = 719_528  # TO_DAYS('1970-01-01')
UNIX_SECOND = UNIX_DAY * 86_400
UNDEFINED_BYTES = ("0x81", "0x8D", "0x8F", "0x90", "0x9D")  # bytes that latin1 does not define
FORMS = {
    **dict.fromkeys((*WHOLE, "BIGINT", "TIME"), Form.INTEGER),
    "DECIMAL": Form.DECIMAL,
    "DATE": Form.ZERO_DATE,
    **dict.fromkeys(("DATETIME", "TIMESTAMP"), Form.ZERO_MOMENT),
    **dict.fromkeys((*TEXTS, "ENUM", "SET"), Form.TEXT),
    **dict.fromkeys(BYTES, Form.BYTES),
    "BINARY": Form.PADDED,
}
CHARSETS = ("", "utf8mb4", "utf8mb3", "utf8", "ascii", "latin1", "ucs2", "utf16", "utf32")
"""Character sets that are compared; empty: the log does not name it."""
NO_FORM = {
    **dict.fromkeys(("FLOAT", "DOUBLE"), NO_FLOATS),
    "JSON": "the collector spells JSON otherwise than the server",
    "BIT": "its bits arrive in the collector's own order",
    **dict.fromkeys(GEOMETRIES, "geometry is kept as the collector's text"),
}


def value_form(column: MySqlColumn) -> Form | str:
    """The form of the column's values, or the reason why they are not compared."""
    if (why := _find_reason(column)) is not None:
        return why
    if column.kind == "BIT":
        return Form.BOOLEAN
    latin = column.kind in TEXTS and column.charset == "latin1"
    return Form.LATIN if latin else FORMS[column.kind]


def _find_reason(column: MySqlColumn) -> str | None:
    kind = column.kind
    if column.computed:
        return "it is computed, and no log shows when its expression changes"
    if kind == "DECIMAL" and column.digits > MOST_DIGITS:
        return f"a DECIMAL of more than {MOST_DIGITS} digits is kept as the collector's text"
    if kind in TEXTS and column.charset not in CHARSETS:
        return f"the collector converts {column.charset} by a table of its own"
    if kind in NO_FORM and not (kind == "BIT" and column.width == 1):
        return NO_FORM[kind]
    why = None if kind in DATED else why_unverifiable(column)
    if why is None and kind not in FORMS and kind != "BIT":
        why = f"type {column.type} is not known"
    return why.removeprefix(f"{column.name}: ") if why else None


def digest_sql(columns: Sequence[MySqlColumn], quoted: Callable[[str], str]) -> str:
    """SQL of the digest of a row, an unsigned 64-bit integer; all *columns* must have a form."""
    texts = ", ".join(_text_sql(column, quoted(column.name)) for column in columns)
    return f"CAST(CONV(LEFT(MD5(CONCAT_WS('|', {texts})), {HEX_DIGITS}), 16, 10) AS UNSIGNED)"


def _text_sql(column: MySqlColumn, name: str) -> str:
    form = value_form(column)
    if form in {Form.TEXT, Form.LATIN}:
        odd = " + ".join(f"LOCATE({byte}, CAST({name} AS BINARY))" for byte in UNDEFINED_BYTES)
        name = f"TRIM(TRAILING ' ' FROM {name})" if column.kind == "CHAR" else name
        text, length = f"CONVERT({name} USING utf8mb4)", f"CHAR_LENGTH({name})"
        if form is Form.LATIN:
            text, length = f"IF({odd}, '', {text})", f"IF({odd}, '{UNPROVEN}', {length})"
        return f"{_or(length, column, NULL)}, {_or(text, column, '')}"
    return _or(_value_sql(column, name, form), column, NULL)


def _value_sql(column: MySqlColumn, name: str, form: Form | str) -> str:
    if form is Form.BYTES:
        return f"MD5({name})"
    if form is Form.PADDED:
        return f"MD5(TRIM(TRAILING 0x00 FROM {name}))"
    if form is Form.ZERO_DATE:
        return _proven(name, f"TO_DAYS({name}) - {UNIX_DAY}")
    if form is Form.ZERO_MOMENT:
        micros = f"(TO_SECONDS({name}) - {UNIX_SECOND}) * 1000000"
        micros += f" + MICROSECOND({name})" if column.fraction else ""
        return _proven(name, micros)
    if column.kind == "TIME":
        sign = f"IF({name} < 0, -1, 1)"
        return f"TIME_TO_SEC({name}) * 1000000 + {sign} * MICROSECOND({name})"
    padded = "ZEROFILL" in column.type.upper()
    return f"{name} + 0" if padded or form is Form.BOOLEAN else name


def _proven(name: str, value: str) -> str:
    """SQL of *value* within ``FIRST_DATE`` and ``END_DATE``; an invalid date or 0 is like NULL.

    Outside of these dates it is ``UNPROVEN``.
    """
    inside = f"{name} >= '{FIRST_DATE}' AND {name} < '{END_DATE}'"
    exists = f"DAYOFMONTH({name}) < 29 OR DAYOFMONTH({name}) <= DAYOFMONTH(LAST_DAY({name}))"
    found = f"IF({inside}, IF({exists}, NULLIF({value}, 0), NULL), '{UNPROVEN}')"
    return f"IFNULL(IF(TO_DAYS({name}) IS NULL, NULL, {found}), '{NULL}')"


def _or(text: str, column: MySqlColumn, instead: str) -> str:
    return f"IFNULL({text}, '{instead}')" if column.nullable else text
