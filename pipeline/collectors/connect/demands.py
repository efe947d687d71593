"""Which settings of any Debezium connector keep every change and every value?

What only the connector for one kind of database has stands in that kind's file.  Defaults are those
of Debezium 3.5, as its plugin tells them.  Pure.
"""

from pipeline.finding import NOTE, WARN, Demand, Effect

UNTYPED = "values would not arrive in the form that Sluice types"
SKIPPED = "a change that cannot be handled is skipped, and nothing tells"
UNVERIFIED = "whoever stands between can read rows, change them, and get the password"
BASELESS = "tables get no complete snapshot, so no mirror has a base"

DEMANDS = (
    Demand(
        "decimal.handling.mode",
        "double rounds DECIMAL, precise sends bytes that only a schema explains",
        good=("string",),
        default="precise",
        effect=Effect.REWRITES,
    ),
    Demand(
        "time.precision.mode",
        "other modes cut fractions of seconds, or count them in another unit",
        good=("adaptive_time_microseconds",),
        default="adaptive_time_microseconds",
        effect=Effect.REWRITES,
    ),
    Demand(
        "skipped.operations",
        "operations it names (t: TRUNCATE) leave no trace",
        good=("none",),
        default="t",
        effect=Effect.DROPS,
    ),
    Demand(
        "binary.handling.mode",
        UNTYPED,
        good=("bytes", "base64"),
        default="bytes",
        effect=Effect.REWRITES,
    ),
    Demand(
        "event.processing.failure.handling.mode",
        SKIPPED,
        good=("fail",),
        default="fail",
        effect=Effect.DROPS,
    ),
    Demand("errors.tolerance", SKIPPED, good=("none",), default="none", effect=Effect.DROPS),
    Demand("field.name.adjustment.mode", "columns are renamed", good=("none",), default="none"),
    Demand("sanitize.field.names", "columns are renamed", good=("false",), default="false"),
    Demand(
        "snapshot.mode",
        "it ends after the snapshot",
        bad=("initial_only",),
        fix="snapshot.mode=when_needed",
    ),
    Demand(
        "snapshot.mode",
        BASELESS,
        bad=(
            *("no_data", "never", "schema_only", "recovery", "schema_only_recovery"),
            *("configuration_based", "custom"),
        ),
        severity=WARN,
        fix="snapshot.mode=when_needed; for tables that it left out, a new snapshot of them",
    ),
    Demand(
        "snapshot.mode",
        "each start of the connector reads all tables again",
        bad=("always",),
        severity=NOTE,
        fix="snapshot.mode=when_needed",
    ),
    Demand(
        "provide.transaction.metadata",
        "completeness of transactions cannot be checked",
        good=("true",),
        default="false",
        severity=WARN,
    ),
    Demand(
        "tombstones.on.delete",
        "a topic that is compacted would keep deleted keys for ever",
        good=("true",),
        default="true",
        severity=NOTE,
    ),
)

# Settings that harm by being there at all.
PRESENT = (
    Demand(
        "snapshot.select.statement.overrides",
        "the snapshot is filtered, and a mirror that grows from it lacks the other rows",
        effect=Effect.DROPS,
    ),
    Demand(
        "snapshot.include.collection.list",
        "tables that it does not name are described by the snapshot as if they were empty",
        severity=WARN,
        effect=Effect.DROPS,
    ),
    Demand("column.exclude.list", "mirrors lack these columns", severity=WARN),
    Demand("column.include.list", "mirrors lack all other columns", severity=WARN),
    Demand(
        "converters",
        "custom converters may send values in other forms",
        severity=WARN,
        effect=Effect.REWRITES,
    ),
    Demand(
        "post.processors",
        "they may change rows after they were read",
        severity=WARN,
        effect=Effect.REWRITES,
    ),
    Demand(
        "message.key.columns",
        "keys are not those that the tables declare; two rows may share one",
        severity=WARN,
        effect=Effect.REKEYS,
    ),
)

# Families of settings whose names hold a number or a salt.
FAMILIES = (
    ("column.mask.", "values differ from the source's"),
    ("column.truncate.to.", "values differ from the source's"),
)


def snapshotting(default: str) -> Demand:
    """How a snapshot's rows stand at one position; each connector has a default of its own."""
    return Demand(
        "snapshot.isolation.mode",
        "the snapshot's rows do not stand at one position",
        good=("repeatable_read", "serializable"),
        default=default,
        severity=WARN,
    )
