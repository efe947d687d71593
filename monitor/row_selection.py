"""Parses the rows that an operator or a failed check names.

A key is the JSON array of its values as texts, as `sluice` prints it, with or without source
and shard in front. For a key of one column, the bare value is enough. `parse_row_key` also accepts
`a=1,b=x` and JSON objects, and bytes as `0x` and hexadecimal digits. A check names ids by shard
(`shop/shop.orders:17-29`) or keys by their messages (`topic:0:42 ["shop","shop.orders","7"]`).
Both ends of a range are inclusive.
"""

import base64
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from shlex import quote

import pyarrow as pa

from checks.model import Verdict
from pipeline.backfill_state import RowSelection, SelectedKey, SelectedRange
from pipeline.errors import ConfigError
from pipeline.formats.json_text import canonical_key
from pipeline.model import Shard, Table
from pipeline.row_digest import name_key
from pipeline.schema.model import Column
from pipeline.sources.condition import Condition, list_values, require_known

NAMING = ("range_counts", "values", "max_id", "offset_keys")
"""Checks that name the wrong rows."""
FEW = 50  # most ids that are read as ranges, which work for every integer type
_SPAN = re.compile(r"(?P<shard>.+):(?P<first>-?\d+)(?:-(?P<last>-?\d+))?")
_RANGE = re.compile(r"\s*(?P<first>-?\d+)\s*\.\.\s*(?P<last>-?\d+)\s*")
LONGEST_ID = 20  # characters of a 64-bit integer, with or without a sign
_WHOLE = re.compile(r"-?\d+")
_HEX = re.compile(r"0x(?:[0-9a-fA-F]{2})*")
_DIGITS = re.compile(r"(?:[0-9a-f]{2})+")
_UNITS = timedelta(days=1), timedelta(milliseconds=1), timedelta(microseconds=1)
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def select_rows(
    table: Table,
    keys: Sequence[str],
    ranges: Sequence[str],
    most: int,
    columns: Sequence[Column] = (),
) -> RowSelection:
    """Parse *keys* and *ranges* (``17..29``, both ends included) from the command line.

    *columns* are the table's, as far as they are known. They are used to reject values of another
    type.

    Raises:
        ConfigError: a key is not a key of this table, no row is named, or too many are.
    """
    if ranges and table.key and table.no_ranges:
        raise ConfigError(
            f"table {table.name} has no ranges of ids: {table.no_ranges}; name the keys (--keys)"
        )
    if not keys and not ranges:
        raise ConfigError("no rows are named: give --keys, --ranges or --incident")
    found = [_key(table, text) for text in dict.fromkeys(keys)]
    for one in found:
        _require_values(table, one, columns)
    spans = [_range(text) for text in ranges]
    if len(found) > most:
        raise ConfigError(f"{len(found)} keys are named, {most} rows may be read (--most)")
    if table.id_column is not None and len(found) <= FEW:
        ids = [one for one in found if _WHOLE.fullmatch(_value(one))]
        spans += [SelectedRange(int(_value(one)), int(_value(one)), one.shard) for one in ids]
        found = [one for one in found if one not in ids]
    return RowSelection(tuple(found), _merged(spans), most=most)


def select_failed_rows(
    table: Table, fails: Iterable[Verdict], most: int, columns: Sequence[Column] = ()
) -> RowSelection:
    """Return the rows that *fails* name, which may not be all wrong rows.

    *columns* are the source's, as far as they are known. They convert keys of the check `values`
    from their readable form.

    Raises:
        ConfigError: *fails* name no rows.
    """
    keys, ranges = list[SelectedKey](), list[SelectedRange]()
    for fail in fails:
        for text in fail.ruling.keys if fail.check in NAMING else ():
            if fail.check == "offset_keys":
                keys.append(_key(table, text[text.index(" [") + 1 :]))
            elif fail.check == "values" and text.startswith("["):
                keys.append(_compared_key(table, text, columns))
            else:
                ranges.append(_span(text, fail))
    if not keys and not ranges:
        msg = f"no check names rows of {table.name} that are wrong; name them (--keys, --ranges)"
        raise ConfigError(f"{msg}, or run `sluice bootstrap {quote(table.name)} --reason ...`")
    return RowSelection(tuple(dict.fromkeys(keys)), _merged(ranges), most=most)


