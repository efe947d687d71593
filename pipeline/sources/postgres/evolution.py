"""May a mirror follow its source's new columns by itself?  Only where no old row changes meaning.

Compatible: a column added that old rows are without, a type widened.  A default is not known to
be what old rows got: it may have been set later, so such a column stands until a person decided.
Cannot be seen: a computed default of a column that may be NULL, which rows do not tell; the
catalogue does (``SourceDescription.filled``), and until a new base the table is not READY.  Pure.
"""

from collections.abc import Sequence
from dataclasses import replace

from pipeline.model import ShardId
from pipeline.schema.model import Compatible, Incompatible, MergeRules, TableSchema
from pipeline.sources.postgres.column import PostgresColumn as Column
from pipeline.sources.postgres.column import columns
from pipeline.sources.postgres.typemap import is_decimal

INTEGERS = ("INT2", "INT4", "INT8")


def compare(old: TableSchema, new: TableSchema) -> Compatible | Incompatible:
    """Say what changed from *old* to *new*; the first obstacle if there is one."""
    here = {column.name: column for column in columns(old)}
    names = {column.name for column in new.columns}
    again = f"take a new base of {new.shard}, and rebuild its mirror"
    added = tuple(column for column in columns(new) if column.name not in here)
    gone = next((column for column in columns(old) if column.name not in names), None)
    if gone is not None:
        return Incompatible(_lost(gone, added), again)
    if old.key != new.key:
        why = f"the key changed from {_list(old.key)} to {_list(new.key)}"
        return Incompatible(why, f"give it the key ({_list(old.key)}) again, or {again}")
    for after in columns(new):
        before = here.get(after.name)
        if before is not None and not wider(before, after):
            why = f"column {after.name} changed from {before} to {after}"
            return Incompatible(why, f"undo it: {_retyped(new.shard, before)}; or {again}")
        if before is None and (why_not := _unknown_fill(after)) is not None:
            return Incompatible(why_not, again)
    return Compatible(added)


def merge(schemas: Sequence[TableSchema]) -> TableSchema | Incompatible:
    """One schema that rows of every shard fit into; see :class:`MergeRules`."""
    return _MERGING.merge(schemas)


def wider(old: Column, new: Column) -> bool:
    """Whether every value of *old* means the same in *new*; true for equal types too."""
    if old.shape == new.shape:
        return True
    if old.kind in INTEGERS and new.kind in INTEGERS:
        return INTEGERS.index(new.kind) > INTEGERS.index(old.kind)
    if old.kind in ("VARCHAR", "TEXT") and new.kind in ("VARCHAR", "TEXT"):
        return new.length is None or (old.length is not None and new.length >= old.length)
    if old.kind == new.kind == "NUMERIC" and is_decimal(old) and is_decimal(new):
        return old.fraction == new.fraction and (new.digits or 0) >= (old.digits or 0)
    return False


def _lost(gone: Column, added: Sequence[Column]) -> str:
    twin = next((c for c in added if c.position == gone.position and c.shape == gone.shape), None)
    if twin is not None:
        return f"column {gone.name} is gone, and {twin.name} stands in its place"
    return f"column {gone.name} is gone"


def _unknown_fill(column: Column) -> str | None:
    """Why nobody knows what old rows hold in an added column; None if it is known."""
    if column.nullable and not column.has_default:
        return None
    held = "has a default" if column.has_default else "may not be NULL"
    return f"column {column.name} was added and {held}: rows do not tell what the older ones hold"


def _quoted(shard: str) -> str:
    own = ShardId.read(shard)
    return f'"{own.database}"."{own.relation}"'


def _list(names: Sequence[str]) -> str:
    return ", ".join(f'"{name}"' for name in names) or "none"


def _loosened(column: Column) -> Column:
    return replace(column, nullable=True)


def _retyped(shard: str, column: Column) -> str:
    return f'ALTER TABLE {_quoted(shard)} ALTER COLUMN "{column.name}" TYPE {column}'


_MERGING = MergeRules(columns, wider, _unknown_fill, _loosened, _list, _retyped)
