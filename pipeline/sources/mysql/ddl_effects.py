"""Decides what a MySQL statement does to the rows of a mirror; unknown effects are holds.

The text of a statement says which rows are removed or moved; the description sent with it says
which columns exist. Both must agree, or the shard is held until there is a later base.
Statements of one order are applied one after the other, so chains and swaps of names resolve. A
doubt moves with the rows. Effects of one order all start from the state before it.

A TRUNCATE is not a schema event: it arrives among the rows of its table, at its order. It arrives
here only if the collector lost track of the table.

* Evolution: a mirror follows a new column that is nullable or has a constant default, and a
  wider type. Any other change is a hold that names its cause and the statement that solves it.
* Defaults: the value in old rows is the source's own constant, computed once. A new column is not
  followed if the schema event does not give that value for certain.
* Differences: the columns of the log are compared with those of the server.

Cannot detect (probes and reconciliation must):
* statements under `sql_log_bin=0`, and statements that a collector could not parse and dropped;
* rows of a table outside `table.include.list`, whose statements arrive without rows; before such
  a table's (missing) rows replace another table's, its capture is checked;
* a shard whose statements are filtered (`store.only.captured.tables.ddl`): it looks new on
  `CREATE TABLE IF NOT EXISTS .. LIKE`, which is logged although the table exists;
* text changed under a non-strict `sql_mode`: a column that changes its character set without
  being named, or a 0 in a column that becomes AUTO_INCREMENT;
* generated columns whose inputs change their type.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from itertools import groupby

import pyarrow as pa

from pipeline.model import Order, ShardId
from pipeline.schema.model import (
    BaseNeeded,
    Compatible,
    Drop,
    Effect,
    Empty,
    Incompatible,
    Keep,
    KnownTables,
    MergeRules,
    Replace,
    SchemaEvent,
    TableSchema,
    arrow_type,
)
from pipeline.sources.mysql.ddl_parser import (
    Altered,
    Created,
    DatabaseDropped,
    Dropped,
    Harmless,
    Name,
    Renamed,
    Statement,
    Truncated,
    UnknownStatement,
    parse_statement,
)
from pipeline.sources.mysql.types import BYTES, TEXTS, lake_type, mysql_columns, unquote_text
from pipeline.sources.mysql.types import MySqlColumn as Column

Value = int | str | bytes | bool | date | datetime | None
UNSURE = "1970-01-01 00:00:00"  # Debezium's text of a default that is the time of the change
_TIME = re.compile(r"(-?)(\d{1,3}):(\d\d):(\d\d)(?:\.(\d{1,6}))?")
_TWO_DIGITS, _TURN = 100, 70  # YEAR 0-69 is 2000-2069, 70-99 is 1970-1999


def read_constant(column: Column) -> Value:
    """The value that old rows got in an added *column*; None for NULL.

    Raises:
        ValueError: the value is not certain; the message says why.
    """
    text, kind = column.default, column.kind
    if column.generated:
        raise ValueError("its value is computed, from other columns or when the statement ran")
    if text is None:
        if not column.nullable:
            raise ValueError("it is NOT NULL without a default")
        return None
    if kind in ("ENUM", "SET", *TEXTS):
        word = unquote_text(text)
        return word if kind in TEXTS else word.rstrip(" ")  # labels have no trailing blanks
    if kind in BYTES:
        return _bytes(column, text)
    if kind == "TIMESTAMP":
        raise ValueError("a TIMESTAMP's default depends on the session's time zone")
    if kind in ("DATE", "DATETIME", "TIME", "YEAR"):
        return _moment(kind, text)
    if kind == "BIT":
        return _bit(column, text)
    word = {"TRUE": "1", "FALSE": "0"}.get(text.upper(), text)
    if not re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", word):
        raise ValueError("its default is not a constant")
    return word


def _moment(kind: str, text: str) -> Value:
    if text == UNSURE or text.startswith("0000"):
        raise ValueError("its default is the time of the change, or a zero date")
    if kind == "DATE":
        return date.fromisoformat(text[:10])
    if kind == "DATETIME":
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is not None:
            raise ValueError("a default with a zone depends on the session's time zone")
        return str(moment)
    if kind == "YEAR":
        year = int(text)
        short = 2000 if year < _TURN else 1900
        return year if not 0 < year < _TWO_DIGITS else year + short
    found = _TIME.fullmatch(text)
    if found is None:
        raise ValueError("its default is not a plain time")
    sign, hours, minutes, seconds, fraction = found.groups()
    micros = (int(hours) * 3600 + int(minutes) * 60 + int(seconds)) * 1_000_000
    micros += int((fraction or "").ljust(6, "0"))
    return -micros if sign else micros


def _bit(column: Column, text: str) -> Value:
    """Read 0 and 1 only: a schema event does not distinguish b'101' from 101."""
    if text not in ("0", "1"):
        raise ValueError("a schema event reports the default of a BIT without its base")
    if column.width == 1:
        return text == "1"
    return int(text).to_bytes((column.width + 7) // 8, "big")


def _bytes(column: Column, text: str) -> bytes:
    """Read printable ASCII only: a schema event does not mark hexadecimal and escapes."""
    if not text.isascii() or not text.isprintable() or text.lower().startswith(("0x", "\\")):
        raise ValueError("a schema event does not report a binary default exactly")
    data = text.encode()
    return data.ljust(column.width, b"\0") if column.kind == "BINARY" else data


INTEGERS = ("TINYINT", "SMALLINT", "MEDIUMINT", "INT", "BIGINT")
FAMILIES = (
    ("TINYTEXT", "TEXT", "MEDIUMTEXT", "LONGTEXT"),
    ("TINYBLOB", "BLOB", "MEDIUMBLOB", "LONGBLOB"),
)
LENGTHS = ("CHAR", "VARCHAR", "VARBINARY")  # not BINARY: a longer one pads the values of all rows


def compare_schemas(old: TableSchema, new: TableSchema) -> Compatible | Incompatible:
    """The columns added from *old* to *new*, or the first change that a mirror cannot follow."""
    here = {column.name: column for column in mysql_columns(old)}
    table, names = _quoted(new.shard), {column.name for column in new.columns}
    again = f"or take a new base of {new.shard}: drop its mirror and snapshot it again"
    gone = [column for column in mysql_columns(old) if column.name not in names]
    added = tuple(column for column in mysql_columns(new) if column.name not in here)
    if gone:
        return _report_lost(gone[0], added, table, again)
    if old.key != new.key:
        why = f"the key changed from {_list(old.key)} to {_list(new.key)}"
        back = f"ALTER TABLE {table} DROP PRIMARY KEY, ADD PRIMARY KEY ({_list(old.key)})"
        return Incompatible(why, f"undo it: {back}; {again}")
    pairs = [(here[after.name], after) for after in mysql_columns(new) if after.name in here]
    for before, after in pairs:
        if (why_not := _obstacle(before, after)) is not None:
            back = f"{_retyped(new.shard, before)}{_null(before)}"
            return Incompatible(why_not, f"undo it: {back}; {again}")
    for column in added:
        if (why_not := _unknown_fill(column)) is not None:
            back = f"ALTER TABLE {table} DROP COLUMN `{column.name}`"
            return Incompatible(why_not, f"undo it: {back}; {again}", filled=True)
    return Compatible(added)


def merge_schemas(schemas: Sequence[TableSchema]) -> TableSchema | Incompatible:
    """One schema that fits the rows of every shard; see :class:`MergeRules`."""
    return _MERGING.merge(schemas)


def is_wider(old: Column, new: Column) -> bool:
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
    """Whether *new* has at least as many digits before the point, and the same type in the lake.

    The type in the lake must stay a decimal, or stay text.
    """
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


def _report_lost(gone: Column, added: Sequence[Column], table: str, again: str) -> Incompatible:
    twin = next((c for c in added if c.position == gone.position and c.shape == gone.shape), None)
    if twin is not None:
        back = f"ALTER TABLE {table} RENAME COLUMN `{twin.name}` TO `{gone.name}`"
        return Incompatible(f"column {gone.name} is now {twin.name}", f"undo it: {back}; {again}")
    return Incompatible(f"column {gone.name} is gone", again.removeprefix("or "))


def _obstacle(old: Column, new: Column) -> str | None:
    if not is_wider(old, new):
        return f"column {old.name} changed from {old} to {new}"
    if old.nullable and not new.nullable:
        return f"column {old.name} is NOT NULL now"
    return None


def _unknown_fill(column: Column) -> str | None:
    """Why the values of old rows in an added column are unknown; None if they are known."""
    try:
        read_constant(column)
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


_MERGING = MergeRules(mysql_columns, is_wider, _unknown_fill, _loosened, _list, _retyped)


OTHER_COLUMNS = (
    "CREATE TABLE IF NOT EXISTS .. LIKE left it as it was, but the collector takes the other"
    " table's columns for its own: let it read all tables again"
    " (docs/runbooks/blocked.md#connector)"
)


@dataclass(frozen=True, slots=True)
class HeldRows:
    """The rows of a table: those that shard ``of`` had before the statements, or none (None).

    ``doubt`` is a reason code and an explanation, if the rows are unknown.
    """

    of: ShardId | None
    schema: TableSchema | None
    doubt: tuple[str, str] | None = None


class TrackedRows(MutableMapping[ShardId, HeldRows]):
    """The rows of each table: its own, unless a statement of this order has changed them.

    *schemas* are the existing tables; they are not copied, because most of them never change.
    """

    def __init__(self, schemas: Mapping[ShardId, TableSchema]) -> None:
        self._schemas = schemas
        self._changed: dict[ShardId, HeldRows | None] = {}

    def __getitem__(self, shard: ShardId) -> HeldRows:
        """Return the rows of *shard*; KeyError if the table does not exist or was dropped."""
        if shard not in self._changed:
            return HeldRows(shard, self._schemas[shard])
        found = self._changed[shard]
        if found is None:
            raise KeyError(shard)
        return found

    def __setitem__(self, shard: ShardId, rows: HeldRows) -> None:
        """Set the rows of *shard*."""
        self._changed[shard] = rows

    def __delitem__(self, shard: ShardId) -> None:
        """Note that *shard* was dropped or renamed; KeyError if it does not exist."""
        if shard not in self:
            raise KeyError(shard)
        self._changed[shard] = None

    def __iter__(self) -> Iterator[ShardId]:
        """Iterate over the existing tables."""
        yield from (one for one in self._schemas if self._changed.get(one, one) is not None)
        added = (one for one, rows in self._changed.items() if rows is not None)
        yield from (one for one in added if one not in self._schemas)

    def __len__(self) -> int:
        """Return the number of existing tables."""
        return sum(1 for _ in self)

    def restore(self, shard: ShardId) -> None:
        """Forget changes of *shard*: it has its own rows, or does not exist without a schema."""
        self._changed.pop(shard, None)


@dataclass(eq=False)
class RenameTracker:
    """The tables of a source while the statements of one order are applied one after the other.

    ``touched`` are the tables that a statement of this order may have changed.
    """

    rows: TrackedRows
    touched: dict[ShardId, None] = field(default_factory=dict)

    def apply(self, event: SchemaEvent) -> None:
        """Apply a statement; doubt its tables if the event describes tables it does not name."""
        named = self._run(parse_statement(event.text), event)
        strange = [table for table in event.tables if table[0] not in named]
        for shard, schema in strange:
            self._doubt(shard, ("statement", "a statement that does not name it"), schema)
        for shard in sorted(named) if strange else ():
            self._doubt(shard, ("statement", f"the schema event describes it as {strange[0][0]}"))

    def described(self, event: SchemaEvent) -> None:
        """Apply columns that were sent with rows, without a statement: the rows do not change."""
        for shard, schema in event.tables:
            there = self.rows.get(shard)
            if schema is not None:
                self.rows[shard] = _with_schema(there, schema) if there else HeldRows(shard, schema)
                self.touched[shard] = None

    def commit(self) -> None:
        """End an order: now every table has its own rows, with the columns of its schema."""
        for shard in self.touched:
            self.rows.restore(shard)
        self.touched.clear()

    def _run(self, statement: Statement, event: SchemaEvent) -> set[ShardId]:
        """Apply one statement; return the tables whose description it explains."""
        match statement:
            case Created():
                named = self._create(statement, event)
            case Dropped(tables):
                named = {self._remove(self._shard(name, event)) for name in tables}
            case DatabaseDropped(database):
                named = self._drop_database(database)
            case Truncated(table):
                named = {self._empty(self._shard(table, event), None)}
            case Renamed(pairs):
                named = {self._move(old, new, event) for old, new in pairs}
            case Altered():
                named = self._alter(statement, event)
            case UnknownStatement():
                named = self._unread(statement, event)
            case Harmless():
                named = self._follow(event)
        return named

    def _follow(self, event: SchemaEvent) -> set[ShardId]:
        """Apply a statement that moves no rows, but may change columns or a key (CREATE INDEX)."""
        known = {shard: schema for shard, schema in event.tables if shard in self.rows}
        for shard, schema in known.items():
            self.rows[shard] = _with_schema(self.rows[shard], schema)
            self.touched[shard] = None
        return set(known)

    def _drop_database(self, database: str) -> set[ShardId]:
        """Remove the tables of *database*; if it has none, doubt those of it in another case."""
        inside = [shard for shard in self.rows if shard.database == database]
        if inside:
            return {self._remove(shard) for shard in inside}
        folded = database.casefold()
        alike = {shard for shard in self.rows if shard.database.casefold() == folded}
        for shard in alike:
            self._doubt(shard, ("statement", f"DROP DATABASE {database}, which may be another one"))
        return alike

    def _create(self, statement: Created, event: SchemaEvent) -> set[ShardId]:
        shard = self._shard(statement.table, event)
        there, schema = self.rows.get(shard), dict(event.tables).get(shard)
        if schema is None:
            if there is None or not statement.unless_there:
                self._doubt(shard, ("statement", "CREATE TABLE, which the collector did not parse"))
        elif creates_empty_table(statement, there=there is not None):
            self._empty(shard, schema)
        elif statement.selects:
            why = "CREATE TABLE .. SELECT was logged as a statement, without its rows"
            self._doubt(shard, ("statement", why), schema)
        elif not statement.unless_there:
            self._doubt(
                shard,
                ("created", "CREATE TABLE, and no DROP of the earlier table was reported"),
                schema,
            )
        elif there is not None and _columns(there.schema) != _columns(schema):
            self._doubt(shard, ("created", OTHER_COLUMNS))
        return {shard}

    def _alter(self, statement: Altered, event: SchemaEvent) -> set[ShardId]:
        for other in statement.others:
            why = f"{statement.table.relation} exchanges rows with it"
            self._doubt_all(other, statement.table, event, ("statement", why))
        target = self._shard(statement.to or statement.table, event)
        schema = dict(event.tables).get(target)
        if statement.to is not None and _is_ambiguous(statement.table, statement.to):
            return {self._move(statement.table, statement.to, event)}
        shard = self._shard(statement.table, event)
        there = self.rows.get(shard)
        if there is None and schema is not None:
            self._doubt(target, ("statement", "ALTER TABLE of an unknown table"), schema)
        if there is None:
            return {target}
        self.touched[shard] = None
        self.rows[shard] = _rows_after_alter(there, schema, statement)
        return {self._move(statement.table, statement.to, event) if statement.to else shard}

    def _move(self, old: Name, new: Name, event: SchemaEvent) -> ShardId:
        """Move the rows of *old* to *new*; return the shard of *new*."""
        target = self._shard(new, event)
        schema = dict(event.tables).get(target)
        if _is_ambiguous(old, new):
            why = f"a table {old.relation} of a database that is not reported became {target}"
            it_went = f"{why}, maybe this one (then ignore it under `tables`)"
            self._doubt_all(old, new, event, ("renamed", it_went))
            self._doubt(target, ("renamed", why), schema)
            return target
        source = self._shard(old, event)
        there = self.rows.pop(source, None)
        self.touched[source] = None
        if there is not None and target not in self.rows:
            self.touched[target] = None
            self.rows[target] = _with_schema(there, schema)
        elif schema is not None or target in self.rows:
            self._doubt(
                target, ("renamed", f"it was {source}, whose columns or rows are unknown"), schema
            )
        return target  # a view has no description

    def _unread(self, statement: UnknownStatement, event: SchemaEvent) -> set[ShardId]:
        """Doubt every table that an unknown statement may change."""
        names = {name.casefold() for name in statement.names}
        places = {*names, (event.database or "").casefold()}
        doubt = ("statement", f"a statement that cannot be parsed: {statement.why}")
        for shard in tuple(self.rows):
            if shard.relation.casefold() in names and shard.database.casefold() in places:
                self._doubt(shard, doubt)
        for shard, schema in event.tables:
            self._doubt(shard, doubt, schema)
        return {shard for shard, _ in event.tables}

    def _remove(self, shard: ShardId) -> ShardId:
        self.rows.pop(shard, None)
        self.touched[shard] = None
        return shard

    def _empty(self, shard: ShardId, schema: TableSchema | None) -> ShardId:
        there = self.rows.get(shard)
        self.rows[shard] = HeldRows(None, schema or (there.schema if there else None))
        self.touched[shard] = None
        return shard

    def _doubt(
        self, shard: ShardId, doubt: tuple[str, str], schema: TableSchema | None = None
    ) -> None:
        there = self.rows.get(shard)
        self.rows[shard] = HeldRows(shard, schema or (there.schema if there else None), doubt)
        self.touched[shard] = None

    def _doubt_all(
        self, name: Name, beside: Name, event: SchemaEvent, doubt: tuple[str, str]
    ) -> None:
        """Doubt table *name*; if only *beside* has a database, doubt all tables of that name."""
        if not _is_ambiguous(name, beside):
            self._doubt(self._shard(name, event), doubt)
            return
        for shard in tuple(self.rows):
            if shard.relation.casefold() == name.relation.casefold():
                self._doubt(shard, doubt)

    def _shard(self, name: Name, event: SchemaEvent) -> ShardId:
        """The shard that *name* refers to; without an exact match, one that differs in case."""
        exact = ShardId(name.database or event.database or "", name.relation)
        described = [shard for shard, _ in event.tables]
        if exact in self.rows or exact in described:
            return exact
        alike = {shard for shard in (*described, *self.rows) if _folded(shard) == _folded(exact)}
        return alike.pop() if len(alike) == 1 else exact


def creates_empty_table(statement: Statement, *, there: bool | None) -> bool:
    """Whether it makes an empty table; *there*: whether a table of that name existed.

    If that is unknown (None), IF NOT EXISTS may have kept an older table with its rows.

    Measured: MySQL logs CREATE TABLE IF NOT EXISTS t LIKE u although t exists.
    """
    if not isinstance(statement, Created) or statement.selects:
        return False
    may_exist = statement.unless_there if there is None else there
    return statement.replaces or not may_exist


def leaves_values(statement: Statement) -> bool:
    """Whether a statement changes no row, provided that columns and key are described as before.

    A redefined column may have another character set, which no description shows. If rows are
    rewritten, computed values may change.
    """
    match statement:
        case Harmless():
            return True
        case Altered(to=to, rebuilds=rebuilds, doubts=doubts, emptied=emptied, others=others):
            return not (to or rebuilds or doubts or emptied or others)
    return False


def _rows_after_alter(there: HeldRows, schema: TableSchema | None, statement: Altered) -> HeldRows:
    """The rows of a table after its ALTER; an older doubt remains."""
    after = _with_schema(there, schema)
    if after.doubt is not None:
        return after
    if statement.doubts:
        return replace(after, doubt=("statement", statement.doubts[0]))
    if statement.described and schema is None:
        return replace(after, doubt=("statement", "ALTER TABLE, which the collector did not parse"))
    old, new = (_names(there.schema), _names(schema))
    again = [name for name in statement.left if name.casefold() in old & new]
    if again:
        why = f"column {again[0]} was dropped or renamed, and a column of this name exists"
        return replace(after, doubt=("schema", why))
    return replace(after, of=None) if statement.emptied else after


def _with_schema(there: HeldRows, schema: TableSchema | None) -> HeldRows:
    """The same rows with the columns of *schema*; a doubt if a mirror cannot follow them."""
    if schema is None or there.schema is None:
        return replace(there, schema=schema or there.schema)
    step = compare_schemas(there.schema, schema)
    doubt = there.doubt
    if isinstance(step, Incompatible):
        doubt = doubt or ("schema", step.why)
    return replace(there, schema=schema, doubt=doubt)


def _is_ambiguous(name: Name, beside: Name) -> bool:
    """Whether *name* is in the session's database, while the event reports the one of *beside*."""
    return name.database is None and beside.database is not None


