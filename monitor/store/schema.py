"""Defines the tables of the store, and upgrades an older store to this version.

The upgrade runs in the transaction of the caller. It refuses a store of a newer version, or of
a build before the first release.

Times are whole microseconds since 1970 UTC in the database, and aware datetimes in Python. Values
are JSON text of their types. An unknown field is an error, so no value is lost silently.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, TypeVar

from pydantic import TypeAdapter
from sqlalchemy import (
    JSON,
    BigInteger,
    Column,
    Connection,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    delete,
    func,
    insert,
    inspect,
    select,
    update,
)
from sqlalchemy.engine import Dialect
from sqlalchemy.schema import CreateColumn
from sqlalchemy.types import TypeDecorator

from checks.model import Outcome
from pipeline.errors import ConfigError

T = TypeVar("T")


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def encode_value(kind: Any, value: object) -> str:
    """Encode *value* of type *kind*; times keep their microseconds, durations are ISO 8601."""
    return _adapter(kind).dump_json(value).decode()


def decode_value(kind: type[T], text: str) -> T:
    """Decode what :func:`encode_value` wrote."""
    adapter: TypeAdapter[T] = _adapter(kind)  # type: ignore[arg-type]  # types are hashable
    return adapter.validate_json(text)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class Instant(TypeDecorator[datetime]):
    """A column of instants. Integers sort and subtract alike on every database."""

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> int | None:
        """Refuse a naive datetime, because its clock is unknown."""
        return None if value is None else to_microseconds(value)

    def process_result_value(self, value: int | None, dialect: Dialect | None) -> datetime | None:
        """Return the moment in UTC."""
        return None if value is None else _EPOCH + value * _MICROSECOND


def to_microseconds(instant: datetime) -> int:
    """Return microseconds since 1970 UTC, exactly.

    Raises:
        ValueError: *instant* is naive.
    """
    if instant.tzinfo is None:
        raise ValueError(f"{instant} has no time zone")
    return (instant - _EPOCH) // _MICROSECOND


METADATA = MetaData()
_NAME = String(250)
_WORD = String(40)


def _table(name: str, *parts: Column[object] | Index | UniqueConstraint) -> Table:
    return Table(name, METADATA, *parts, sqlite_autoincrement=name in {"verdicts", "outbox"})


def _column(name: str, kind: object, **options: object) -> Column[object]:
    return Column(name, kind, **{"nullable": False, **options})  # type: ignore[arg-type]


def _key(name: str, kind: object, *links: ForeignKey) -> Column[object]:
    return Column(name, kind, *links, primary_key=True)  # type: ignore[arg-type]


version = _table("version", _key("number", Integer))
fences = _table(
    "fences",
    _key("source", _NAME),
    _key("at", Instant),
    _column("number", BigInteger),
    _column("identity", _NAME),
    _column("kind", _NAME),
    _column("position", Text),
)
verdicts = _table(
    "verdicts",
    _key("id", Integer),
    _column("table", _NAME),
    _column("check", _NAME),
    _column("at", Instant),
    _column("outcome", _WORD),
    _column("reason", Text),
    _column("code", _NAME),
    _column("guilty", JSON),
    _column("value", Float, nullable=True),
    _column("cause", _NAME),
    _column("run", _NAME),
    _column("as_of", Text),
    _column("more", BigInteger, nullable=True),
    Index("verdicts_by_check", "table", "check", "outcome", "at"),
    Index("verdicts_by_time", "at"),
)
fail_ends = _table(
    "fail_ends",
    _key("table", _NAME),
    _key("check", _NAME),
    _column("at", Instant),
)
memory = _table(
    "memory",
    _key("table", _NAME),
    _key("check", _NAME),
    _column("kept", JSON),
    _column("at", Instant),
)
incidents = _table(
    "incidents",
    _key("id", _NAME),
    _column("cause", _NAME),
    _column("state", _WORD),
    _column("severity", _WORD),
    _column("opened", Instant),
    _column("turned", Instant),
    _column("body", Text),
    _column("ack_who", _NAME, nullable=True),
    _column("ack_at", Instant, nullable=True),
    Index("incidents_by_state", "state", "opened"),
)
outbox = _table(
    "outbox",
    _key("number", Integer),
    _column("channel", _NAME),
    _column("fingerprint", _NAME),
    _column("message", Text),
    _column("put", Instant),
    _column("state", _WORD),
    _column("done", Instant, nullable=True),
    _column("why", Text),
    UniqueConstraint("channel", "fingerprint"),
    Index("outbox_by_state", "state", "channel", "number"),
)
standings = _table("standings", _key("channel", _NAME), _column("body", Text))
certificates = _table(
    "certificates",
    _key("id", _NAME),
    _column("table", _NAME),
    _column("stage", _WORD),
    _column("cut", Instant),
    _column("issued", Instant),
    _column("evidence", Text),
    _column("unknown", JSON),
    _column("revoked", Instant, nullable=True),
    _column("why", Text),
    Index("certificates_by_cut", "table", "stage", "cut"),
    Index("certificates_by_time", "issued"),
)
ticks = _table(
    "ticks",
    _key("job", _NAME),
    _key("planned", Instant),
    _column("until", Instant),
    _column("many", Integer),
    _column("started", Instant, nullable=True),
    _column("finished", Instant, nullable=True),
    _column("result", _WORD),
    _column("detail", Text),
)
tick_totals = _table(
    "tick_totals", _key("job", _NAME), _key("result", _WORD), _column("ticks", BigInteger)
)
waivers = _table(
    "waivers",
    _key("id", _NAME),
    _column("reason", Text),
    _column("who", _NAME),
    _column("at", Instant),
    _column("until", Instant, nullable=True),
    _column("withdrawn", Instant, nullable=True),
    _column("withdrawn_by", _NAME, nullable=True),
    _column("withdrawn_why", Text, nullable=True),
)
accounts = _table(
    "accounts",
    _key("lane", _NAME),
    _key("table", _NAME),
    _key("batch", BigInteger),
    _column("at", Instant),
    _column("terms", JSON),
    _column("residual", BigInteger),
)
account_totals = _table(
    "account_totals", _key("table", _NAME), _key("term", _NAME), _column("changes", BigInteger)
)
standstills = _table(
    "standstills",
    _key("id", _NAME),
    _key("kind", _WORD),
    _column("subject", _NAME),
    _column("reason", _NAME),
    _column("detail", Text),
    _column("tables", JSON),
    _column("since", Instant),
)
rereads = _table(
    "rereads",
    _key("id", _NAME),
    _column("table", _NAME),
    _column("reason", Text),
    _column("who", _NAME),
    _column("at", Instant),
    _column("ended", Instant, nullable=True),
    _column("states", JSON),
    _column("wish", JSON, nullable=True),
    _column("proofs", JSON, nullable=True),
)
resubmissions = _table(
    "resubmissions",
    _key("id", _NAME),
    _column("change", Text),
    _column("table", _NAME),
    _column("reason", Text),
    _column("who", _NAME),
    _column("at", Instant),
    _column("ended", Instant, nullable=True),
    _column("batch", BigInteger, nullable=True),
    _column("why", Text),
    _column("original", Text),
    _column("body", Text),
)
pauses = _table(
    "pauses",
    _key("id", _NAME),
    _column("table", _NAME),
    _column("reason", Text),
    _column("who", _NAME),
    _column("since", Instant),
    _column("at", Instant),
    _column("until", Instant, nullable=True),
    _column("ended", Instant, nullable=True),
    _column("ended_by", _NAME),
)
archive_windows = _table(
    "archive_windows",
    _key("id", _NAME),
    _column("table", _NAME),
    _column("since", Instant),
    _column("until", Instant),
    _column("column", _NAME),
    _column("before", _NAME),
    _column("reason", Text),
    _column("who", _NAME),
    _column("at", Instant),
)
archive_withdrawals = _table(
    "archive_withdrawals",
    _key("id", _NAME, ForeignKey("archive_windows.id")),
    _column("reason", Text),
    _column("who", _NAME),
    _column("at", Instant),
)
table_states = _table(
    "table_states",
    _key("table", _NAME),
    _key("since", Instant),
    _column("state", _WORD),
    _column("why", Text),
)
ledger_open = _table(
    "ledger_open",
    _key("lane", _NAME),
    _key("table", _NAME),
    _key("batch", BigInteger),
    _column("at", Instant),
    _column("counts", JSON, nullable=True),
)
ledger_minutes = _table(
    "ledger_minutes",
    _key("table", _NAME),
    _key("hop", _WORD),
    _key("minute", BigInteger),
    _column("went_in", JSON),
    _column("came_out", JSON),
    _column("explained", JSON),
    _column("unknown", Integer),
    _column("residual", BigInteger),
    _column("batch", BigInteger),
    _column("at", Instant),
    _column("made_good", JSON(none_as_null=True), nullable=True),
    _column("proof", Text, nullable=True),
    _column("found", Instant, nullable=True),
    Index("ledger_minutes_by_residual", "table", "hop", "residual", "unknown"),
)
ledger_received = _table(
    "ledger_received",
    _key("id", Integer),
    _column("minute", BigInteger),
    _column("part", Integer),
    _column("batch", BigInteger),
    _column("counts", Text),
)
ledger_reach = _table(
    "ledger_reach",
    _key("lane", _NAME),
    _key("table", _NAME),
    _column("first", BigInteger),
    _column("last", BigInteger),
    _column("mirror", Text, nullable=True),
)
silences = _table("silences", _key("id", _NAME), _column("end", Instant), _column("body", Text))


def _wishes(connection: Connection) -> None:
    """Add the selected rows of rereads, and the results of their checks."""
    _add_columns(connection, rereads, "wish", "proofs")


def _cut_off_findings(connection: Connection) -> None:
    """Add the number of rows that a FAIL does not name, and the ends of waivers."""
    _add_columns(connection, verdicts, "more")
    _add_columns(connection, waivers, "until", "withdrawn", "withdrawn_by", "withdrawn_why")
    cut_off = verdicts.c.more.is_(None) & verdicts.c.reason.like("% more rows differ%")
    connection.execute(update(verdicts).where(cut_off).values(more=1))


def _ends_of_fails(connection: Connection) -> None:
    """Add when the last FAIL of each check ended, as far as the history shows it."""
    METADATA.create_all(connection)
    own = (verdicts.c.table, verdicts.c.check)
    failed = (
        select(*own, func.max(verdicts.c.id).label("id"))
        .where(verdicts.c.outcome == Outcome.FAIL.value)
        .group_by(*own)
        .subquery()
    )
    passed = (
        select(func.min(verdicts.c.id))
        .join(failed, (failed.c.table == own[0]) & (failed.c.check == own[1]))
        .where(verdicts.c.outcome == Outcome.PASS.value, verdicts.c.id > failed.c.id)
        .group_by(*own)
    )
    first = select(*own, verdicts.c.at).where(verdicts.c.id.in_(passed))
    connection.execute(delete(fail_ends))
    connection.execute(insert(fail_ends).from_select(["table", "check", "at"], first))


def _proofs_of_residuals(connection: Connection) -> None:
    """Add when rows were found to be missing, and the proof that they were made good."""
    _add_columns(connection, ledger_minutes, "made_good", "proof", "found")
    lost = (ledger_minutes.c.residual != 0) & ledger_minutes.c.found.is_(None)
    connection.execute(update(ledger_minutes).where(lost).values(found=ledger_minutes.c.at))


def _mirrors_of_copies(connection: Connection) -> None:
    """Add the lineage of the versions that a copy was compared through."""
    _add_columns(connection, ledger_reach, "mirror")


def _add_columns(connection: Connection, table: Table, *names: str) -> None:
    """Add the columns that the store does not have yet."""
    there = {column["name"] for column in inspect(connection).get_columns(table.name)}
    name = connection.dialect.identifier_preparer.format_table(table)
    for column in (table.c[each] for each in names if each not in there):
        definition = CreateColumn(column).compile(dialect=connection.dialect)
        connection.exec_driver_sql(f"ALTER TABLE {name} ADD COLUMN {definition}")


STEPS: tuple[Callable[[Connection], None], ...] = (
    *(METADATA.create_all,) * 3,
    _wishes,
    *(METADATA.create_all,) * 3,
    _cut_off_findings,
    _ends_of_fails,
    METADATA.create_all,
    _proofs_of_residuals,
    _mirrors_of_copies,
    METADATA.create_all,
)
"""The first makes a store, each after it the next version; a released step is never changed.

