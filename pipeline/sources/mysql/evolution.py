"""May a mirror follow its source's new columns by itself?  Only where no old row changes meaning.

Compatible: a nullable or constant-default column added, a type widened.  Everything else stands
until a person has decided; the answer names the cause and the statement that solves it.  Pure.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from pipeline.model import ShardId
from pipeline.schema.model import Compatible, Incompatible, MergeRules, TableSchema
from pipeline.sources.mysql.column import MySqlColumn as Column
from pipeline.sources.mysql.column import columns
from pipeline.sources.mysql.constants import constant
from pipeline.sources.mysql.typemap import lake_type

INTEGERS = ("TINYINT", "SMALLINT", "MEDIUMINT", "INT", "BIGINT")
FAMILIES = (
    ("TINYTEXT", "TEXT", "MEDIUMTEXT", "LONGTEXT"),
    ("TINYBLOB", "BLOB", "MEDIUMBLOB", "LONGBLOB"),
)
LENGTHS = ("CHAR", "VARCHAR", "VARBINARY")  # BINARY rewrites rows when it grows: it pads them


def compare(old: TableSchema, new: TableSchema) -> Compatible | Incompatible:
    """Say what changed from *old* to *new*; the first obstacle if there is one."""
    here = {column.name: column for column in columns(old)}
    table, names = _quoted(new.shard), {column.name for column in new.columns}
    again = f"or take a new base of {new.shard}: drop its mirror and snapshot it again"
    gone = [column for column in columns(old) if column.name not in names]
    added = tuple(column for column in columns(new) if column.name not in here)
    if gone:
        return _lost(gone[0], added, table, again)
    if old.key != new.key:
        why = f"the key changed from {_list(old.key)} to {_list(new.key)}"
        back = f"ALTER TABLE {table} DROP PRIMARY KEY, ADD PRIMARY KEY ({_list(old.key)})"
        return Incompatible(why, f"undo it: {back}; {again}")
    pairs = [(here[after.name], after) for after in columns(new) if after.name in here]
    for before, after in pairs:
        if (why_not := _obstacle(before, after)) is not None:
            back = f"{_retyped(new.shard, before)}{_null(before)}"
            return Incompatible(why_not, f"undo it: {back}; {again}")
    for column in added:
        if (why_not := _unknown_fill(column)) is not None:
            back = f"ALTER TABLE {table} DROP COLUMN `{column.name}`"
            return Incompatible(why_not, f"undo it: {back}; {again}", filled=True)
    return Compatible(added)


def merge(schemas: Sequence[TableSchema]) -> TableSchema | Incompatible:
    """One schema that rows of every shard fit into; see :class:`MergeRules`."""
    return _MERGING.merge(schemas)


def wider(old: Column, new: Column) -> bool:
    """Whether every value of *old* means the same in *new*; true for equal types too."""
    grows = _RULES.get(old.kind)
    return old.shape == new.shape or (grows is not None and grows(old, new))


def _integer(old: Column, new: Column) -> bool:
    larger = new.kind in INTEGERS and INTEGERS.index(new.kind) > INTEGERS.index(old.kind)
    return larger and (old.unsigned or not new.unsigned)


def _family(old: Column, new: Column) -> bool:
    family = next(family for family in FAMILIES if old.kind in family)
    return new.kind in family and family.index(new.kind) > family.index(old.kind)


def _decimal(old: Column, new: Column) -> bool:
    """More digits before the point; the lake's type must stay a decimal, or stay text."""
    alike = new.kind == old.kind and new.fraction == old.fraction
    same_type = (lake_type(old) == "string") == (lake_type(new) == "string")
    return alike and same_type and new.digits >= old.digits and _may_lose_sign(old, new)


def _length(old: Column, new: Column) -> bool:
    return new.kind == old.kind and new.width > old.width


def _labels(old: Column, new: Column) -> bool:
    return new.kind == old.kind and new.values[: len(old.values)] == old.values


def _float(old: Column, new: Column) -> bool:
    return new.kind == old.kind and _may_lose_sign(old, new)


def _may_lose_sign(old: Column, new: Column) -> bool:
    return old.unsigned or not new.unsigned


_RULES: dict[str, Callable[[Column, Column], bool]] = {
    **dict.fromkeys(INTEGERS, _integer),
    **{kind: _family for family in FAMILIES for kind in family},
    **dict.fromkeys(LENGTHS, _length),
    **dict.fromkeys(("ENUM", "SET"), _labels),
    **dict.fromkeys(("FLOAT", "DOUBLE"), _float),
    "DECIMAL": _decimal,
}


def _lost(gone: Column, added: Sequence[Column], table: str, again: str) -> Incompatible:
    twin = next((c for c in added if c.position == gone.position and c.shape == gone.shape), None)
    if twin is not None:
        back = f"ALTER TABLE {table} RENAME COLUMN `{twin.name}` TO `{gone.name}`"
        return Incompatible(f"column {gone.name} is now {twin.name}", f"undo it: {back}; {again}")
    return Incompatible(f"column {gone.name} is gone", again.removeprefix("or "))


def _obstacle(old: Column, new: Column) -> str | None:
    if not wider(old, new):
        return f"column {old.name} changed from {old} to {new}"
    if old.nullable and not new.nullable:
        return f"column {old.name} is NOT NULL now"
    return None


def _unknown_fill(column: Column) -> str | None:
    """Why nobody knows what old rows hold in an added column; None if it is known."""
    try:
        constant(column)
    except ValueError as error:
        return f"column {column.name} was added and old rows cannot be filled: {error}"
    return None


def _quoted(shard: str) -> str:
    own = ShardId.read(shard)
    return f"`{own.database}`.`{own.relation}`"


def _list(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "none"


def _null(column: Column) -> str:
    return "" if column.nullable else " NOT NULL"


def _loosened(column: Column) -> Column:
    return replace(column, nullable=True)


def _retyped(shard: str, column: Column) -> str:
    return f"ALTER TABLE {_quoted(shard)} MODIFY `{column.name}` {column}"


_MERGING = MergeRules(columns, wider, _unknown_fill, _loosened, _list, _retyped)
