"""Where does a source's heartbeat stand?  One table of one row a service, made once."""

from pipeline.errors import ConfigError
from pipeline.sources.postgres.session import Ask, quoted, spelled


def prepare(ask: Ask, heartbeat: str, source: str) -> None:
    """Create the table *heartbeat*, ``schema.table``, unless it is there.

    Raises:
        ConfigError: if that is forbidden; it names the statements somebody else must run.
    """
    schema, _, table = heartbeat.partition(".")
    if ask(
        "SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE n.nspname = %s AND c.relname = %s",
        *(schema, table),
    ):
        return
    there = ask("SELECT 1 FROM pg_namespace WHERE nspname = %s", schema)
    statements = creation(heartbeat)[1:] if there else creation(heartbeat)
    try:
        for statement in statements:
            ask(statement.replace("%", "%%"))
    except ConfigError as error:
        msg = f"source:{source}: {heartbeat} is not there; have these run: {'; '.join(statements)}"
        raise ConfigError(msg) from error


def creation(heartbeat: str) -> tuple[str, str]:
    """Statements that create *heartbeat*, ``schema.table``, where it is not there: schema first.

    Who may not create a schema may not even say IF NOT EXISTS.  Its one row is changed all the
    time, so its pages are left room for that.
    """
    return (
        f"CREATE SCHEMA IF NOT EXISTS {spelled(heartbeat.partition('.')[0])}",
        f"CREATE TABLE IF NOT EXISTS {named(heartbeat)} (source VARCHAR(64) PRIMARY KEY,"
        " n BIGINT NOT NULL, at TIMESTAMPTZ NOT NULL) WITH (fillfactor = 10)",
    )


def named(heartbeat: str) -> str:
    """``schema.table`` in quotes, for people."""
    return ".".join(spelled(part) for part in heartbeat.split(".", 1))


def addressed(heartbeat: str) -> str:
    """The same for `PostgresSession.ask`."""
    return ".".join(quoted(part) for part in heartbeat.split(".", 1))
