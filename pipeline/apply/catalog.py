"""Derives tables, their shards and their columns from landed schema changes.

Schema changes may be added in any order, but not while another thread reads the catalog; use
`reading` for a copy. A source that is no longer configured adds nothing, because nothing can
read its statements.

A table is held if its standards do not fit its columns: a standard names no column, may give
two rows one key, or gets values that the source spells in two ways.

Measured: `CREATE TABLE IF NOT EXISTS t LIKE u` is logged although t exists, with the columns of
u. Such a statement is ignored.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pipeline.apply.decide import Fill, Floors
from pipeline.apply.renames import PreviousName, TableRename
from pipeline.checkpoint import Checkpoint
from pipeline.errors import FormatError, HeldError
from pipeline.model import Order, Shard, ShardId, Table
from pipeline.schema.history import (
    EMPTIED,
    AddedColumns,
    Dropped,
    History,
    MovedRows,
    PendingEffect,
    PendingStatements,
    SchemaChange,
    SchemaReader,
    Step,
    added_columns,
    in_log_order,
)
from pipeline.schema.model import (
    BaseNeeded,
    Column,
    Incompatible,
    SchemaEvent,
    TableSchema,
    merge_schemas,
)
from pipeline.settings import Router
from pipeline.standards.table_standards import (
    NO_STANDARDS,
    Standards,
    TableStandards,
    default_of,
    written_column,
)


def refuse_odd(own: TableStandards | None, table: Table, schema: TableSchema) -> None:
    """Refuse standards that may merge two keys, give one value two results, or name no column.

    Raises:
        HeldError: ``standards``, with the fix.
    """
    if own is None:
        return
    there = {column.name.casefold() for column in schema.columns}
    if lacking := sorted(name for name in own.expected if name.casefold() not in there):
        detail = f"{table.name} has no column {lacking[0]}, which `standards` names"
        raise HeldError("standards", f"{detail}; correct its name under `standards`, or remove it")
    for name in table.key:
        standard = own.of(name)
        if standard is not None and not standard.distinct:
            detail = f"the standard of key column {name} may give two rows one key"
            advice = "remove it from `standards`, or give it one that keeps values distinct"
            raise HeldError("standards", f"{table.name}: {detail}; {advice}")
    for column in schema.columns:
        standard = own.of(column.name)
        alike = column.dialect.spelled_alike(column)
        if standard is not None and standard.distinct and not alike:
            detail = f"a value of column {column.name} ({column}) may arrive in two spellings, and"
            advice = "mask it, or remove it from `standards` and do not send it"
            why = f"{table.name}: {detail} its standard makes two results of them"
            raise HeldError("standards", f"{why}; {advice}")


Folding = Mapping[Shard, str | None]
"""Shard -> table, None if it is ignored."""
Renames = Mapping[str, Sequence[tuple[int, str]]]
"""Shard -> its renames, newest first: number of newer renames of the source, name before."""


@dataclass(eq=False)
class Catalog:
    """Schema changes by source, in log order.

    Later ones may be added at any time, but not while another thread reads: see :meth:`reading`.
    """

    router: Router
    readings: Mapping[str, SchemaReader] = field(default_factory=dict)
    standards: Standards = NO_STANDARDS
    _changes: dict[str, list[SchemaChange]] = field(default_factory=dict)
    _events: dict[str, dict[SchemaEvent, None]] = field(default_factory=dict)  # in order of arrival
    _pending: dict[str, PendingStatements] = field(default_factory=dict)
    _asked: dict[str, Mapping[ShardId, PendingEffect]] = field(default_factory=dict)
    # histories, each with the number of changes it covers; later changes are added on request
    _histories: dict[str, tuple[int, History]] = field(default_factory=dict)
    _births: dict[str, tuple[int, AddedColumns]] = field(default_factory=dict)
    _renames: dict[str, Renames] = field(default_factory=dict)
    _folded: tuple[Folding, Mapping[str | None, tuple[Shard, ...]]] = ({}, {})

    def add(self, rows: Iterable[tuple[str, Order, str]]) -> None:
        """Add (source, order, payload) of landed schema changes; skip quarantined ones.

        Skips sources that are no longer configured, because their statements cannot be read, and
        redelivered statements. A statement below known ones replays all statements of its source.
        """
        found: dict[str, list[SchemaEvent]] = {}
        for source, order, payload in rows:
            reading = self.readings.get(source)
            if reading is None:
                continue
            try:
                reported, changes = reading.read(payload, order)
            except FormatError:
                continue
            known = self._events.setdefault(source, {})
            if reported in known:
                continue
            known[reported] = None
            found.setdefault(source, []).append(reported)
            self.learn(
                (source, change) for change in (*changes, *self._dropped_with(source, reported))
            )
        for source, statements in found.items():
            nothing = PendingStatements(self.readings[source].dialect)
            pending = self._pending.get(source, nothing).after(statements)
            self._pending[source] = pending or nothing.after(tuple(self._events[source])) or nothing
            self._asked.pop(source, None)

    def _dropped_with(self, source: str, reported: SchemaEvent) -> list[SchemaChange]:
        """A DROP for each table of a dropped database, because the source names none of them."""
        database = self.readings[source].dialect.database_dropped(reported.text)
        if reported.snapshot or database is None:
            return []
        begins, changes = ShardId.beginning(database), self._changes.get(source, ())
        shards = {change.shard for change in changes if change.shard.startswith(begins)}
        return [
            SchemaChange("drop", one, reported.order, None, reported.text) for one in sorted(shards)
        ]

    def learn(self, changes: Iterable[tuple[str, SchemaChange]]) -> None:
        """Add (source, change), in any order, without the statement's effect on rows."""
        for source, change in changes:
            self._changes.setdefault(source, []).append(change)
            self._renames.pop(source, None)

    def blank(self) -> "Catalog":
        """An empty catalog with the same rules."""
        return Catalog(self.router, self.readings, self.standards)

    def reading(self, rows: Sequence[tuple[str, Order, str]]) -> "Catalog":
        """A copy of the catalog that also has *rows*; this one does not change."""
        if not rows:
            return self
        made = Catalog(
            self.router,
            self.readings,
            self.standards,
            {name: [*own] for name, own in self._changes.items()},
            {name: dict(own) for name, own in self._events.items()},
            dict(self._pending),
            dict(self._asked),
            dict(self._histories),
            dict(self._births),
            dict(self._renames),
        )
        made.add(rows)
        return made

    def require_rows(self, table: Table, bases: Mapping[Shard, Order], floors: Floors) -> None:
        """Check that no statement has changed rows of *table* without logging the new rows.

        *bases*: shard -> order at which its newest base is complete. *floors* are those that the
        mirror remembers.

        Raises:
            HeldError: such a statement is newer than both; names the statement and the fix.
        """
        for shard, asked in self._open(table, bases, floors):
            if isinstance(asked, BaseNeeded):
                raise HeldError(asked.reason, f"{shard.source}: {asked.detail}")

    def moves(
        self, table: Table, checkpoint: Checkpoint, floors: Floors
    ) -> tuple[TableRename, ...]:
        """Renames and drops of shards of *table* that its mirror has not yet followed.

        The rows of a dropped shard are removed only while another shard exists: a table without any
        shard keeps its mirror. *floors* as in ``require_rows``.
        """
        going = any(self._is_there(shard) for shard in table.shards)
        return tuple(
            TableRename(
                shard,
                table.name,
                asked.order,
                tuple(self._names(shard.source, asked, checkpoint)),
                table.unique_across_shards,
            )
            for shard, asked in self._open(table, checkpoint.bases, floors)
            if isinstance(asked, MovedRows) or (going and isinstance(asked, Dropped))
        )

    def _is_there(self, shard: Shard) -> bool:
        asked = self._asked_of(shard.source).get(ShardId.parse(shard.name))
        return not isinstance(asked, Dropped) and self.newest(shard.source, shard.name) is not None

    def _names(
        self, source: str, asked: PendingEffect | None, checkpoint: Checkpoint
    ) -> Iterator[PreviousName]:
        """Return the earlier names of moved rows, back to the first without a pending effect."""
        while isinstance(asked, MovedRows):
            shard, before = Shard(source, str(asked.rows_of)), asked.before
            doubts = [before.order] if isinstance(before, BaseNeeded) else []
            doubts += [checkpoint.lost[shard]] if shard in checkpoint.lost else []
            yield PreviousName(
                shard,
                asked.order,
                unique=self.router.unique(shard.name),
                doubted=max(doubts, default=None),
                born=self._filled_before(source, asked),
                base=checkpoint.bases.get(shard),
                since=checkpoint.based.get(shard, -1),
            )
            asked = before

    def _filled_before(self, source: str, asked: MovedRows) -> Order | None:
        """Order of the newest column that the source filled in older rows before the rename."""
        steps = [one for one in _steps(self._changes.get(source, ())) if one.order < asked.order]
        history = self.history(source)
        found = []
        for (own, column), order in added_columns(steps).items():
            schema = history.at(str(own), order) if own == asked.rows_of else None
            born = schema.column(column) if schema is not None else None
            if born is None or born.dialect.default(born).is_valid:
                found += [order] if own == asked.rows_of else []
        return max(found, default=None)

    def _open(
        self, table: Table, bases: Mapping[Shard, Order], floors: Floors
    ) -> Iterator[tuple[Shard, PendingEffect]]:
        """Pending effects of each shard that no later base or truncate has completed."""
        for shard in table.shards:
            asked = self._asked_of(shard.source).get(ShardId.parse(shard.name))
            base, floor = bases.get(shard), floors.get(shard)
            answers = [order for order in (base, floor) if order is not None]
            if asked is None or any(order >= asked.order for order in answers):
                continue
            if answers or not _emptied(asked):  # without answers: no base, reported as such
                yield shard, asked

    def _asked_of(self, source: str) -> Mapping[ShardId, PendingEffect]:
        if source not in self._asked:
            pending = self._pending.get(source)
            self._asked[source] = pending.standing() if pending is not None else {}
        return self._asked[source]

    def history(self, source: str) -> History:
        """All schemas of a source's shards, by order."""
        own = self._changes.get(source, [])
        count, known = self._histories.get(source, (0, History()))
        if count == len(own):
            return known
        end = len(own)
        made = known.after(own[count:end]) or History(*own[:end])
        self._histories[source] = end, made
        return made

    def newest(self, source: str, shard: str) -> TableSchema | None:
        """The shard's newest landed schema; None if the shard is unknown or dropped."""
        return self.history(source).newest(shard)

    def former_names(self, shard: Shard) -> tuple[str, ...]:
        """Names that *shard* had before each landed RENAME, the newest first."""
        found, below = list[str](), -1
        renames, known = self._renames_of(shard.source), shard.name
        while older := [one for one in renames.get(known, ()) if one[0] > below]:
            below, known = older[0]
            found.append(known)
        return tuple(found)

    def changes_of(self, source: str) -> Mapping[str, Sequence[SchemaChange]]:
        """All landed schema changes of a source by shard, each in log order."""
        found: dict[str, list[SchemaChange]] = {}
        for change in sorted(self._changes.get(source, ()), key=lambda one: one.order):
            found.setdefault(change.shard, []).append(change)
        return found

    def _renames_of(self, source: str) -> Renames:
        """Renames of a source; cached, because lineage asks for every shard."""
        if source not in self._renames:
            own = [one for one in self._changes.get(source, ()) if one.previous is not None]
            own.sort(key=lambda one: one.order, reverse=True)
            found: dict[str, list[tuple[int, str]]] = {}
            for place, change in enumerate(own):
                found.setdefault(change.shard, []).append((place, change.previous or ""))
            self._renames[source] = found
        return self._renames[source]

    def at(self, name: str, order: Order) -> TableSchema | None:
        """Schema of ``source/shard`` at *order*."""
        shard = Shard.parse(name)
        return self.history(shard.source).at(shard.name, order)

    def newest_of(self, table: Table) -> dict[str, TableSchema]:
        """``source/shard`` -> newest landed schema, for shards that have one."""
        found = {str(s): self.newest(s.source, s.name) for s in table.shards}
        return {name: schema for name, schema in found.items() if schema is not None}

    def fills(self, name: str) -> tuple[Fill, ...]:
        """Defaults of columns added to ``source/shard``, which its older rows have."""
        shard = Shard.parse(name)
        found = []
        for column, order in self._born(shard.source).of(ShardId.parse(shard.name)).items():
            schema = self.at(name, order)
            born = schema.column(column) if schema is not None else None
            value = None if born is None else default_of(self._written(shard.name, born))
            if value is not None and value.is_valid:
                found.append(Fill(column, shard, order, value))
        return tuple(found)

    def _written(self, shard: str, column: Column) -> Column:
        """A shard's column with its type in the mirror."""
        own = self.standards.of(self.router.table(shard))
        standard = None if own is None else own.of(column.name)
        return written_column(column, standard)

    def _born(self, source: str) -> AddedColumns:
        """Added columns of a source; cached, because each merge run asks for many shards."""
        own = self._changes.get(source, [])
        count, known = self._births.get(source, (0, AddedColumns()))
        if count == len(own):
            return known
        end = len(own)
        made = known.after(_steps(own[count:end]))
        made = made or AddedColumns().after(_steps(own[:end])) or known
        self._births[source] = end, made
        return made

    def table(self, name: str, shards: Folding) -> Table:
        """The table *name* with its shards among *shards* (``source/shard`` -> table)."""
        own = self._shards_of(shards).get(name, ())
        rule = self.router.rule(own[0].name) if own else None
        reported = (self.newest(shard.source, shard.name) for shard in own)
        schema = next((one for one in reported if one is not None), None)  # a shard may be dropped
        key = (rule.key if rule and rule.key else schema.key) if schema else ()
        made = Table(
            name=name,
            shards=own,
            key=key,
            id_column=_id_column(schema, key),
            unique_across_shards=bool(rule and rule.unique_across_shards),
            tier=self.tier(name, shards),
        )
        return made.with_standards(self.standards.columns(name))

    def tier(self, name: str, shards: Folding) -> int:
        """The tier of table *name* with its shards among *shards*."""
        own = self._shards_of(shards).get(name, ())
        rule = self.router.rule(own[0].name) if own else None
        return rule.tier if rule else 1

    def _shards_of(self, shards: Folding) -> Mapping[str | None, tuple[Shard, ...]]:
        """Shards by table; cached, because a merge run asks for every table with the same *shards*.

        Another merge queue may ask at the same time with the *shards* of another batch.
        """
        known = self._folded
        if known[0] is not shards:
            found: dict[str | None, list[Shard]] = {}
            for shard, table in shards.items():
                found.setdefault(table, []).append(shard)
            known = (shards, {table: tuple(sorted(own)) for table, own in found.items()})
            self._folded = known
        return known[1]

    def schema(self, table: Table) -> TableSchema:
        """One schema for all shards of *table*, with the mirror's types and key.

        Raises:
            HeldError: no schema has landed yet, shards disagree, no key identifies a row, or the
                columns' standards make the key unusable.
        """
        found = [self.newest(shard.source, shard.name) for shard in table.shards]
        schemas = [schema for schema in found if schema is not None]
        if not schemas:
            detail = f"no schema change of {table.name} has landed yet"
            raise HeldError("no_schema", f"{detail}; run `sluice doctor` if it stays so")
        merged = merge_schemas(schemas)
        if isinstance(merged, Incompatible):
            raise HeldError("shards_differ", f"{merged.why}; {merged.statement}")
        self._refuse_two_keys(table, found)
        if not table.key:
            detail = (
                f"{table.name} declares no key; name a unique, not-null set: 'key:' of its rule"
            )
            raise HeldError("no_key", detail)
        _refuse_two_spellings(table, merged)
        refuse_odd(self.standards.of(table.name), table, merged)
        columns = tuple(self._written(schemas[0].shard, column) for column in merged.columns)
        return replace(merged, columns=columns)

    def _refuse_two_keys(self, table: Table, schemas: Sequence[TableSchema | None]) -> None:
        """Refuse shards with different keys, declared or set by their rules: rows would be lost.

        *schemas* are those of the shards. A shard with neither a schema nor a rule with a key is
        skipped.
        """
        known = list[tuple[Shard, tuple[str, ...]]]()
        for shard, schema in zip(table.shards, schemas, strict=True):
            rule = self.router.rule(shard.name)
            if rule is not None and rule.key:
                known.append((shard, rule.key))
            elif schema is not None:
                known.append((shard, schema.key))
        for shard, key in known[1:]:
            first, other = known[0]
            if sorted(map(str.casefold, key)) != sorted(map(str.casefold, other)):
                here, there = ", ".join(other), ", ".join(key)
                raise HeldError(
                    "shards_differ",
                    f"{first.name} has the key ({here}), {shard.name} ({there});"
                    f" name one `key` in all rules of {table.name}",
                )