def _columns(schema: TableSchema | None) -> object:
    if schema is None:
        return None
    return [(c.name, c.shape, c.nullable) for c in mysql_columns(schema)], schema.key


def _names(schema: TableSchema | None) -> set[str]:
    return {column.name.casefold() for column in schema.columns} if schema is not None else set()


def _folded(shard: ShardId) -> tuple[str, str]:
    return shard.database.casefold(), shard.relation.casefold()


def follow_statements(
    events: Sequence[SchemaEvent], known: KnownTables
) -> tuple[tuple[Effect, ...], KnownTables]:
    """Return one effect per order and shard that its statements touch, and the tables after them.

    *events* are in log order, messages of one order as they arrived.  They contain all messages of
    an order, and none that was followed before.  *known* is the state before the first.  What is
    not a table, such as a view, has no effect.
    """
    found: list[Effect] = []
    schemas, based = dict(known.schemas), set(known.based)
    now, moves = replace(known, schemas=schemas, based=based), RenameTracker(TrackedRows(schemas))
    for order, group in groupby(events, key=lambda message: message.order):
        for message in dict.fromkeys(group):  # a collector that restarts sends some twice
            if message.snapshot:
                _take_snapshot(message, now, schemas, based)
                for shard, _ in message.tables:
                    moves.rows.restore(shard)
            elif message.text or None in dict(message.tables).values():
                moves.apply(message)
            else:
                moves.described(message)
        made = [e for shard in moves.touched if (e := _effect(shard, moves, now, order))]
        _take_effects(made, schemas, based, known.captured)
        moves.commit()
        found += made
    return tuple(found), now


