"""How is a source set up, and what may its user do?  Facts only; `server_findings` rules."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from pipeline.errors import ConfigError
from pipeline.sources.mysql.session import Row, Session


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """A server's settings and what its user may do.

    ``variables`` have small names; one that the server does not know is absent.  ``grants`` are
    the lines of SHOW GRANTS, roles spelled out.  ``unlogged`` names the databases that its log
    leaves out or is confined to.  What the user may not ask is empty, ``replica`` is None.
    ``ahead``: how far its clock is before ours, as far as asking took no time; else nothing.
    """

    version: tuple[int, int]
    mariadb: bool
    variables: Mapping[str, str] = field(default_factory=dict)
    grants: tuple[str, ...] = ()
    unlogged: tuple[str, ...] = ()
    replica: bool | None = None
    ahead: timedelta = timedelta()


def server_facts(session: Session) -> ServerFacts:
    """Ask for the settings.

    Raises:
        UnreachableError: if it does not answer.
        ConfigError: if the user may not log in.
    """
    found = session.ask("SHOW GLOBAL VARIABLES")
    return ServerFacts(
        version=session.version,
        mariadb=session.mariadb,
        variables={row["variable_name"].lower(): str(row["value"]) for row in found},
        grants=tuple(_grants(session)),
        unlogged=tuple(_unlogged(session)),
        replica=_replica(session),
        ahead=_ahead(session),
    )


def log_facts(session: Session, names: Sequence[str]) -> ServerFacts:
    """Only the variables of these *names*, and what says of its log what is not in it: quick."""
    asked = ", ".join(["%s"] * len(names))
    found = session.ask(f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({asked})", *names)
    return ServerFacts(
        version=session.version,
        mariadb=session.mariadb,
        variables={row["variable_name"].lower(): str(row["value"]) for row in found},
        unlogged=tuple(_unlogged(session)),
        replica=_replica(session),
    )


def existing(session: Session, table: str) -> bool:
    """Whether ``database.table`` is there, for the user who asks."""
    database, _, name = table.partition(".")
    statement = "SELECT 1 FROM information_schema.tables WHERE table_schema=%s AND table_name=%s"
    return bool(session.ask(statement, database, name))


def _grants(session: Session) -> list[str]:
    """Roles are granted by lines without ON; USING spells out what they allow."""
    lines = [str(next(iter(row.values()))) for row in session.ask("SHOW GRANTS")]
    roles = [line.removeprefix("GRANT ").rpartition(" TO ")[0] for line in lines if _role(line)]
    if session.mariadb or not roles:
        return lines
    using = f"SHOW GRANTS FOR CURRENT_USER() USING {', '.join(roles)}"
    return [str(next(iter(row.values()))) for row in session.ask(using)]


def _role(line: str) -> bool:
    return line.startswith("GRANT ") and " ON " not in line


def _unlogged(session: Session) -> list[str]:
    renamed = not session.mariadb and session.version >= (8, 4)
    rows = _allowed(session, f"SHOW {'BINARY LOG' if renamed else 'MASTER'} STATUS")
    return [
        f"{name}={row[name]}"
        for row in rows or ()
        for name in ("binlog_do_db", "binlog_ignore_db")
        if row.get(name)
    ]


def _replica(session: Session) -> bool | None:
    renamed = not session.mariadb and session.version >= (8, 4)
    rows = _allowed(session, f"SHOW {'REPLICA' if renamed else 'SLAVE'} STATUS")
    return None if rows is None else bool(rows)


def _ahead(session: Session) -> timedelta:
    """What is left when the time that asking took is given the benefit of the doubt."""
    asked = datetime.now(UTC)
    (row,) = session.ask("SELECT UTC_TIMESTAMP(6) AS told")
    told: datetime = row["told"].replace(tzinfo=UTC)
    answered = datetime.now(UTC)
    return max(told - answered, timedelta()) or min(told - asked, timedelta())


def _allowed(session: Session, statement: str) -> list[Row] | None:
    """The rows, or None where the user may not ask: which rights are missing is told apart."""
    try:
        return session.ask(statement)
    except ConfigError:
        return None