def _emptied(asked: PendingEffect) -> bool:
    return isinstance(asked, BaseNeeded) and asked.reason == EMPTIED


def _refuse_two_spellings(table: Table, schema: TableSchema) -> None:
    """Refuse key columns whose values have two spellings: keys are compared as text."""
    for name in table.key:
        column = schema.column(name)
        if column is not None and not column.dialect.spelled_alike(column):
            detail = (
                f"a snapshot and the log spell values of key column {name} of {table.name} in two "
                "ways: it is a FLOAT, or has a label with a comma, an escape or a blank at its "
                "end; name another unique, not-null set: 'key:' of its rule"
            )
            raise HeldError("key_kind", detail)


def _steps(changes: Iterable[SchemaChange]) -> list[Step]:
    """The steps of *changes* in log order."""
    return [
        Step(
            ShardId.parse(change.shard),
            change.order,
            change.schema,
            ShardId.parse(change.previous) if change.previous else None,
        )
        for change in sorted(changes, key=in_log_order)
    ]


def _id_column(schema: TableSchema | None, key: tuple[str, ...]) -> str | None:
    """The only key column if it is an integer, which source and mirror order alike; else None."""
    if schema is None or len(key) != 1:
        return None
    column = schema.column(key[0])
    return key[0] if column is not None and column.dialect.whole(column) else None