The second adds backfills, the third pauses and states of tables, the fourth the selected rows of
backfills, the fifth corrections of messages, the sixth archive windows, the seventh their
withdrawals, the eighth the rows that a FAIL does not name and how waivers end, the ninth when FAILs
ended, the tenth the ledger by minute, the eleventh proofs that its residuals are made good, the
twelfth the lineage of a copy: its mirror, and the id of its load if it has one, the thirteenth
counts of topics in minutes that are not over.
"""
FIRST = 2
"""The version that the first step makes; no release has written an earlier one."""


def upgrade_schema(connection: Connection) -> None:
    """Bring the store to this version, inside the caller's transaction.

    Raises:
        ConfigError: a newer version of Sluice wrote it, or a build before the first release.
    """
    found = 0
    if inspect(connection).has_table("version"):
        found = connection.scalar(select(version.c.number)) or 0
    newest = FIRST + len(STEPS) - 1
    if found > newest:
        raise ConfigError(
            f"the store has version {found}, but this Sluice supports up to {newest}; "
            "run the newer Sluice, or set another `store`"
        )
    if 0 < found < FIRST:
        raise ConfigError(
            f"the store has version {found}, from a build before the first release; "
            "move the file away, and Sluice creates a new one"
        )
    for step in STEPS[found - FIRST + 1 if found else 0 :]:
        step(connection)
    connection.execute(delete(version))
    connection.execute(insert(version).values(number=newest))