def parse_row_key(table: Table, text: str, columns: Sequence[Column] = ()) -> SelectedKey:
    """Parse one key: a value, ``a=1,b=x``, a JSON array or a JSON object.

    *columns* are the source's, as far as they are known. Bytes may be written as ``0x00ff``, and
    16 bytes as a UUID.

    Raises:
        ConfigError: *text* is not a key of the table.
    """
    if not table.key:
        raise ConfigError(f"table {table.name} has no key; name one under `key:` of its rule")
    known = {column.name: column for column in columns}
    found = _key(table, _as_array(table, text.strip()))
    values = zip(table.key, json.loads(found.values), strict=True)
    spelled = [_spelled(known.get(name), value) for name, value in values]
    made = SelectedKey(canonical_key(spelled, "", "", unique=True), found.shard)
    _require_values(table, made, columns)
    return made


def _as_array(table: Table, text: str) -> str:
    """Return *text* as a JSON array if it names the key's columns, else unchanged."""
    if text.startswith("{"):
        try:
            named = json.loads(text)
        except (ValueError, RecursionError) as error:
            msg = f"{text} is no key of {table.name}: it is no JSON object: {error}"
            raise ConfigError(msg) from error
    else:
        names = "|".join(map(re.escape, table.key))
        parts = [part.partition("=") for part in re.split(rf",\s*(?=(?:{names})=)", text)]
        named = {name: value for name, _, value in parts}
    if set(named) == set(table.key):
        return json.dumps([named[name] for name in table.key], ensure_ascii=False)
    if text.startswith("{"):
        raise ConfigError(
            f"{text} is not a key of {table.name}, whose key is {', '.join(table.key)}"
        )
    return text


def _spelled(column: Column | None, text: str) -> str:
    """Convert *text* from the form that people write to that of the change log."""
    if column is None:
        return text
    if str(column) == "UUID":
        return text.lower()
    hexadecimal = _HEX.fullmatch(text) or _UUID.fullmatch(text)
    if column.dialect.lake_type(column) != "binary" or hexadecimal is None:
        return text
    data = bytes.fromhex(text.removeprefix("0x").replace("-", ""))
    made = base64.b64encode(data).decode()
    typed = column.dialect.values(column, pa.array([made], pa.string())).to_pylist()
    return made if typed == [data] else text


def _compared_key(table: Table, text: str, columns: Sequence[Column]) -> SelectedKey:
    """Convert a key from the readable form of `values` to that of the change log."""
    known, found = {column.name: column for column in columns}, _key(table, text)
    values = [
        _wire_text(known.get(name), value)
        for name, value in zip(table.key, json.loads(found.values), strict=True)
    ]
    return SelectedKey(canonical_key(values, "", "", unique=True), found.shard)


def _wire_text(column: Column | None, text: str) -> str:
    """Convert a value from its readable form to that of the change log; *text* if not known."""
    if column is None:
        return text
    for wire in _possible_wire_texts(text):
        (typed,) = column.dialect.values(column, pa.array([wire], pa.string())).to_pylist()
        (name,) = name_key([typed])
        if name in (text, f"{text}+00:00"):  # a source may leave out that its times are UTC
            return wire
    return text