def _take_effects(
    made: Iterable[Effect],
    schemas: dict[ShardId, TableSchema],
    based: set[ShardId],
    captured: Callable[[ShardId], bool],
) -> None:
    """Apply the effects of one order to *schemas* and *based*."""
    for effect in made:
        shard = effect.shard
        if isinstance(effect, Drop):
            schemas.pop(shard, None)
        elif effect.schema is not None:
            schemas[shard] = effect.schema
        if isinstance(effect, Drop | BaseNeeded) or not captured(shard):
            based.discard(shard)
        elif isinstance(effect, Empty | Replace):
            based.add(shard)


def _take_snapshot(
    message: SchemaEvent,
    known: KnownTables,
    schemas: dict[ShardId, TableSchema],
    based: set[ShardId],
) -> None:
    """Apply a snapshot's description of tables; it drops each table before it creates it."""
    for shard, schema in message.tables:
        if schema is None:
            schemas.pop(shard, None)
            based.discard(shard)
            continue
        schemas[shard] = schema
        if known.captured(shard):
            based.add(shard)


def _effect(
    shard: ShardId, moves: RenameTracker, known: KnownTables, order: Order
) -> Effect | None:
    rows = moves.rows.get(shard)
    if rows is None:
        return Drop(shard, order) if shard in known.schemas else None
    reason, why = rows.doubt or _mismatch(shard, rows, known) or ("", "")
    if why:
        again = f"take a new base of {shard}"
        more = (
            ", then rebuild its mirror" if _incompatibility(known.schemas.get(shard), rows) else ""
        )
        return BaseNeeded(shard, order, reason, f"{why}; {again}{more}", rows.schema)
    if rows.of is None:
        return Empty(shard, order, rows.schema)
    if rows.of == shard:
        return Keep(shard, order, rows.schema)
    return Replace(shard, order, rows.of, rows.schema)


