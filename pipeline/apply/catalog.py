"""Which tables are there, of which shards, and with which columns?  From landed schema changes.

Pure.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pipeline.apply.fills import Fill
from pipeline.errors import FormatError, HeldError
from pipeline.model import Order, Shard, ShardId, Table
from pipeline.route import Router
from pipeline.schema.births import Births, Step, births
from pipeline.schema.column import TableSchema
from pipeline.schema.dialect import Dialect
from pipeline.schema.effect import BaseNeeded, Drop, Empty, KnownTables, Replace
from pipeline.schema.evolution import Incompatible, merge
from pipeline.schema.history import History, SchemaChange
from pipeline.schema.reading import SchemaReading
from pipeline.schema.schema_change import Told


@dataclass(eq=False)
class Catalog:
    """Schema changes by source, in log order.

    Later ones may be added at any time, but not while somebody else reads: see :meth:`reading`.
    """

    router: Router
    readings: Mapping[str, SchemaReading] = field(default_factory=dict)
    _changes: dict[str, list[SchemaChange]] = field(default_factory=dict)
    _told: dict[str, list[Told]] = field(default_factory=dict)
    _standing: dict[str, Mapping[str, BaseNeeded]] = field(default_factory=dict)
    _histories: dict[str, History] = field(default_factory=dict)
    _births: dict[str, Births] = field(default_factory=dict)

    def add(self, rows: Iterable[tuple[str, Order, str]]) -> None:
        """Take (source, order, payload) of landed schema changes; skip what is quarantined.

        A source that is no longer configured tells nothing: nobody knows how to read it.
        """
        for source, order, payload in rows:
            reading = self.readings.get(source)
            if reading is None:
                continue
            try:
                statement = reading.told(payload, order)
                changes = reading.changes(payload, order)
            except FormatError:
                continue
            self._told.setdefault(source, []).append(statement)
            self._standing.pop(source, None)
            self.learn((source, change) for change in changes)

    def learn(self, changes: Iterable[tuple[str, SchemaChange]]) -> None:
        """Take (source, change), in any order, without what the statement does to rows."""
        for source, change in changes:
            self._changes.setdefault(source, []).append(change)
            self._histories.pop(source, None)
            self._births.pop(source, None)

    def reading(self, rows: Sequence[tuple[str, Order, str]]) -> "Catalog":
        """A catalog that has learnt *rows*, too; this one stays for whoever reads it."""
        if not rows:
            return self
        made = Catalog(
            self.router,
            self.readings,
            {name: [*own] for name, own in self._changes.items()},
            {name: [*own] for name, own in self._told.items()},
        )
        made.add(rows)
        return made

    def require_rows(self, table: Table, bases: Mapping[str, Order]) -> None:
        """Return only if no statement has changed rows of *table* in a way that no log shows.

        *bases*: ``source/shard`` -> order its newest base is complete as of.

        Raises:
            HeldError: such a statement is newer than the base; names it and the way out.
        """
        for shard in table.shards:
            hold = self._holds(shard.source).get(shard.name)
            base = bases.get(f"{shard.source}/{shard.name}")
            if hold is not None and (base is None or base < hold.order):
                raise HeldError(hold.reason, f"{shard.source}: {hold.detail}")

    def _holds(self, source: str) -> Mapping[str, BaseNeeded]:
        """The newest hold of each shard that nothing later has closed."""
        if source not in self._standing:
            statements = self._told.get(source, ())
            dialect = self.readings[source].dialect if statements else None
            self._standing[source] = _standing(statements, dialect) if dialect else {}
        return self._standing[source]

    def history(self, source: str) -> History:
        """All schemas of a source's shards, by order."""
        if source not in self._histories:
            self._histories[source] = History(*_believed(self._changes.get(source, ())))
        return self._histories[source]

    def newest(self, source: str, shard: str) -> TableSchema | None:
        """The shard's newest landed schema; None if it was never seen, or dropped last."""
        return self.history(source).newest(shard)

    def at(self, name: str, order: Order) -> TableSchema | None:
        """Schema of ``source/shard`` in force at *order*."""
        source, _, shard = name.partition("/")
        return self.history(source).at(shard, order)

    def newest_of(self, table: Table) -> dict[str, TableSchema]:
        """``source/shard`` -> its newest landed schema, of those shards that have one."""
        found = {f"{s.source}/{s.name}": self.newest(s.source, s.name) for s in table.shards}
        return {name: schema for name, schema in found.items() if schema is not None}

    def fills(self, name: str) -> tuple[Fill, ...]:
        """Defaults that older rows of ``source/shard`` have in columns that were added to it."""
        source, _, shard = name.partition("/")
        found = []
        for (own, column), order in self._born(source).items():
            schema = self.at(name, order) if str(own) == shard else None
            born = schema.column(column) if schema is not None else None
            value = born.dialect.default(born) if born is not None else None
            if value is not None and value.is_valid:
                found.append(Fill(column, Shard(source, shard), order, value))
        return tuple(found)

    def _born(self, source: str) -> Births:
        if source not in self._births:
            changes = sorted(
                self._changes.get(source, ()), key=lambda c: (c.order, c.kind != "drop")
            )
            self._births[source] = births(
                Step(
                    ShardId.parse(change.shard),
                    change.order,
                    change.schema,
                    ShardId.parse(change.previous) if change.previous else None,
                )
                for change in changes
            )
        return self._births[source]

    def table(self, name: str, shards: Mapping[str, str | None]) -> Table:
        """The table *name* with its shards among *shards* (``source/shard`` -> table)."""
        own = tuple(sorted(Shard(*n.split("/", 1)) for n, table in shards.items() if table == name))
        rule = self.router.rule(own[0].name) if own else None
        told = (self.newest(shard.source, shard.name) for shard in own)
        schema = next((one for one in told if one is not None), None)  # a shard may be dropped
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
            HeldError: no schema has landed yet, shards disagree, or there is no key that can be
                told from others.
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
        _refuse_two_spellings(table, merged)
        return merged