def _possible_wire_texts(text: str) -> Iterator[str]:
    """Yield possible forms: bytes as base64, dates as days, times as ms, us or ISO 8601."""
    yield text
    if _DIGITS.fullmatch(text):
        yield base64.b64encode(bytes.fromhex(text)).decode()
    with suppress(ValueError):
        moment = datetime.fromisoformat(text)
        past = moment.replace(tzinfo=moment.tzinfo or UTC) - datetime(1970, 1, 1, tzinfo=UTC)
        yield from (str(past // unit) for unit in _UNITS)
        yield f"{moment.replace(tzinfo=None).isoformat()}Z"


def _key(table: Table, text: str) -> SelectedKey:
    problem = f"{text} is not a key of {table.name}"
    if not text.lstrip().startswith("["):
        if len(table.key) != 1:
            names = ", ".join(table.key) or "no columns"
            raise ConfigError(
                f"{problem}, whose key is {names}; write a JSON array of their values"
            )
        return SelectedKey(canonical_key([text], "", "", unique=True))
    try:
        values = json.loads(text)
        json.dumps(values, ensure_ascii=False).encode()  # no half of a surrogate pair
    except (ValueError, RecursionError) as error:
        raise ConfigError(
            f'{problem}: it is not a JSON array ({error}); write one such as [1, "a"]'
        ) from error
    texts = [_text(value) for value in values]
    shard, more = "", len(texts) - len(table.key)
    if more == 2 and Shard(str(texts[0]), str(texts[1])) in table.shards:
        shard, texts = str(Shard(str(texts[0]), str(texts[1]))), texts[2:]
    if len(texts) != len(table.key) or None in texts:
        names = ", ".join(table.key) or "no columns"
        raise ConfigError(f"{problem}, whose key is {names}; write one value for each, and no NULL")
    return SelectedKey(canonical_key(texts, "", "", unique=True), shard)


def _require_values(table: Table, key: SelectedKey, columns: Sequence[Column]) -> None:
    """Reject a *key* with a value that is not of its column's type.

    Raises:
        ConfigError: a value does not fit; names the value, the column and its type.
    """
    known = {column.name: column for column in columns}
    for name, text in zip(table.key, json.loads(key.values), strict=True):
        column = known.get(name)
        if column is None or table.restates(name) or column.dialect.reads(column, text):
            continue
        raise ConfigError(
            f"{text!r} is no value of key column {name} of table {table.name}, which is"
            f" {column}; write it as the change log has it"
        )


def require_condition(table: Table, condition: Condition, columns: Sequence[Column]) -> None:
    """Reject a *condition* on an unknown column, or on a value that its column cannot have.

    Raises:
        ConfigError: names the column and its type, or the known columns.
    """
    known = {column.name: column for column in columns}
    if not known:
        return
    require_known(condition, table.name, known)
    for name, value in list_values(condition):
        column = known[name]
        if isinstance(value, str) and not _fits(column, value):
            raise ConfigError(
                f"{value!r} is not a value of column {name} of table {table.name}, which is"
                f" {column}; write it as the source shows it"
            )


def _fits(column: Column, text: str) -> bool:
    """Whether a source may read *text* as a value that *column* can be compared with."""
    lake_type, whole = column.dialect.lake_type(column), column.dialect.whole(column)
    try:
        if whole or lake_type in ("float", "double") or lake_type.startswith("decimal"):
            return Decimal(text).is_finite() or not whole
        if str(column) == "UUID":
            return column.dialect.reads(column, text)
        if lake_type in ("date", "timestamp", "timestamp_ntz") and "infinity" not in text:
            return bool(datetime.fromisoformat(text.strip()))
    except (ValueError, InvalidOperation):
        return text.startswith("0000") and "-" in text  # MySQL's zero dates
    return True


def _text(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value)


def _value(key: SelectedKey) -> str:
    return str(json.loads(key.values)[0])


def _range(text: str) -> SelectedRange:
    found = _RANGE.fullmatch(text)
    if found is not None and max(map(len, found.groups())) <= LONGEST_ID:
        first, last = int(found["first"]), int(found["last"])
        if first <= last:
            return SelectedRange(first, last)
        raise ConfigError(f"range {text!r} ends before it begins; write {last}..{first}")
    raise ConfigError(f"range {text!r} is not two ids; write 17..29, which reads both ends")


def _span(text: str, fail: Verdict) -> SelectedRange:
    found = _SPAN.fullmatch(text)
    if found is None:
        raise ConfigError(f"{fail.check} of {fail.table} names {text!r}, which is no range of ids")
    first, last = int(found["first"]), int(found["last"] or found["first"])
    if fail.check == "max_id":  # it names only the highest id, and the size of the gap
        first -= max(abs(int(fail.value or 0)) - 1, 0)
    return SelectedRange(first, last, found["shard"])


def _merged(ranges: Iterable[SelectedRange]) -> tuple[SelectedRange, ...]:
    """Return *ranges* by shard, ascending, with touching ranges joined."""
    found = list[SelectedRange]()
    for one in sorted(ranges, key=lambda r: (r.shard, r.first, r.last)):
        last = found[-1] if found else None
        if last is not None and last.shard == one.shard and one.first <= last.last + 1:
            found[-1] = SelectedRange(last.first, max(last.last, one.last), one.shard)
        else:
            found.append(one)
    return tuple(found)