def _mismatch(shard: ShardId, rows: HeldRows, known: KnownTables) -> tuple[str, str] | None:
    """Why the mirror of *shard* cannot take the rows of another shard; None if it can."""
    if rows.of in (None, shard):
        return None
    if rows.of not in known.based or not known.captured(rows.of):
        return "renamed", f"its rows are those of {rows.of}, which has no complete mirror"
    step = _incompatibility(known.schemas.get(shard), rows)
    if step is not None:
        return "schema", f"its rows are those of {rows.of}, and {step.why}"
    return None


def _incompatibility(own: TableSchema | None, rows: HeldRows) -> Incompatible | None:
    """Why a mirror with the columns *own* cannot follow those of *rows*; None if it can."""
    step = (
        compare_schemas(own, rows.schema) if own is not None and rows.schema is not None else None
    )
    return step if isinstance(step, Incompatible) else None


LONG_TEXTS = ("TINYTEXT", "TEXT", "MEDIUMTEXT", "LONGTEXT", "JSON")
WIDEST = {"VARCHAR": 16_383, "VARBINARY": 65_532}  # the server may make wider ones TEXT or BLOB
_UNSAYABLE = re.compile(r"[\U00010000-\U0010ffff]")  # information_schema uses utf8mb3


def find_differences(schema: TableSchema, server: Sequence[Column]) -> tuple[str, ...]:
    """Differences between the columns of the log and those of the server; empty if they agree.

    These are ignored, because no value changes: the case of names; NOT NULL; the text type, because
    the server may choose a larger one, and MariaDB's JSON is one; and characters of a label that
    the server cannot report.

    *server* are the table's columns as the server describes them, in order.
    """
    there = {column.name.casefold(): column for column in server}
    placed = sorted(mysql_columns(schema), key=lambda column: column.position)
    here = {column.name.casefold(): column for column in placed}
    missing = [
        f"{column.name}: the server has it, the log does not"
        for name, column in there.items()
        if name not in here
    ]
    found = [
        f"{column.name}: {why}"
        for name, column in here.items()
        if (why := _difference(column, there.get(name)))
    ]
    if not (found or missing) and list(here) != list(there):
        return tuple(_find_moved(here, there))
    return (*found, *missing)


