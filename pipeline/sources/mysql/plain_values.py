"""How does a sender of plain values write what a query returned, in columns that its rows told?

Whole numbers, floating ones, texts and bytes have one way.  How a decimal, a day or a label is
written nobody knows but the sender, so a table with such a column is refused, by its name.  A
column of JSON that the table has not is what the sender put beside its rows: it is null in rows
that were read.  Without one they are another collector's, whose spellings are not these.  Pure.
"""

from collections.abc import Mapping, Sequence

import pyarrow as pa

from pipeline.errors import ConfigError
from pipeline.sources.mysql.column import MySqlColumn as Column
from pipeline.sources.mysql.typemap import BYTES, TEXTS
from pipeline.sources.mysql.wire_text import wire_texts
from pipeline.sources.wire_texts import WireTexts, rows_of

WHOLE = ("TINYINT", "SMALLINT", "MEDIUMINT", "INT", "BIGINT")
ALIKE: Mapping[str, frozenset[str]] = {  # as rows tell it -> as the table has it
    "TINYINT": frozenset({"TINYINT"}),
    "INT": frozenset(WHOLE[:-1]),
    "BIGINT": frozenset(WHOLE),
    "DOUBLE": frozenset({"DOUBLE"}),
    "LONGTEXT": frozenset(TEXTS),
    "LONGBLOB": frozenset({*BYTES} - {"BINARY"}),  # its zeros at the end are not in the log
}
BESIDE = "JSON"
OTHERS = "its rows would be written otherwise than its collector writes them"


def plain_rows(
    shard: str, told: Sequence[Column], there: Sequence[Column], values: Sequence[pa.Array]
) -> pa.StringArray:
    """Rows as events of *told* columns hold them; *values* are those of the columns *there* are.

    Raises:
        ConfigError: nobody knows how the sender writes one of them.
    """
    if not any(one.kind == BESIDE and one.name not in {c.name for c in there} for one in told):
        raise ConfigError(f"{shard}: {OTHERS}")
    own = {one.name: (one, raw) for one, raw in zip(there, values, strict=True)}
    count = len(values[0]) if values else 0
    written = [_written(shard, one, own.get(one.name), count) for one in told]
    return rows_of([one.name for one in told], written)


def _written(
    shard: str, told: Column, found: tuple[Column, pa.Array] | None, count: int
) -> WireTexts:
    if found is None and told.kind == BESIDE:
        return WireTexts(pa.nulls(count, pa.string()), quoted=False)
    if found is None:
        raise ConfigError(f"{shard} has no column {told.name}, which its events have")
    column, raw = found
    wide = column.unsigned and column.kind == "BIGINT"
    if wide or column.kind not in ALIKE.get(told.kind, ()):
        pair = f"{column.type} in {shard}, and {told.kind} in its events"
        msg = f"column {told.name} is {pair}: how its sender writes that is not known"
        raise ConfigError(f"{msg}, so the table is not read again")
    return wire_texts(column, raw)
