"""Where does a source's heartbeat stand?  One table of one row a service, made once."""

from pipeline.errors import ConfigError
from pipeline.sources.mysql.session import Ask, quoted


def prepare(ask: Ask, heartbeat: str, source: str) -> None:
    """Create the table *heartbeat*, ``database.table``, unless it is there.

    Raises:
        ConfigError: if that is forbidden; it names the statements somebody else must run.
    """
    database, _, table = heartbeat.partition(".")
    if ask(
        "SELECT 1 FROM information_schema.tables WHERE table_schema = %s AND table_name = %s",
        *(database, table),
    ):
        return
    statements = creation(heartbeat)
    try:
        for statement in statements:
            ask(statement)
    except ConfigError as error:
        msg = f"source:{source}: {heartbeat} is not there; have these run: {'; '.join(statements)}"
        raise ConfigError(msg) from error


def creation(heartbeat: str) -> tuple[str, str]:
    """Statements that create the table *heartbeat*, ``database.table``, where it is not there."""
    database, _, table = heartbeat.partition(".")
    return (
        f"CREATE DATABASE IF NOT EXISTS {quoted(database)}",
        f"CREATE TABLE IF NOT EXISTS {quoted(database)}.{quoted(table)}"
        " (source VARCHAR(64) NOT NULL PRIMARY KEY, n BIGINT NOT NULL, at DATETIME(6) NOT NULL)",
    )