def _difference(column: Column, there: Column | None) -> str | None:
    if there is None:
        return "the log has it, the server does not"
    if _comparable_shape(column) != _comparable_shape(there):
        return f"the log says {column}, the server {there}"
    return None


def _find_moved(here: Iterable[str], there: Iterable[str]) -> Iterator[str]:
    """Yield columns at other positions: the log has a row's values by position, without names."""
    for place, (own, other) in enumerate(zip(here, there, strict=True), start=1):
        if own != other:
            yield f"{own}: column {place} of the log, where the server has {other}"


def _comparable_shape(column: Column) -> tuple[object, ...]:
    """The part of the column's shape that a server's description can confirm."""
    wide = column.width > WIDEST.get(column.kind, column.width)
    if column.kind in LONG_TEXTS or (wide and column.kind == "VARCHAR"):
        return ("TEXT",)
    if column.kind.endswith("BLOB") or wide:
        return ("BLOB",)
    if column.kind in ("ENUM", "SET"):
        return (column.kind, tuple(_comparable_label(value) for value in column.values))
    return column.shape


def _comparable_label(label: str) -> str:
    """The label without trailing blanks and backslashes, which servers may drop or change."""
    return _UNSAYABLE.sub("?", label).replace("\\", "").rstrip(" ")


WHOLE_DIGITS = 20  # digits of the highest BIGINT UNSIGNED


