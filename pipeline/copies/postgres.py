"""Copies to Postgres: a table for each mirror; rows and position change in one transaction.

``shop.orders`` becomes table ``orders`` of schema ``shop``.  Each row has its columns, its source
and shard, and the mirror's version that wrote it.  It also has an array of the number of its load
and its rank; arrays compare from left to right.  ``sluice.copies`` has each table's position.
"""

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass, field, replace
from datetime import timedelta
from typing import Any

import numpy as np
import psycopg
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv

from pipeline.copies.copy import CopiedTable, Copy, CopyPosition, CopyStep, RankedRows
from pipeline.errors import HeldError, LostRaceError, SluiceError, UnreachableError
from pipeline.settings import TlsSettings
from pipeline.sources.postgres.session import PatientConnection, quote_for_display, tls_arguments

SOURCE, SHARD, RANK, VERSION = "_sluice_source", "_sluice_shard", "_sluice_rank", "_sluice_version"
OWN = {SOURCE: "text", SHARD: "text", RANK: "bigint[]", VERSION: "bigint"}
TYPES: Mapping[pa.DataType, str] = {
    pa.int8(): "smallint",
    pa.int16(): "smallint",
    pa.int32(): "integer",
    pa.int64(): "bigint",
    pa.float32(): "real",
    pa.float64(): "double precision",
    pa.bool_(): "boolean",
    pa.date32(): "date",
    pa.timestamp("us"): "timestamp without time zone",
    pa.timestamp("us", "UTC"): "timestamp with time zone",
    pa.string(): "text",
    pa.binary(): "bytea",
}
LONGEST = 63  # bytes of a name; Postgres silently truncates longer ones
MOST_COLUMNS = 1_500
BLACK_HOLE: Mapping[str, Any] = {  # a silent server fails within 30 s
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
POSITIONS = """
CREATE TABLE IF NOT EXISTS sluice.copies (
    name text PRIMARY KEY, owner text NOT NULL, filenode bigint, mirror text NOT NULL,
    version bigint NOT NULL, batch bigint NOT NULL, entry text NOT NULL, load integer NOT NULL,
    parts integer, load_id text)
"""
ADD_LOAD_ID = "ALTER TABLE sluice.copies ADD COLUMN IF NOT EXISTS load_id text"
STANDING = """
SELECT name, owner, filenode, mirror, version, batch, entry, load, parts,
coalesce(to_jsonb(copies) ->> 'load_id', '') FROM sluice.copies"""
STAND = """
INSERT INTO sluice.copies
VALUES (%s, %s, pg_relation_filenode(to_regclass(%s)), %s, %s, %s, %s, %s, %s, %s)
ON CONFLICT (name) DO UPDATE
SET (owner, filenode, mirror, version, batch, entry, load, parts, load_id) =
(excluded.owner, excluded.filenode, excluded.mirror, excluded.version, excluded.batch,
excluded.entry, excluded.load, excluded.parts, excluded.load_id)
"""
FILENODES = (
    "SELECT place, pg_relation_filenode(to_regclass(place)) FROM unnest(%s::text[]) AS place"
)
COLUMNS = """
SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute
WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped ORDER BY attnum
"""
KEY = """
SELECT attname FROM pg_index JOIN pg_attribute ON attrelid = indrelid AND attnum = ANY (indkey)
WHERE indrelid = to_regclass(%s) AND indisprimary
"""


@dataclass(frozen=True, slots=True)
class PostgresCopy(TlsSettings):
    """One database, in which its user makes schemas and tables.

    ``patience`` is the time limit of one statement; one statement may write a whole part.
    """

    host: str
    """Host name or address of the server."""
    database: str
    """Name of the database."""
    user: str
    """The user that writes the copy."""
    port: int = 5432
    """Port of the server."""
    password: str = field(default="", repr=False)
    """The password of `user`."""
    patience: timedelta = timedelta(minutes=10)

    @property
    def place(self) -> str:
        """The database, by its address."""
        return f"postgres://{self.host}:{self.port}/{self.database}"

    def opened(self, owner: str) -> "PostgresTarget":
        return PostgresTarget(self, owner)


@dataclass(eq=False)
class PostgresTarget:
    """A client with one connection; after a failure the next request connects again."""

    settings: PostgresCopy
    owner: str
    _connection: Any = field(default=None, repr=False)

    def positions(self) -> Mapping[str, CopyPosition]:
        """Read ``sluice.copies``; empty if it does not exist."""
        with self._translated(""):
            link = self._open()
            if link.execute("SELECT to_regclass('sluice.copies')").fetchone()[0] is None:
                return {}
            rows = link.execute(STANDING).fetchall()
            files = dict(link.execute(FILENODES, ([_place(one[0]) for one in rows],)).fetchall())
        for name, owner, *_ in rows:
            if owner != self.owner:
                raise self._taken(f"the copy of {name} there is that of the lake {owner}")
        return {one[0]: _position(one, files) for one in rows}

    def shaped(self, table: CopiedTable) -> None:
        """Create the table, or add missing columns; types are never changed."""
        wanted = self._wanted(table)
        with self._translated(table.name):
            link, place = self._open(), _place(table.name)
            self._make_schema(table.name.partition(".")[0])
            there = dict(link.execute(COLUMNS, (place,)).fetchall())
            if not there:
                columns = [f"{quote_for_display(one)} {kind}" for one, kind in wanted.items()]
                key = ", ".join(map(quote_for_display, _key(table)))
                link.execute(
                    _raw(f"CREATE TABLE {place} ({', '.join(columns)}, PRIMARY KEY ({key}))")
                )
                return
            own = {one for (one,) in link.execute(KEY, (place,)).fetchall()}
            self._require(table, wanted, there, own)
            for one in [name for name in wanted if name not in there]:
                link.execute(
                    _raw(f"ALTER TABLE {place} ADD COLUMN {quote_for_display(one)} {wanted[one]}")
                )

    def write(self, table: CopiedTable, step: CopyStep) -> int:
        """Write in one transaction, with an advisory lock on this table."""
        with self._translated(table.name):
            link = self._open()
            self._make_positions()
            with link.transaction():
                link.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (table.name,))
                self._require_position(table, step.was)
                self._put(table, step)
                gone = self.take_rows(table, step)
                if step.sweeps:
                    self._sweep(table, step.now.load)
                place = _place(table.name)
                link.execute(STAND, (table.name, self.owner, place, *astuple(step.now)))
        return gone

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.pgconn.finish()  # close() would wait for a server that may be gone

    def _put(self, table: CopiedTable, step: CopyStep) -> None:
        """Upsert the rows that came; raise if a newer row of the same source blocks one."""
        if not (count := self._stage(table, step, step.came, [*table.columns.names, *OWN])):
            return
        names, key = [*table.columns.names, *OWN], _key(table)
        every = ", ".join(map(quote_for_display, names))
        new = ", ".join(
            f"{quote_for_display(one)} = excluded.{quote_for_display(one)}"
            for one in names
            if one not in key
        )
        done = self._open().execute(
            _raw(
                f"INSERT INTO {_place(table.name)} AS there ({every})"  # noqa: S608 - quoted names
                f" SELECT {every} FROM staged"
                f" ON CONFLICT ({', '.join(map(quote_for_display, key))}) DO UPDATE SET {new}"
                f" WHERE there.{RANK} <= excluded.{RANK}"
                f" OR there.{SOURCE} IS DISTINCT FROM excluded.{SOURCE}"
            )
        )
        if done.rowcount != count:
            detail = (
                f"{count - done.rowcount} rows of {table.name} in {self.settings.place} are newer"
                " than the mirror's: another client writes there; stop it, and drop the table"
            )
            raise HeldError("copy_written", detail)

    def take_rows(self, table: CopiedTable, step: CopyStep) -> int:
        """Delete the rows that went, except newer ones, other sources' and those of this step.

        Returns how many of the keys that went have no row in the table.
        """
        key = _key(table)
        if not self._stage(table, step, step.went, [*dict.fromkeys((*table.key, *OWN))]):
            return 0
        same = " AND ".join(
            f"there.{quote_for_display(one)} = staged.{quote_for_display(one)}" for one in key
        )
        self._open().execute(
            _raw(
                f"DELETE FROM {_place(table.name)} AS there"  # noqa: S608 - quoted names
                f" USING staged WHERE {same}"
                f" AND there.{SOURCE} IS NOT DISTINCT FROM staged.{SOURCE}"
                f" AND there.{RANK} <= staged.{RANK} AND there.{VERSION} < staged.{VERSION}"
            )
        )
        there = f"SELECT FROM {_place(table.name)} AS there WHERE {same}"
        left = _raw(f"SELECT count(*) FROM staged WHERE NOT EXISTS ({there})")  # noqa: S608 - quoted
        return int(self._open().execute(left).fetchone()[0])

    def _sweep(self, table: CopiedTable, load: int) -> None:
        gone = f"DELETE FROM {_place(table.name)} WHERE {RANK}[1] < {load}"  # noqa: S608 - quoted
        self._open().execute(_raw(gone))

    def _stage(
        self, table: CopiedTable, step: CopyStep, rows: Iterable[RankedRows], names: list[str]
    ) -> int:
        """Write *rows* to a temporary table that ends with the transaction; return their number."""
        link, every = self._open(), ", ".join(map(quote_for_display, names))
        link.execute("DROP TABLE IF EXISTS staged")
        count = 0
        for some in rows:
            if not count:
                of = f"SELECT {every} FROM {_place(table.name)} WITH NO DATA"  # noqa: S608 - quoted
                link.execute(_raw(f"CREATE TEMPORARY TABLE staged ON COMMIT DROP AS {of}"))
            with link.cursor().copy(_raw(f"COPY staged ({every}) FROM STDIN (FORMAT csv)")) as to:
                to.write(_csv(_texts(some, step.now).select(names)))
            count += len(some.rows)
        return count

    def _make_positions(self) -> None:
        self._make_schema("sluice")
        link = self._open()
        there = dict(link.execute(COLUMNS, ("sluice.copies",)).fetchall())
        if not there:
            link.execute(POSITIONS)
        elif "load_id" not in there:  # an earlier version made it
            link.execute(ADD_LOAD_ID)

    def _make_schema(self, name: str) -> None:
        """Create the schema only if it is missing: an existing one needs no right to create it."""
        asked = "SELECT 1 FROM pg_namespace WHERE nspname = %s"
        if self._open().execute(asked, (name,)).fetchone() is None:
            self._open().execute(_raw(f"CREATE SCHEMA IF NOT EXISTS {quote_for_display(name)}"))

    def _require_position(self, table: CopiedTable, was: CopyPosition | None) -> None:
        asked = f"{STANDING} WHERE name = %s"
        row = self._open().execute(asked, (table.name,)).fetchone()
        if row is not None and row[1] != self.owner:
            raise self._taken(f"the copy of {table.name} there is that of the lake {row[1]}")
        files = dict(self._open().execute(FILENODES, ([_place(table.name)],)).fetchall())
        stands = None if row is None else _position(row, files)
        if stands != was:
            msg = f"{self.settings.place}: another client has written the copy of {table.name}"
            raise LostRaceError(msg)

    def _wanted(self, table: CopiedTable) -> dict[str, str]:
        """The columns that the table is to have, with their types."""
        wanted = {one.name: _kind(table.name, one) for one in table.columns} | OWN
        long = [one for one in (*wanted, *table.name.split(".", 1)) if len(one.encode()) > LONGEST]
        if long or len(wanted) > MOST_COLUMNS or len(wanted) < len(table.columns) + len(OWN):
            what = (
                f"the name {long[0]!r}"
                if long
                else f"{len(table.columns)} columns and those of Sluice"
            )
            raise HeldError("copy_columns", f"{table.name}: Postgres cannot hold {what}")
        return wanted

    def _require(
        self,
        table: CopiedTable,
        wanted: Mapping[str, str],
        there: Mapping[str, str],
        key: set[str],
    ) -> None:
        place = _place(table.name)
        if not OWN.keys() <= there.keys():
            raise self._taken(f"table {place} exists there and was not made by Sluice")
        if key != {*_key(table)}:
            problem = f"{place} is keyed by {', '.join(sorted(key))}, its mirror by"
            detail = (
                f"{problem} {', '.join(sorted(_key(table)))}; drop it and its line in sluice.copies"
            )
            raise HeldError("copy_key", detail)
        for one, kind in wanted.items():
            if there.get(one, kind) != kind:
                made = f"ALTER TABLE {place} ALTER COLUMN {quote_for_display(one)} TYPE {kind}"
                problem = (
                    f"{place}.{quote_for_display(one)} is {there[one]}, and the mirror has {kind}"
                )
                raise HeldError("copy_columns", f"{problem}; {made}")

    def _taken(self, problem: str) -> HeldError:
        detail = f"{self.settings.place}: {problem}; name another database, or drop what is there"
        return HeldError("copy_taken", detail)

    def _open(self) -> Any:
        if self._connection is None:
            self._connection = self._dial()
        return self._connection

    def _dial(self) -> Any:
        own = self.settings
        link: Any = PatientConnection.connect(
            host=own.host,
            port=own.port,
            user=own.user,
            password=own.password,
            dbname=own.database,
            connect_timeout=5,
            application_name="sluice",
            client_encoding="UTF8",
            autocommit=True,
            **BLACK_HOLE,
            **tls_arguments(own, own.host),
        )
        link.patience = own.patience.total_seconds()
        milliseconds = int(own.patience.total_seconds() * 1_000)
        link.execute(
            f"SET statement_timeout = {milliseconds}; SET timezone = 'UTC';"
            "SET datestyle = 'ISO'; SET search_path = pg_catalog"
        )
        return link

    @contextmanager
    def _translated(self, table: str) -> Iterator[None]:
        try:
            yield
        except SluiceError:
            self.close()  # this rolls back an open transaction
            raise
        except (psycopg.Error, OSError, UnicodeError) as error:
            self.close()
            raise self._said(error, table) from None  # the server's text may hold values of rows

    def _said(self, error: Exception, table: str) -> SluiceError:
        state = getattr(error, "sqlstate", None) or ""
        if state[:2] in ("22", "23"):
            diag = getattr(error, "diag", None)
            named = getattr(diag, "column_name", None) or getattr(diag, "constraint_name", None)
            problem = f"{table}: {self.settings.place} takes no value of it: {type(error).__name__}"
            where = f" at {named}" if named else ""
            return HeldError("copy_value", f"{problem}{where} ({state})")
        said = " ".join(str(error).split())
        if state:
            said = f"{said} ({state})"
        advice = self.settings.tls_advice(said, self.settings.host)
        return UnreachableError(f"{self.settings.place}: {said}{advice}")


