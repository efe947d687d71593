"""Finds the mirror column of a source column, its standard, and the reverse.

A name is a table's, or a shard's with or without ``source/`` before it, or a name that the shard
had before a RENAME. A column may follow it. Columns have the source's names in the mirror. Pure.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pipeline.apply.catalog import Catalog, Folding
from pipeline.model import Shard
from pipeline.schema.history import SchemaChange
from pipeline.standards.table_standards import written_column

_STATEMENT = 300  # characters of a statement that are shown


@dataclass(frozen=True, slots=True)
class ColumnLink:
    """A column of a *shard*, and the column of *table*'s mirror that holds its values.

    ``type`` is the source's type, ``mirror_type`` the lake's. ``standard`` is the name of the
    standard that rewrites its values, empty without one; ``hides`` if it makes them unreadable.
    ``before`` are earlier names of the shard, the newest first.
    """

    shard: Shard
    column: str
    type: str
    table: str
    mirror_type: str
    standard: str = ""
    hides: bool = False
    before: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PreviousColumn:
    """A column that a *shard* of *table* had until ``statement``; empty if no log shows it."""

    shard: Shard
    column: str
    table: str
    statement: str

    def __str__(self) -> str:
        """Render for people."""
        by = " ".join(self.statement.split())[:_STATEMENT] or "a change that is in no log"
        return f"{self.shard} had a column {self.column}, until: {by}"


def find_links(catalog: Catalog, shards: Folding, asked: str) -> tuple[ColumnLink, ...]:
    """Links that *asked* names, by table, shard and column position; empty if it names nothing.

    *shards*: shard -> table, None for a shard that the rules ignore.
    """
    found = []
    for shard, table in sorted(shards.items(), key=_by_table):
        if table is None:
            continue
        formers = catalog.former_names(shard)
        names = (table, str(shard), shard.name, *formers)
        whole = asked in names
        if whole or any(asked.startswith(f"{one}.") for one in names):
            columns = {asked.removeprefix(f"{one}.") for one in names}
            every = _links(catalog, shard, table, formers)
            found += [link for link in every if whole or link.column in columns]
    return tuple(found)


def links_of_tables(
    catalog: Catalog, shards: Folding, tables: Collection[str]
) -> Mapping[str, tuple[ColumnLink, ...]]:
    """Links of each of *tables*, by shard and column position; *shards* as in `find_links`."""
    found: dict[str, list[ColumnLink]] = {name: [] for name in tables}
    for shard, table in sorted(shards.items(), key=_by_table):
        if table in found:
            found[table] += _links(catalog, shard, table, catalog.former_names(shard))
    return {table: tuple(own) for table, own in found.items()}


def columns_of_before(catalog: Catalog, shards: Folding, asked: str) -> tuple[PreviousColumn, ...]:
    """The column that *asked* names if a shard no longer has it, and the removing statement."""
    found, changes = [], dict[str, Mapping[str, Sequence[SchemaChange]]]()
    for shard, table in sorted(shards.items(), key=_by_table):
        names = (table, str(shard), shard.name)
        whole = next((one for one in names if one and asked.startswith(f"{one}.")), "")
        if not whole or table is None:
            continue
        column, there = asked.removeprefix(f"{whole}."), False
        if shard.source not in changes:
            changes[shard.source] = catalog.changes_of(shard.source)
        for change in changes[shard.source].get(shard.name, ()):
            has = change.schema is not None and change.schema.column(column) is not None
            if there and not has:
                found.append(PreviousColumn(shard, column, table, change.statement))
            there = has
    return tuple(found)


def _by_table(one: tuple[Shard, str | None]) -> tuple[str, str]:
    return one[1] or "", str(one[0])


def _links(
    catalog: Catalog, shard: Shard, table: str, formers: tuple[str, ...]
) -> Iterator[ColumnLink]:
    schema = catalog.newest(shard.source, shard.name)
    own = catalog.standards.of(table)
    for column in () if schema is None else schema.columns:
        standard = None if own is None else own.of(column.name)
        mirrored = written_column(column, standard)
        yield ColumnLink(
            shard=shard,
            column=column.name,
            type=str(column),
            table=table,
            mirror_type=mirrored.dialect.lake_type(mirrored),
            standard="" if own is None else own.name_of(column.name),
            hides=standard is not None and standard.hides,
            before=formers,
        )
