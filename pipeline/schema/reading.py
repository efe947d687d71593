"""How is a schema change read?  The format tells the words, the source's dialect their sense.

Pure.
"""

from collections.abc import Callable
from dataclasses import dataclass

from pipeline.model import Order
from pipeline.schema.column import TableSchema
from pipeline.schema.dialect import Dialect
from pipeline.schema.history import SchemaChange
from pipeline.schema.schema_change import SchemaMessage, TableTold, Told


@dataclass(frozen=True, slots=True)
class SchemaReading:
    """One source's way; ``words`` raises FormatError for what is no schema change of the format."""

    words: Callable[[str], SchemaMessage]
    dialect: Dialect

    def read(self, payload: str, order: Order) -> tuple[Told, tuple[SchemaChange, ...]]:
        """Read a schema change as the change log keeps it; and a value for each of its tables.

        Raises:
            FormatError: it is not built as those of the format are.
        """
        said = self.words(payload)
        changes = tuple(self._change(table, said.text, order) for table in said.tables)
        tables = tuple(
            (table.shard, one.schema) for table, one in zip(said.tables, changes, strict=True)
        )
        return Told(order, said.text, said.database, tables, said.snapshot), changes

    def _change(self, table: TableTold, text: str, order: Order) -> SchemaChange:
        shard, schema = str(table.shard), self._schema(table, text, order)
        if schema is None:
            return SchemaChange("drop", shard, order, None, text)
        previous = self.dialect.renamed_from(text, table.shard)
        before = str(previous) if previous is not None else None
        return SchemaChange(table.kind, shard, order, schema, text, before)

    def _schema(self, table: TableTold, text: str, order: Order) -> TableSchema | None:
        if table.kind == "drop":
            return None
        columns = tuple(self.dialect.column(column, text) for column in table.columns)
        return TableSchema(str(table.shard), order, columns, table.key, text)
