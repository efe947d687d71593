"""How do whole batches get the values that their tables' standards say?

Rows of tables without standards are passed on as they are, at no cost for each.  A row for one of
whose values nothing stands becomes an error of its own, as one that cannot be decoded is: its table
is held, the message stays where it is, and no other row waits.  Pure.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.errors import ConfigError, FormatError
from pipeline.formats.format import DECODED, SENDER_SAYS
from pipeline.model import Op
from pipeline.sources.row_reader import ROWS
from pipeline.standards.table_standards import Standards, TableStandards

_ROWS = frozenset({Op.CREATE, Op.UPDATE, Op.DELETE, Op.READ})
_WRITTEN = ("op", "key_values", "before", "after", "changed", "left_out", "error", "raw")
WITHHELD = "its bytes are not kept, for the table has standards"


def standardised(decoded: pa.RecordBatch, tables: pa.Array, standards: Standards) -> pa.RecordBatch:
    """``DECODED`` as it may be written to the change log.

    In: ``DECODED``, and the table of each row, null for none.  Out: ``DECODED``, as many rows, in
    their order.
    """
    if not standards.rules:
        return decoded
    few = tables.dictionary_encode()
    own = [standards.of(name) for name in few.dictionary.to_pylist()]
    named = pa.array([one is not None for one in own], pa.bool_()).take(few.indices)
    mine = pc.fill_null(named, False)
    if standards.hides:  # of what nobody can read no one knows whose it is
        unknown = pc.and_(tables.is_null(), pc.equal(decoded["op"], str(Op.ERROR)))
        mine = pc.or_(mine, pc.fill_null(unknown, False))
    places = np.flatnonzero(mine.to_numpy(zero_copy_only=False))
    if not len(places):
        return decoded
    rows = decoded.select(list(_WRITTEN)).take(pa.array(places)).to_pylist()
    which = few.indices.take(pa.array(places)).to_pylist()
    made = [
        _written(row, None if at is None else own[at]) for row, at in zip(rows, which, strict=True)
    ]
    return _replaced(decoded, mine, made)


def rows_again(rows: pa.RecordBatch, key: tuple[str, ...], own: TableStandards) -> pa.RecordBatch:
    """``ROWS`` that were read again, with keys of the columns *key*, as they may be written.

    Raises:
        FormatError: nothing stands for a value of one; says of which column.
        ConfigError: the table has another key than the config says.
    """
    if key != own.key:
        told = f"its key is ({', '.join(key)}), and `standards` says ({', '.join(own.key)})"
        raise ConfigError(f"{told}; correct it there, and restart the service")
    texts = [own.key_values(one) for one in rows["key_values"].to_pylist()]
    sent = rows["after"].to_pylist()
    for one in sent:
        own.require_columns([one])
    after = [own.row(one) for one in sent]
    return pa.RecordBatch.from_arrays(
        [pa.array(texts, pa.string()), pa.array(after, pa.string())], schema=ROWS
    )


def _written(row: Mapping[str, Any], own: TableStandards | None) -> Mapping[str, Any]:
    if row["op"] == Op.ERROR:
        return row if own is not None and not own.hides else _withheld(row, str(row["error"]))
    if own is None or row["op"] not in {*_ROWS, Op.TOMBSTONE}:
        return row  # it has no value of a row
    try:
        return _answered(row, own)
    except FormatError as error:
        return _withheld(row, f"no standard value: {error}")


def _answered(row: Mapping[str, Any], own: TableStandards) -> Mapping[str, Any]:
    key, before, after = row["key_values"], row["before"], row["after"]
    if key is not None and row["op"] in _ROWS:
        own.require_key(key, (before if row["op"] == Op.DELETE else after) or "")
    images = [one for one in (before, after) if one is not None]
    own.require_columns(images, beside=row["left_out"] or ())
    return {
        **row,
        "key_values": None if key is None else own.key_values(key),
        "before": None if before is None else own.row(before),
        "after": None if after is None else own.row(after),
    }


def _withheld(row: Mapping[str, Any], why: str) -> Mapping[str, Any]:
    nothing = dict.fromkeys(("key_values", "before", "after", "changed", "left_out", "raw"))
    if why.startswith(SENDER_SAYS):
        why = SENDER_SAYS.rstrip(": ")
    return {**row, **nothing, "op": str(Op.ERROR), "error": f"{why}; {WITHHELD}"}


def _replaced(
    decoded: pa.RecordBatch, mine: pa.Array, made: list[Mapping[str, Any]]
) -> pa.RecordBatch:
    columns = {}
    for name in _WRITTEN:
        kind = DECODED.field(name).type
        new = pa.array([row[name] for row in made], kind)
        columns[name] = _merged(decoded[name], mine, new)
    arrays = [columns.get(name, decoded[name]) for name in DECODED.names]
    return pa.RecordBatch.from_arrays(arrays, schema=DECODED)


def _merged(old: pa.Array, mine: pa.Array, new: pa.Array) -> pa.Array:
    """*old* with the values of *new*, one after the other, where *mine* is true."""
    here = mine.to_numpy(zero_copy_only=False)
    places = np.arange(len(old))
    places[here] = len(old) + np.arange(len(new))
    return pa.concat_arrays([old, new]).take(pa.array(places))
