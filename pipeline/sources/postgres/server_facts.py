"""How is a Postgres set up to be replicated, and what may its user do?

Facts only; `server_findings` and `slot_findings` rule.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from pipeline.sources.postgres.replication import Replication
from pipeline.sources.postgres.session import PostgresSession

OPERATIONS = ("insert", "update", "delete", "truncate")


@dataclass(frozen=True, slots=True)
class SlotFacts:
    """A replication slot; ``retained`` and ``safe`` are bytes of the log.

    ``status`` is the server's word: reserved, extended, unreserved or lost.  ``retained`` is what
    it keeps from being removed, None once it keeps nothing.  ``safe`` is how much may be written
    until it may be lost, None where nothing limits it.  ``written`` is all that ever was.
    """

    name: str
    plugin: str = "pgoutput"
    database: str = ""
    active: bool = True
    status: str = "reserved"
    retained: int | None = 0
    safe: int | None = None
    written: int = 0


@dataclass(frozen=True, slots=True)
class PublicationFacts:
    """A publication: for ``all_tables`` or some, with the operations that it leaves in."""

    name: str
    all_tables: bool = True
    operations: tuple[str, ...] = OPERATIONS
    via_root: bool = False

    @property
    def lacks(self) -> tuple[str, ...]:
        """Operations that it leaves out."""
        return tuple(one for one in OPERATIONS if one not in self.operations)


@dataclass(frozen=True, slots=True)
class HeartbeatFacts:
    """The heartbeat's table: what the user may not do, and whether it may be made."""

    present: bool = True
    lacking: tuple[str, ...] = ()
    schema: bool = True
    creatable: bool = True


@dataclass(frozen=True, slots=True)
class PostgresFacts:
    """A server's settings as it spells them, and what stands in one of its databases.

    ``slots`` and ``senders`` count what is taken of either; ``slot`` and ``publication`` are those
    that the config names, None where there is none.  ``ahead``: how far its clock is before ours,
    as far as asking took no time; else nothing.
    """

    version: int = 180_000
    settings: Mapping[str, str] = field(default_factory=dict)
    user: str = "sluice"
    standby: bool = False
    monitor: bool = True
    slots: int = 0
    senders: int = 0
    slot: SlotFacts | None = None
    publication: PublicationFacts | None = None
    heartbeat: HeartbeatFacts = HeartbeatFacts()
    ahead: timedelta = timedelta()


def server_facts(session: PostgresSession, names: Replication, heartbeat: str) -> PostgresFacts:
    """Ask the catalogue.

    Raises:
        UnreachableError: if it does not answer.
        ConfigError: if the user may not log in.
    """
    (own,) = session.ask(
        "SELECT current_setting('server_version_num')::int AS version, current_user::text AS who,"
        " pg_is_in_recovery() AS standby, pg_has_role('pg_monitor', 'USAGE') AS monitor,"
        " (SELECT count(*) FROM pg_replication_slots) AS slots,"
        " (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'walsender') AS senders"
    )
    found = session.ask("SELECT name, setting FROM pg_settings")
    return PostgresFacts(
        version=int(own["version"]),
        settings={str(row["name"]): str(row["setting"]) for row in found},
        user=str(own["who"]),
        standby=bool(own["standby"]),
        monitor=bool(own["monitor"]),
        slots=int(own["slots"]),
        senders=int(own["senders"]),
        slot=slot_facts(session, names.slot),
        publication=publication_facts(session, names.publication),
        heartbeat=_heartbeat(session, heartbeat),
        ahead=_ahead(session),
    )


def slot_facts(session: PostgresSession, name: str) -> SlotFacts | None:
    """The slot of that *name*; None if there is none."""
    found = session.ask(
        "SELECT plugin::text AS plugin, database::text AS database, active, wal_status AS status,"
        " pg_wal_lsn_diff(now_at, restart_lsn)::bigint AS retained, safe_wal_size AS safe,"
        " pg_wal_lsn_diff(now_at, '0/0')::bigint AS written"
        " FROM pg_replication_slots, (SELECT CASE WHEN pg_is_in_recovery()"
        " THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END AS now_at) AS log"
        " WHERE slot_name = %s",
        name,
    )
    return _slot(name, found[0]) if found else None


def publication_facts(session: PostgresSession, name: str) -> PublicationFacts | None:
    """The publication of that *name* in the database; None if there is none."""
    found = session.ask(
        "SELECT puballtables AS every, pubviaroot AS root, pubinsert AS insert,"
        " pubupdate AS update, pubdelete AS delete, pubtruncate AS truncate"
        " FROM pg_publication WHERE pubname = %s",
        name,
    )
    if not found:
        return None
    (row,) = found
    operations = tuple(operation for operation in OPERATIONS if row[operation])
    return PublicationFacts(name, bool(row["every"]), operations, bool(row["root"]))


def _slot(name: str, row: Mapping[str, Any]) -> SlotFacts:
    """Between starts of the server a slot may keep less than nothing, by a page."""
    retained = row["retained"]
    return SlotFacts(
        name,
        str(row["plugin"] or ""),
        str(row["database"] or ""),
        bool(row["active"]),
        str(row["status"] or "lost"),
        None if retained is None else max(int(retained), 0),
        None if row["safe"] is None else max(int(row["safe"]), 0),
        int(row["written"]),
    )


def _heartbeat(session: PostgresSession, heartbeat: str) -> HeartbeatFacts:
    schema, _, table = heartbeat.partition(".")
    (made,) = session.ask(
        "SELECT count(*) > 0 AS there, coalesce(bool_or(has_schema_privilege(oid, 'USAGE')), false)"
        " AS usable, coalesce(bool_or(has_schema_privilege(oid, 'CREATE')), false) AS open,"
        " has_database_privilege(current_database(), 'CREATE') AS free"
        " FROM pg_namespace WHERE nspname = %s",
        schema,
    )
    rights = ("SELECT", "INSERT", "UPDATE")
    asked = ", ".join(f"has_table_privilege(c.oid, '{one}') AS \"{one}\"" for one in rights)
    found = session.ask(
        f"SELECT {asked} FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"  # noqa: S608
        " WHERE n.nspname = %s AND c.relname = %s AND c.relkind IN ('r', 'p')",
        *(schema, table),
    )
    lacking = [one for one in rights if not found[0][one]] if found else []
    if made["there"] and not made["usable"]:
        lacking.append("USAGE")
    creatable = bool(made["open"] if made["there"] else made["free"])
    return HeartbeatFacts(bool(found), tuple(lacking), bool(made["there"]), creatable)


def _ahead(session: PostgresSession) -> timedelta:
    """What is left when the time that asking took is given the benefit of the doubt."""
    asked = datetime.now(UTC)
    (row,) = session.ask("SELECT clock_timestamp() AS told")
    told: datetime = row["told"]
    answered = datetime.now(UTC)
    return max(told - answered, timedelta()) or min(told - asked, timedelta())
