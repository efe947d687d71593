"""Where are the rows of each table after the statements of one order?  Or does nobody know?

Rows are moved as the statements say, one after the other, so that chains and swaps come out right;
a doubt stays with the rows wherever they go.  Pure.
"""

from collections.abc import Mapping
from dataclasses import InitVar, dataclass, field, replace

from pipeline.model import ShardId
from pipeline.schema.model import Incompatible, TableSchema, Told
from pipeline.sources.mysql.alter import Altered
from pipeline.sources.mysql.column import columns
from pipeline.sources.mysql.evolution import compare
from pipeline.sources.mysql.reader import Name
from pipeline.sources.mysql.statement import (
    Created,
    DatabaseDropped,
    Dropped,
    Harmless,
    Renamed,
    Statement,
    Truncated,
    UnknownStatement,
    read,
)

OTHER_COLUMNS = (
    "CREATE TABLE IF NOT EXISTS .. LIKE left it as it was, but the collector takes the other"
    " table's columns for its own: let it read all tables again"
    " (docs/runbooks/blocked.md#connector)"
)


@dataclass(frozen=True, slots=True)
class Rows:
    """What a table holds: the rows *of* a shard as it was before, none, or nobody knows.

    ``doubt`` is a reason in one word, and why.
    """

    of: ShardId | None
    schema: TableSchema | None
    doubt: tuple[str, str] | None = None


