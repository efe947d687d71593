"""Traces columns between sources and mirrors, by the landed schema events."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from threading import Lock

from pipeline.apply.catalog import Catalog
from pipeline.apply.lineage import ColumnLink, columns_of_before, find_links, links_of_tables
from pipeline.changelog.table import app
from pipeline.errors import UnknownNameError
from pipeline.schema.history import SchemaReader
from pipeline.settings import Router, TableRule
from pipeline.standards.table_standards import Standards
from pipeline.tables.lake import Lake

_FEW = 3  # statements that are shown


@dataclass(eq=False)
class Lineage:
    """Learns schema changes as they are asked about; each is read once."""

    lake: Lake
    readings: Mapping[str, SchemaReader]
    rules: tuple[TableRule, ...]
    standards: Standards
    _catalog: Catalog | None = None
    _until: int = -1
    _turn: Lock = field(default_factory=Lock)

    def of(self, name: str) -> tuple[ColumnLink, ...]:
        """What `links` finds of *name*, as of what has landed.

        Raises:
            UnknownNameError: nothing that has landed has the name.
            UnreachableError: the lake did not answer.
        """
        mark = self.lake.checkpoint()
        found = () if mark is None else find_links(self._learnt(), mark.shards, name)
        if not found:
            gone = () if mark is None else columns_of_before(self._learnt(), mark.shards, name)
            if gone:
                msg = "; ".join(map(str, gone[-_FEW:]))
                raise UnknownNameError(
                    f"{msg}; ask for the column by the name that it has now, if any"
                )
            msg = f"no table, shard or column {name!r} has landed"
            raise UnknownNameError(f"{msg}; write database.table or database.table.column")
        return found

    def of_tables(self, names: Collection[str]) -> Mapping[str, tuple[ColumnLink, ...]]:
        """By mirror, the columns that its rows come from, as of what has landed; one look for all.

        Raises:
            UnreachableError: the lake did not answer.
        """
        mark = self.lake.checkpoint()
        return {} if mark is None else links_of_tables(self._learnt(), mark.shards, names)

    def _learnt(self) -> Catalog:
        with self._turn:
            log = self.lake.changes()
            last = log.pinned.transaction(app(log.lane))
            last = -1 if last is None else last
            if self._catalog is None or last < self._until:  # or another log was put there
                self._catalog = Catalog(Router(self.rules), self.readings, self.standards)
                self._until = -1
            if last > self._until:
                self._catalog = self._catalog.reading(log.schema_changes(self._until))
                self._until = last
            return self._catalog
