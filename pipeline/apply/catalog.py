"""Which tables are there, of which shards, and with which columns?  From landed schema changes."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pipeline.errors import FormatError, HeldError
from pipeline.model import Order, Shard, Table
from pipeline.route import Router
from pipeline.schema.history import History, Incompatible, SchemaChange, TableSchema, merge, parse

_INTEGERS = ("TINYINT", "SMALLINT", "MEDIUMINT", "INT", "INTEGER", "BIGINT")


@dataclass(eq=False)
class Catalog:
    """Schema changes by source, in log order; later rows may be added at any time."""

    router: Router
    _changes: dict[str, list[SchemaChange]] = field(default_factory=dict)
    _histories: dict[str, History] = field(default_factory=dict)

    def add(self, rows: Iterable[tuple[str, Order, str]]) -> None:
        """Take (source, order, payload) of landed schema changes; skip what is quarantined."""
        for source, order, payload in rows:
            try:
                self.learn((source, change) for change in parse(payload, order))
            except FormatError:
                continue

    def learn(self, changes: Iterable[tuple[str, SchemaChange]]) -> None:
        """Take (source, change), in any order."""
        for source, change in changes:
            self._changes.setdefault(source, []).append(change)
            self._histories.pop(source, None)

    def history(self, source: str) -> History:
        """All schemas of a source's shards, by order."""
        if source not in self._histories:
            self._histories[source] = History(*self._changes.get(source, ()))
        return self._histories[source]

    def newest(self, source: str, shard: str) -> TableSchema | None:
        """The shard's newest landed schema; None if it was never seen, or dropped last."""
        return self.history(source).newest(shard)

    def at(self, name: str, order: Order) -> TableSchema | None:
        """Schema of ``source/shard`` in force at *order*."""
        source, _, shard = name.partition("/")
        return self.history(source).at(shard, order)

    def table(self, name: str, shards: Mapping[str, str | None]) -> Table:
        """The table *name* with its shards among *shards* (``source/shard`` -> table)."""
        own = tuple(sorted(Shard(*n.split("/", 1)) for n, table in shards.items() if table == name))
        rule = self.router.rule(own[0].name) if own else None
        schema = self.newest(own[0].source, own[0].name) if own else None
        key = (rule.key if rule and rule.key else schema.key) if schema else ()
        return Table(
            name=name,
            shards=own,
            key=key,
            id_column=_id_column(schema, key),
            unique_across_shards=bool(rule and rule.unique_across_shards),
            tier=rule.tier if rule else 1,
        )

    def schema(self, table: Table) -> TableSchema:
        """One schema for all shards of *table*, with the key that the table goes by.

        Raises:
            HeldError: no schema has landed yet, shards disagree, or there is no key.
        """
        found = [self.newest(shard.source, shard.name) for shard in table.shards]
        schemas = [schema for schema in found if schema is not None]
        if not schemas:
            raise HeldError("no_schema", f"no schema change of {table.name} has landed yet")
        merged = merge(schemas)
        if isinstance(merged, Incompatible):
            raise HeldError("shards_differ", f"{merged.why}; {merged.statement}")
        if not table.key:
            detail = (
                f"{table.name} declares no key; name a unique, not-null set: 'key:' of its rule"
            )
            raise HeldError("no_key", detail)
        return merged


def _id_column(schema: TableSchema | None, key: tuple[str, ...]) -> str | None:
    """The only key column, if it is an integer; both sides order these alike."""
    if schema is None or len(key) != 1:
        return None
    column = schema.column(key[0])
    kind = column.type.split()[0] if column is not None else ""
    return key[0] if kind in _INTEGERS else None