@dataclass(eq=False)
class Moves:
    """The tables of a source while the statements of one order run, one after the other."""

    schemas: InitVar[Mapping[ShardId, TableSchema]]
    rows: dict[ShardId, Rows] = field(init=False)
    touched: dict[ShardId, None] = field(default_factory=dict)

    def __post_init__(self, schemas: Mapping[ShardId, TableSchema]) -> None:
        """Begin with every table as it is."""
        self.rows = {shard: Rows(shard, schema) for shard, schema in schemas.items()}

    def play(self, told: Told) -> None:
        """Run the statement of *told*; what it names and what is described must agree."""
        named = self._run(read(told.text), told)
        strange = [table for table in told.tables if table[0] not in named]
        for shard, schema in strange:
            self._doubt(shard, ("statement", "a statement that does not name it"), schema)
        for shard in sorted(named) if strange else ():
            self._doubt(shard, ("statement", f"it is told of as {strange[0][0]}"))

    def described(self, told: Told) -> None:
        """Take columns that rows tell of themselves, without a statement: rows stay as they are."""
        for shard, schema in told.tables:
            there = self.rows.get(shard)
            if schema is not None:
                self.rows[shard] = _followed(there, schema) if there else Rows(shard, schema)
                self.touched[shard] = None

    def settle(self, schemas: Mapping[ShardId, TableSchema]) -> None:
        """End an order: every table holds its own rows again, with the columns of *schemas*."""
        for shard in self.touched:
            self.restore(shard, schemas)
        self.touched.clear()

    def restore(self, shard: ShardId, schemas: Mapping[ShardId, TableSchema]) -> None:
        """Let *shard* hold its own rows, or be gone if *schemas* lack it."""
        self.rows.pop(shard, None)
        if shard in schemas:
            self.rows[shard] = Rows(shard, schemas[shard])

    def _run(self, statement: Statement, told: Told) -> set[ShardId]:
        """Run one statement; returns the tables whose description it accounts for."""
        match statement:
            case Created():
                named = self._create(statement, told)
            case Dropped(tables):
                named = {self._remove(self._shard(name, told)) for name in tables}
            case DatabaseDropped(database):
                named = self._drop_database(database)
            case Truncated(table):
                named = {self._empty(self._shard(table, told), None)}
            case Renamed(pairs):
                named = {self._move(old, new, told) for old, new in pairs}
            case Altered():
                named = self._alter(statement, told)
            case UnknownStatement():
                named = self._unread(statement, told)
            case Harmless():
                named = self._follow(told)
        return named

    def _follow(self, told: Told) -> set[ShardId]:
        """A statement that moves no row may still change columns or a key: CREATE INDEX does."""
        known = {shard: schema for shard, schema in told.tables if shard in self.rows}
        for shard, schema in known.items():
            self.rows[shard] = _followed(self.rows[shard], schema)
            self.touched[shard] = None
        return set(known)

    def _drop_database(self, database: str) -> set[ShardId]:
        """Take its tables away; those of one in other letters may be another one's: in doubt."""
        inside = [shard for shard in self.rows if shard.database == database]
        if inside:
            return {self._remove(shard) for shard in inside}
        folded = database.casefold()
        alike = {shard for shard in self.rows if shard.database.casefold() == folded}
        for shard in alike:
            self._doubt(shard, ("statement", f"DROP DATABASE {database}, which may be another one"))
        return alike

    def _create(self, statement: Created, told: Told) -> set[ShardId]:
        shard = self._shard(statement.table, told)
        there, schema = self.rows.get(shard), dict(told.tables).get(shard)
        if schema is None:
            if there is None or not statement.unless_there:
                self._doubt(shard, ("statement", "CREATE TABLE, which the collector did not read"))
        elif makes_anew(statement, there=there is not None):
            self._empty(shard, schema)
        elif statement.selects:
            why = "CREATE TABLE .. SELECT was logged as a statement, without its rows"
            self._doubt(shard, ("statement", why), schema)
        elif not statement.unless_there:
            self._doubt(shard, ("created", "CREATE TABLE, and its end before was not told"), schema)
        elif there is not None and _columns(there.schema) != _columns(schema):
            self._doubt(shard, ("created", OTHER_COLUMNS))
        return {shard}

    def _alter(self, statement: Altered, told: Told) -> set[ShardId]:
        for other in statement.others:
            why = f"{statement.table.relation} exchanges rows with it"
            self._doubt_all(other, statement.table, told, ("statement", why))
        target = self._shard(statement.to or statement.table, told)
        schema = dict(told.tables).get(target)
        if statement.to is not None and _astray(statement.table, statement.to):
            return {self._move(statement.table, statement.to, told)}
        shard = self._shard(statement.table, told)
        there = self.rows.get(shard)
        if there is None and schema is not None:
            self._doubt(target, ("statement", "ALTER TABLE, and nothing was known of it"), schema)
        if there is None:
            return {target}
        self.touched[shard] = None
        self.rows[shard] = _altered(there, schema, statement)
        return {self._move(statement.table, statement.to, told) if statement.to else shard}

    def _move(self, old: Name, new: Name, told: Told) -> ShardId:
        """Give the rows of *old* to *new*; returns what *new* is."""
        target = self._shard(new, told)
        schema = dict(told.tables).get(target)
        if _astray(old, new):
            why = f"a {old.relation} of a database that Debezium does not tell became {target}"
            it_went = f"{why}, maybe this one (then ignore it under `tables`)"
            self._doubt_all(old, new, told, ("renamed", it_went))
            self._doubt(target, ("renamed", why), schema)
            return target
        source = self._shard(old, told)
        there = self.rows.pop(source, None)
        self.touched[source] = None
        if there is not None and target not in self.rows:
            self.touched[target] = None
            self.rows[target] = _followed(there, schema)
        elif schema is not None or target in self.rows:
            self._doubt(
                target, ("renamed", f"it was {source}, of which too little is known"), schema
            )
        return target  # of a view nothing is told or known

    def _unread(self, statement: UnknownStatement, told: Told) -> set[ShardId]:
        """Doubt every table that it may be about."""
        names = {name.casefold() for name in statement.names}
        places = {*names, (told.database or "").casefold()}
        doubt = ("statement", f"a statement that cannot be read: {statement.why}")
        for shard in tuple(self.rows):
            if shard.relation.casefold() in names and shard.database.casefold() in places:
                self._doubt(shard, doubt)
        for shard, schema in told.tables:
            self._doubt(shard, doubt, schema)
        return {shard for shard, _ in told.tables}

    def _remove(self, shard: ShardId) -> ShardId:
        self.rows.pop(shard, None)
        self.touched[shard] = None
        return shard

    def _empty(self, shard: ShardId, schema: TableSchema | None) -> ShardId:
        there = self.rows.get(shard)
        self.rows[shard] = Rows(None, schema or (there.schema if there else None))
        self.touched[shard] = None
        return shard

    def _doubt(
        self, shard: ShardId, doubt: tuple[str, str], schema: TableSchema | None = None
    ) -> None:
        there = self.rows.get(shard)
        self.rows[shard] = Rows(shard, schema or (there.schema if there else None), doubt)
        self.touched[shard] = None

    def _doubt_all(self, name: Name, beside: Name, told: Told, doubt: tuple[str, str]) -> None:
        """Doubt what *name* is; without a database, all that bear it, if *beside* had its own."""
        if not _astray(name, beside):
            self._doubt(self._shard(name, told), doubt)
            return
        for shard in tuple(self.rows):
            if shard.relation.casefold() == name.relation.casefold():
                self._doubt(shard, doubt)

    def _shard(self, name: Name, told: Told) -> ShardId:
        """The table that *name* means; in other letters, if the server takes them for the same."""
        exact = ShardId(name.database or told.database or "", name.relation)
        described = [shard for shard, _ in told.tables]
        if exact in self.rows or exact in described:
            return exact
        alike = {shard for shard in (*described, *self.rows) if _folded(shard) == _folded(exact)}
        return alike.pop() if len(alike) == 1 else exact