def default_scalar(column: Column) -> pa.Scalar:
    """The constant default as a value of the column's Arrow type; null for NULL.

    Raises:
        ValueError: as `read_constant`, or the default does not fit the type.
    """
    value, kind = read_constant(column), arrow_type(column)
    if value is None:
        return pa.scalar(None, kind)
    try:
        return pa.scalar(_fitted(column, value, kind), kind)
    except (pa.ArrowInvalid, OverflowError, InvalidOperation) as error:
        msg = f"its default {column.default!r} does not fit its type"
        raise ValueError(msg) from error


def _fitted(column: Column, value: Value, kind: pa.DataType) -> object:
    """The value in a form that Arrow accepts for the type *kind*."""
    if column.kind == "DATETIME":
        return datetime.fromisoformat(str(value))
    if not isinstance(value, str):
        return value
    if column.kind == "DECIMAL":
        number = _rounded(value, column.digits, column.fraction)
        return number if pa.types.is_decimal(kind) else format(number, "f")
    if pa.types.is_floating(kind):
        return _finite(pa.scalar(value).cast(kind).as_py())
    if pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        return int(_rounded(value, WHOLE_DIGITS, 0))
    return value


def _rounded(text: str, digits: int, fraction: int) -> Decimal:
    """Round as the server does; a number with an exponent is a double there and must be exact."""
    number = Decimal(text)
    held = Context(prec=digits, rounding=ROUND_HALF_UP)
    rounded = held.quantize(number, Decimal(1).scaleb(-fraction))
    if "e" in text.lower() and rounded != number:
        raise InvalidOperation
    return rounded


def _finite(number: float) -> float:
    if math.isinf(number):
        raise OverflowError
    return number
