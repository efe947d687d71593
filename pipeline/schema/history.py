"""Keeps the schema history of a source's shards and what its statements still require.

History: the schema in force at an order comes from the source's own schema events. Measured: a
snapshot sends DROP and CREATE of a table at one order. A live statement over several tables arrives
as one event per table, also at one order.

Added columns: rows below the order of a column hold what the source filled in when it added the
column. The order is per shard, because two shards of one table add a column at two orders. The
first schema of a shard adds no column, and neither does that of a table that was dropped and
created again: no row is older.

Cannot detect: a column that one statement drops and adds again. The MySQL effects hold its shard.

Pending effects: what statements up to the newest one still require per shard. That is a base, rows
of another shard, or the absence of rows after a DROP or a move. A base or a truncate at that order
or later settles each. A statement that empties a shard is pending too. A CREATE is a base only if
no table of that name existed. A TRUNCATE that only its statement reports empties no mirror. Effects
of an order are computed again when more events of that order arrive. A batch can end between the
events of one RENAME, and a collector that restarts sends some events twice.

Reading a schema event: the format parses the message, the source's dialect gives it meaning.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from pipeline.model import Order, ShardId
from pipeline.schema.model import (
    BaseNeeded,
    Dialect,
    Drop,
    Effect,
    Empty,
    KnownTables,
    Replace,
    SchemaEvent,
    SchemaMessage,
    TableDescription,
    TableSchema,
)


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """The effect of a statement on one table's schema: ``create``, ``alter`` or ``drop``.

    A drop has no ``schema``. ``previous`` is the shard's earlier name, if it was renamed.
    """

    kind: str
    shard: str
    order: Order
    schema: TableSchema | None
    statement: str
    previous: str | None = None


def in_log_order(change: SchemaChange) -> tuple[Order, bool]:
    """Sort key of changes: at one order, drops come first."""
    return change.order, change.kind != "drop"


class History:
    """All schemas of one source's shards, by order.

    A CREATE of an existing table is ignored. Measured: ``CREATE TABLE IF NOT EXISTS t LIKE u`` is
    logged although t exists, and described with u's columns.
    """

    def __init__(self, *changes: SchemaChange) -> None:
        self._steps: dict[str, tuple[tuple[Order, TableSchema | None], ...]] = {}
        self._last: tuple[Order, bool] | None = None
        for change in sorted(changes, key=in_log_order):
            self._take(change)

    def after(self, changes: Sequence[SchemaChange]) -> "History | None":
        """A history that also has *changes*; None if one of them is below the last one here.

        It shares the steps of all other shards, because there may be 10,000 statements.
        """
        ordered = sorted(changes, key=in_log_order)
        if self._last is not None and ordered and in_log_order(ordered[0]) < self._last:
            return None
        made = History()
        made._steps, made._last = dict(self._steps), self._last
        for change in ordered:
            made._take(change)
        return made

    def _take(self, change: SchemaChange) -> None:
        self._last = in_log_order(change)
        there = self.newest(change.shard) is not None
        if change.kind == "create" and change.previous is None and there:
            return
        known = self.newest(change.previous or change.shard) if change.schema else None
        if _is_repeated(known, change):
            return
        self._append(change.shard, change.order, _follow_change(known, change))
        if change.previous is not None:
            self._append(change.previous, change.order, None)

    def _append(self, shard: str, order: Order, schema: TableSchema | None) -> None:
        self._steps[shard] = (*self._steps.get(shard, ()), (order, schema))

    def at(self, shard: str, order: Order) -> TableSchema | None:
        """Schema in force for a change at *order*; None if unknown, or the shard is dropped."""
        steps = self._steps.get(shard, ())
        found = bisect_right(steps, order, key=lambda step: step[0])
        return steps[found - 1][1] if found else None

    def newest(self, shard: str) -> TableSchema | None:
        """The newest known schema; None without one, and after a drop."""
        steps = self._steps.get(shard)
        return steps[-1][1] if steps else None


def _is_repeated(known: TableSchema | None, change: SchemaChange) -> bool:
    """Whether rows describe columns that are already in force."""
    if known is None or change.schema is None or change.statement or change.previous is not None:
        return False
    return (known.columns, known.key) == (change.schema.columns, change.schema.key)


def _follow_change(known: TableSchema | None, change: SchemaChange) -> TableSchema | None:
    """The schema after *change*, with details that only earlier statements have."""
    if known is None or change.schema is None:
        return change.schema
    dialect = change.schema.columns[0].dialect
    new = dialect.remembered(known, change.schema)
    alike = (known.columns, known.key) == (new.columns, new.key)
    if alike and change.previous is None and dialect.leaves_values(change.statement):
        return replace(new, altered=known.valid_from)
    return new


@dataclass(frozen=True, slots=True)
class Step:
    """The columns of *shard* from *order* on; None if it is dropped there.

    If it was renamed, ``rows_of`` names the shard whose rows it has from then on.
    """

    shard: ShardId
    order: Order
    schema: TableSchema | None
    rows_of: ShardId | None = None


@dataclass(frozen=True, slots=True)
class _Life:
    columns: frozenset[str]
    born: Mapping[str, Order]


@dataclass(frozen=True, slots=True)
class AddedColumns:
    """Columns that statements added to existing rows, of all shards of one source."""

    lives: Mapping[ShardId, _Life] = field(default_factory=dict)
    last: Order | None = None

    def of(self, shard: ShardId) -> Mapping[str, Order]:
        """Column -> order of the statement that added it to *shard*."""
        life = self.lives.get(shard)
        return {} if life is None else life.born

    def after(self, steps: Sequence[Step]) -> "AddedColumns | None":
        """The same with *steps* added; None if one of them is not above all earlier ones.

        *steps* ascend by order; those of one order are in order of arrival. Steps of one order see
        the state before it, so two tables can swap names. A snapshot's DROP and CREATE at one order
        make a new table.
        """
        if not steps:
            return self
        if self.last is not None and steps[0].order <= self.last:
            return None
        return AddedColumns(_follow_steps(self.lives, steps), steps[-1].order)


def added_columns(steps: Iterable[Step]) -> dict[tuple[ShardId, str], Order]:
    """(shard, column) -> order of the statement that added it; see :meth:`AddedColumns.after`."""
    lives = _follow_steps({}, steps)
    return {(s, name): order for s, life in lives.items() for name, order in life.born.items()}


def _follow_steps(lives: Mapping[ShardId, _Life], steps: Iterable[Step]) -> dict[ShardId, _Life]:
    by_shard = dict(lives)
    for _, group in groupby(steps, key=lambda step: step.order):
        together, dropped = tuple(group), set[ShardId]()
        origins = {step.rows_of or step.shard for step in together}
        before = {shard: by_shard.get(shard) for shard in origins}
        for step in together:
            if step.schema is None:
                dropped.add(step.shard)
                by_shard.pop(step.shard, None)
                continue
            anew = step.rows_of is None and step.shard in dropped
            origin = None if anew else before[step.rows_of or step.shard]
            by_shard[step.shard] = _live(origin, step.schema, step.order)
    return by_shard


def _live(origin: _Life | None, schema: TableSchema, order: Order) -> _Life:
    columns = frozenset(column.name for column in schema.columns)
    if origin is None:
        return _Life(columns, {})
    kept = {name: born for name, born in origin.born.items() if name in columns}
    return _Life(columns, {**kept, **dict.fromkeys(columns - origin.columns, order)})


EMPTIED = "emptied"  # the reason of an effect that counts only if there was a base before


@dataclass(frozen=True, slots=True)
class MovedRows:
    """Rows of *shard* below *order* are those that *rows_of* had just before it.

    ``before`` is the pending effect of *rows_of* at that time, by the newest statement below
    *order*.
    """

    shard: ShardId
    order: Order
    rows_of: ShardId
    before: "PendingEffect | None" = None


@dataclass(frozen=True, slots=True)
class Dropped:
    """No table *shard* exists since *order*; none of its rows are in other shards."""

    shard: ShardId
    order: Order


PendingEffect = BaseNeeded | MovedRows | Dropped


def _every_table() -> KnownTables:
    return KnownTables(captured=lambda _: True)


@dataclass(frozen=True, slots=True)
class PendingStatements:
    """The pending effects of one source's statements; ``newest`` are those of the highest order.

    ``known`` and ``asked`` are the state just below that order. Every table counts as captured: one
    that is not has no base in the change log, which decides.
    """

    dialect: Dialect
    known: KnownTables = field(default_factory=_every_table)
    asked: Mapping[ShardId, PendingEffect] = field(default_factory=dict)
    newest: tuple[SchemaEvent, ...] = ()

    def after(self, events: Sequence[SchemaEvent]) -> "PendingStatements | None":
        """Add events in any order; None if one is below the newest one here."""
        every = sorted((*self.newest, *events), key=lambda message: message.order)
        if not every or (self.newest and every[0].order < self.newest[0].order):
            return None if every else self
        newest = tuple(message for message in every if message.order == every[-1].order)
        made, known = self.dialect.follow(every[: -len(newest)], self.known)
        return PendingStatements(self.dialect, known, _asked(self.asked, made), newest)

    def standing(self) -> Mapping[ShardId, PendingEffect]:
        """Pending effects by shard, including those of the newest statements."""
        return _asked(self.asked, self.dialect.follow(self.newest, self.known)[0])


def _asked(
    asked: Mapping[ShardId, PendingEffect], made: Sequence[Effect]
) -> dict[ShardId, PendingEffect]:
    found = dict(asked)
    for _, group in groupby(made, key=lambda effect: effect.order):
        together = tuple(group)
        moving = {effect.rows_of for effect in together if isinstance(effect, Replace)}
        before = {shard: found.get(shard) for shard in moving}  # two tables may swap names
        for effect in together:
            if isinstance(effect, BaseNeeded):
                found[effect.shard] = effect
            elif isinstance(effect, Replace):
                rows_of = effect.rows_of
                asked_of = before[rows_of]
                found[effect.shard] = MovedRows(effect.shard, effect.order, rows_of, asked_of)
            elif isinstance(effect, Empty):
                found[effect.shard] = _base_of(effect)
            elif isinstance(effect, Drop):
                found[effect.shard] = Dropped(effect.shard, effect.order)
    return found


def _base_of(effect: Empty) -> BaseNeeded:
    """The base needed after a statement emptied a table, unless its CREATE or truncate is one."""
    detail = (
        f"a statement left {effect.shard} empty, and nothing among its rows says so; "
        f"take a new base of {effect.shard}"
    )
    return BaseNeeded(effect.shard, effect.order, EMPTIED, detail, effect.schema)


@dataclass(frozen=True, slots=True)
class SchemaReader:
    """Reads schema changes of one source; ``words`` raises FormatError if it cannot parse one."""

    words: Callable[[str], SchemaMessage]
    dialect: Dialect

    def read(self, payload: str, order: Order) -> tuple[SchemaEvent, tuple[SchemaChange, ...]]:
        """Read a schema change from its payload; return the event and each table's change.

        Raises:
            FormatError: it is not a valid message of the format.
        """
        said = self.words(payload)
        changes = tuple(self._change(table, said.text, order) for table in said.tables)
        tables = tuple(
            (table.shard, one.schema) for table, one in zip(said.tables, changes, strict=True)
        )
        return SchemaEvent(order, said.text, said.database, tables, said.snapshot), changes

    def _change(self, table: TableDescription, text: str, order: Order) -> SchemaChange:
        shard, schema = str(table.shard), self._schema(table, text, order)
        if schema is None:
            return SchemaChange("drop", shard, order, None, text)
        previous = self.dialect.renamed_from(text, table.shard)
        before = str(previous) if previous is not None else None
        return SchemaChange(table.kind, shard, order, schema, text, before)

    def _schema(self, table: TableDescription, text: str, order: Order) -> TableSchema | None:
        if table.kind == "drop":
            return None
        columns = tuple(self.dialect.column(column, text) for column in table.columns)
        return TableSchema(str(table.shard), order, columns, table.key, text)
