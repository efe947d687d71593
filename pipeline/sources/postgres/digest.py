"""Renders Postgres columns as the texts of `pipeline.row_digest`, in SQL.

Casting a `bpchar` removes its trailing blanks, which the log has, so they are added again.
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
from pipeline.sources.postgres.types import (
    PostgresColumn,
    is_decimal,
    why_unverifiable,
)

FORMS = {
    "BOOL": Form.BOOLEAN,
    **dict.fromkeys(("INT2", "INT4", "INT8", "OID", "TIME"), Form.INTEGER),
    "NUMERIC": Form.DECIMAL,
    "DATE": Form.DATE,
    **dict.fromkeys(("TIMESTAMP", "TIMESTAMPTZ"), Form.MOMENT),
    **dict.fromkeys(("BPCHAR", "VARCHAR", "TEXT", "NAME", "UUID", "ENUM"), Form.TEXT),
    "BYTEA": Form.BYTES,
}
SPELLED = "its collector spells it otherwise than the server"


def value_form(column: PostgresColumn) -> Form | str:
    """The form of the column's values, or the reason why they are not compared."""
    if (why := _find_reason(column)) is not None:
        return why
    return Form.BOOLEAN if column.kind == "BIT" else FORMS[column.kind]


def _find_reason(column: PostgresColumn) -> str | None:
    kind = column.kind
    if column.undigested:
        return column.undigested
    if kind == "NUMERIC" and not is_decimal(column):
        return "a NUMERIC of any size has no one spelling"
    if kind == "BPCHAR" and column.length is None:
        return "its blanks at the end are unknown"
    if kind in ("FLOAT4", "FLOAT8"):
        return NO_FLOATS
    if kind in FORMS or (kind == "BIT" and column.length in (1, None)):
        return None
    why = why_unverifiable(column) or SPELLED
    return why.removeprefix(f"{column.name}: ")


def digest_sql(columns: Sequence[PostgresColumn], quoted: Callable[[str], str]) -> str:
    """SQL of the digest of a row, a signed 64-bit integer; all *columns* must have a form."""
    texts = ", ".join(_text_sql(column, quoted(column.name)) for column in columns)
    digits = f"left(md5(convert_to(concat_ws('|', {texts}), 'UTF8')), {HEX_DIGITS})"
    return f"('x' || {digits})::bit(64)::bigint"


def _text_sql(column: PostgresColumn, name: str) -> str:
    form = value_form(column)
    if form is Form.TEXT:
        text = f"{name}::text"
        if column.kind == "BPCHAR":
            text = f"rpad({name}::text, {column.length})"
        return f"{_or(f'length({text})::text', column, NULL)}, {_or(text, column, '')}"
    return _or(_value_sql(column, name, form), column, NULL)


def _value_sql(column: PostgresColumn, name: str, form: Form | str) -> str:
    if form is Form.BYTES:
        return f"md5({name})"
    if form is Form.BOOLEAN:
        return f"{name}::int::text"
    if form is Form.DATE:
        return _proven(name, f"({name} - date '1970-01-01')")
    if form is Form.MOMENT:
        wall = f"({name} AT TIME ZONE 'UTC')" if column.kind == "TIMESTAMPTZ" else name
        return _proven(wall, f"(extract(epoch FROM {wall}) * 1000000)::bigint")
    if column.kind == "TIME":
        return f"(extract(epoch FROM {name}) * 1000000)::bigint::text"
    return f"{name}::text"


def _proven(name: str, value: str) -> str:
    """SQL of *value* within ``FIRST_DATE`` and ``END_DATE``, otherwise of ``UNPROVEN``."""
    inside = f"{name} >= '{FIRST_DATE}' AND {name} < '{END_DATE}'"
    return f"CASE WHEN {inside} THEN {value}::text WHEN {name} IS NOT NULL THEN '{UNPROVEN}' END"


def _or(text: str, column: PostgresColumn, instead: str) -> str:
    return f"coalesce({text}, '{instead}')" if column.nullable else text