def _refuse_two_spellings(table: Table, schema: TableSchema) -> None:
    """A key is compared by its text before its type is known, and deletes are looked up by it."""
    for name in table.key:
        column = schema.column(name)
        if column is not None and not column.dialect.spelled_alike(column):
            detail = (
                f"key column {name} of {table.name} has a label with a comma, an escape or a blank "
                "at its end, which a snapshot and the log spell in two ways; name another unique, "
                "not-null set: 'key:' of its rule"
            )
            raise HeldError("key_kind", detail)


def _believed(changes: Iterable[SchemaChange]) -> list[SchemaChange]:
    """The changes in log order, without those that made nothing.

    Measured: ``CREATE TABLE IF NOT EXISTS t LIKE u`` is logged though t is there, and described
    with u's columns.
    """
    there: set[str] = set()
    found = []
    for change in sorted(changes, key=lambda one: (one.order, one.kind != "drop")):
        if change.kind == "create" and change.previous is None and change.shard in there:
            continue
        found.append(change)
        there.discard(change.previous or "")
        (there.discard if change.kind == "drop" else there.add)(change.shard)
    return found


def _standing(statements: Sequence[Told], dialect: Dialect) -> dict[str, BaseNeeded]:
    """Holds by shard, as of the end; rows that come from another shard are not followed yet."""
    ordered = sorted(statements, key=lambda one: one.order)
    found: dict[str, BaseNeeded] = {}
    for effect in dialect.effects(ordered, KnownTables(captured=lambda _: True)):
        name = str(effect.shard)
        if isinstance(effect, BaseNeeded):
            found[name] = effect
        elif isinstance(effect, Replace):
            found[name] = BaseNeeded(effect.shard, effect.order, "renamed", _moved(effect))
        elif isinstance(effect, Empty | Drop):
            found.pop(name, None)
    return found


def _moved(effect: Replace) -> str:
    again = f"take a new base of {effect.shard}: drop its mirror and snapshot it again"
    return f"{effect.shard} has had the rows of {effect.rows_of} since {effect.order}; {again}"


def _id_column(schema: TableSchema | None, key: tuple[str, ...]) -> str | None:
    """The only key column, if it is an integer; both sides order these alike."""
    if schema is None or len(key) != 1:
        return None
    column = schema.column(key[0])
    return key[0] if column is not None and column.dialect.whole(column) else None