def _position(row: Sequence[Any], files: Mapping[str, int | None]) -> CopyPosition:
    """The position in a row of ``sluice.copies``; without a mirror if the table's file changed.

    A table that is dropped, emptied or rewritten (VACUUM FULL) gets another file.
    """
    name, _, written, *rest = row
    position = CopyPosition(*rest)
    there = written is not None and files.get(_place(name)) == written
    return position if there else replace(position, mirror="", entry="", parts=0, load_id="")


def _kind(table: str, column: pa.Field) -> str:
    if column.type in TYPES:
        return TYPES[column.type]
    if pa.types.is_decimal(column.type):
        return f"numeric({column.type.precision},{column.type.scale})"
    raise HeldError("copy_columns", f"{table}.{column.name} is {column.type}: no copy holds that")


def _key(table: CopiedTable) -> tuple[str, ...]:
    return (*table.key, SOURCE, SHARD) if table.sharded else table.key


def _place(table: str) -> str:
    """The quoted name of the table; the part before the dot is the schema."""
    schema, _, name = table.partition(".")
    return f"{quote_for_display(schema)}.{quote_for_display(name)}"


def _raw(statement: str) -> bytes:
    """A statement without arguments, as bytes, so psycopg reads no ``%`` as a placeholder."""
    return statement.encode()


def _texts(some: RankedRows, now: CopyPosition) -> pa.Table:
    """The rows with the columns ``OWN``, as texts that COPY reads."""
    rows = some.rows
    for number, one in enumerate(rows.schema):
        if pa.types.is_binary(one.type):
            values = (None if v is None else "\\x" + v.hex() for v in rows[one.name].to_pylist())
            rows = rows.set_column(number, one.name, pa.array(list(values), pa.string()))
    parts = [pa.array(line).cast(pa.string()) for line in some.owned.rank]
    rank = pc.binary_join_element_wise(str(now.load), *parts, ",")
    own = {
        SOURCE: some.owned.source,
        SHARD: some.owned.shard,
        RANK: pc.binary_join_element_wise("{", rank, "}", ""),
        VERSION: pa.array(np.full(len(rows), now.version)),
    }
    for name, values in own.items():
        rows = rows.append_column(name, values)
    return rows


def _csv(rows: pa.Table) -> bytes:
    """The rows as CSV; every value is quoted, and NULL is empty."""
    made = io.BytesIO()
    options = pcsv.WriteOptions(include_header=False, quoting_style="all_valid")
    pcsv.write_csv(rows, made, options)
    return made.getvalue()


COPY: type[Copy] = PostgresCopy