def makes_anew(statement: Statement, *, there: bool | None) -> bool:
    """Whether it makes a table that begins empty; *there* if there was one of its name.

    Where that is unknown (None), IF NOT EXISTS may have left an older table with its rows.

    Measured: MySQL logs CREATE TABLE IF NOT EXISTS t LIKE u though t exists.
    """
    if not isinstance(statement, Created) or statement.selects:
        return False
    may_exist = statement.unless_there if there is None else there
    return statement.replaces or not may_exist


def _altered(there: Rows, schema: TableSchema | None, statement: Altered) -> Rows:
    """What a table holds after its ALTER; an older doubt stays."""
    after = _followed(there, schema)
    if after.doubt is not None:
        return after
    if statement.doubts:
        return replace(after, doubt=("statement", statement.doubts[0]))
    if statement.described and schema is None:
        return replace(after, doubt=("statement", "ALTER TABLE, which the collector did not read"))
    old, new = (_names(there.schema), _names(schema))
    again = [name for name in statement.left if name.casefold() in old & new]
    if again:
        why = f"column {again[0]} was dropped or renamed, and there is one of its name"
        return replace(after, doubt=("schema", why))
    return replace(after, of=None) if statement.emptied else after


def _followed(there: Rows, schema: TableSchema | None) -> Rows:
    """The same rows under other columns, if all of them mean the same there."""
    if schema is None or there.schema is None:
        return replace(there, schema=schema or there.schema)
    step = compare(there.schema, schema)
    doubt = there.doubt
    if isinstance(step, Incompatible):
        doubt = doubt or ("schema", step.why)
    return replace(there, schema=schema, doubt=doubt)


def _astray(name: Name, beside: Name) -> bool:
    """Whether *name* stands in the session's database, while what is told is that of *beside*."""
    return name.database is None and beside.database is not None


def _columns(schema: TableSchema | None) -> object:
    if schema is None:
        return None
    return [(c.name, c.shape, c.nullable) for c in columns(schema)], schema.key


def _names(schema: TableSchema | None) -> set[str]:
    return {column.name.casefold() for column in schema.columns} if schema is not None else set()


def _folded(shard: ShardId) -> tuple[str, str]:
    return shard.database.casefold(), shard.relation.casefold()
