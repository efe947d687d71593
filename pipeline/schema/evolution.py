"""May a mirror follow its source's new columns by itself?  Its dialect says, or names the obstacle.

Compatible: no old row changes its meaning.  Everything else stands until a person has decided; the
answer names the cause and the statement that solves it.  Pure.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.schema.column import Column, TableSchema


@dataclass(frozen=True, slots=True)
class Compatible:
    """Columns the mirror gets; may be empty."""

    added: tuple[Column, ...] = ()


@dataclass(frozen=True, slots=True)
class Incompatible:
    """Why the mirror cannot follow, and what a person can do about it.

    ``filled`` by a base that was read since: only values that old rows lack stand against it.
    """

    why: str
    statement: str
    filled: bool = False


def compare(old: TableSchema, new: TableSchema) -> Compatible | Incompatible:
    """Say what changed from *old* to *new*, of one shard; the first obstacle if there is one."""
    return new.columns[0].dialect.compare(old, new)


def merge(schemas: Sequence[TableSchema]) -> TableSchema | Incompatible:
    """One schema that rows of every shard fit into; shards may be at different steps.

    The shard and order are those of the first.
    """
    kinds = {column.dialect for schema in schemas for column in schema.columns[:1]}
    if len(kinds) > 1:
        shards = " and ".join(sorted(schema.shard for schema in schemas))
        why = f"{shards} are described by sources of different kinds"
        return Incompatible(why, "fold only shards of one kind of source into a table")
    return schemas[0].columns[0].dialect.merge(schemas)
