"""Lists the settings, converters and versions with which a Debezium connector loses nothing.

Settings for one kind of database are in the module of that kind. Defaults are those of
Debezium 3.5, as its plugin reports them.

Any Avro converter that writes Confluent's wire format is accepted. Confluent's and Apicurio's
are known, and Confluent's is the one that Sluice sets. Avro names allow only A-Z, a-z, digits
and underscores. The mode `avro` replaces all other characters by underscores, and may merge two
columns into one. The mode `avro_unicode` loses no name.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pipeline.finding import (
    NOTE,
    REFUSE,
    WARN,
    Demand,
    Effect,
    Finding,
    FindingSeverity,
    find_unmet,
)
from pipeline.formats.debezium.connector import UNAVAILABLE
from pipeline.settings import SourceSettings

UNTYPED = "values would not arrive in the form that Sluice types"
SKIPPED = "a change that cannot be handled is skipped without an error"
UNVERIFIED = "an attacker on the network can read rows, change them, and get the password"
BASELESS = "tables get no complete snapshot, so no mirror has a base"

METADATA = "provide.transaction.metadata"
LISTS = ("transforms", "predicates")  # lists of aliases

NAMINGS = (
    *("Schema", "Default", "SchemaRegex", "DefaultRegex", "SchemaUnicode", "DefaultUnicode"),
)  # Debezium's own strategies in 3.5 and 3.7; `routing` follows those by expression

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
    Demand(  # Debezium has it since 2.5; older versions cannot be set to fail
        "event.converting.failure.handling.mode",
        "a value that cannot be converted arrives as NULL",
        good=("fail",),
        default="warn",
        effect=Effect.REWRITES,
    ),
    Demand("errors.tolerance", SKIPPED, good=("none",), default="none", effect=Effect.DROPS),
    Demand("field.name.adjustment.mode", "columns are renamed", good=("none",), default="none"),
    Demand("sanitize.field.names", "columns are renamed", good=("false",), default="false"),
    Demand(
        "topic.naming.strategy",
        "a class of its own may send rows to topics that the source does not read",
        good=tuple(f"io.debezium.schema.{name}TopicNamingStrategy" for name in NAMINGS),
        default="io.debezium.schema.SchemaTopicNamingStrategy",
        fix="topic.naming.strategy=io.debezium.schema.SchemaTopicNamingStrategy, with a router"
        " `transforms` for other names; then a new base of the tables",
        effect=Effect.DROPS,
    ),
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
            "configuration_based",
        ),
        severity=WARN,
        fix="snapshot.mode=when_needed; for tables that it left out, a new snapshot of them",
    ),
    Demand(
        "snapshot.mode",
        "a snapshotter of its own may leave out tables and rows",
        bad=("custom",),
        fix="snapshot.mode=when_needed; then a new base of the tables",
        effect=Effect.DROPS,
    ),
    Demand(
        "snapshot.mode",
        "each start of the connector reads all tables again",
        bad=("always",),
        severity=NOTE,
        fix="snapshot.mode=when_needed",
    ),
    Demand(
        "snapshot.query.mode",
        "a query of its own may leave out rows or change them",
        good=("select_all",),
        default="select_all",
        effect=Effect.DROPS,
    ),
    Demand(
        METADATA,
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

# Settings that are harmful whatever their value is.
PRESENT = (
    Demand(
        "snapshot.select.statement.overrides",
        "the snapshot is filtered, so a mirror that is built from it misses the other rows",
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

# Families of settings whose names contain a number or a salt.
FAMILIES = (
    ("column.mask.", "values differ from the source's"),
    ("column.truncate.to.", "values differ from the source's"),
)


def split_list(value: str) -> list[str]:
    """Aliases of one of `LISTS`, in their order."""
    return [one.strip() for one in value.split(",") if one.strip()]


def snapshot_demand(default: str) -> Demand:
    """Demand that all rows of a snapshot have one position; *default* is the connector's."""
    return Demand(
        "snapshot.isolation.mode",
        "the snapshot's rows do not have one position",
        good=("repeatable_read", "serializable"),
        default=default,
        severity=WARN,
    )


AVRO_FORMAT = "debezium_avro"
JSON = "org.apache.kafka.connect.json.JsonConverter"
CONFLUENT = "io.confluent.connect.avro.AvroConverter"
APICURIO = "io.apicurio.registry.utils.converter.AvroConverter"
NAMES, SCHEMAS = "field.name.adjustment.mode", "schema.name.adjustment.mode"
NULLS = "value.converter.replace.null.with.default"
NULLABLES = "value.converter.ignore.default.for.nullables"
DEFAULTED = "NULL in a column that has a default arrives as that default"
# By the class of the value converter; its settings count only if the class is set beside them.
NULLS_KEPT = {
    JSON: Demand(NULLS, DEFAULTED, good=("false",), default="true", effect=Effect.REWRITES),
    CONFLUENT: Demand(
        NULLABLES, DEFAULTED, good=("true",), default="false", effect=Effect.REWRITES
    ),
}
SIDES = ("key.converter", "value.converter")
ENVELOPE, META = "value.converter.schemas.enable", "value.converter.connect.meta.data"


def converter_classes(source: SourceSettings) -> tuple[str, ...]:
    """Accepted converter classes; Sluice sets the first."""
    return (CONFLUENT, APICURIO) if _avro(source) else (JSON,)


def converter_settings(source: SourceSettings) -> dict[str, str]:
    """Settings of the converters of keys and values."""
    if not _avro(source):
        plain = dict.fromkeys((f"{side}.schemas.enable" for side in SIDES), "false")
        return {**dict.fromkeys(SIDES, JSON), **plain}
    found = {SCHEMAS: "avro_unicode"}
    for side in SIDES:
        found |= {side: CONFLUENT, f"{side}.schema.registry.url": _url(source)}
    return found | {NULLABLES: "true"}


PLACEHOLDER = "unavailable.value.placeholder"


def find_placeholder(config: Mapping[str, str], unavailable: str, where: str) -> list[Finding]:
    """Reject a placeholder of unsent values other than *unavailable*, which the format expects."""
    value = config.get(PLACEHOLDER, UNAVAILABLE)
    if _placeholder_text(value) == unavailable:
        return []
    what = f"{PLACEHOLDER}={value}: the format expects {unavailable}, so a mirror would hold it"
    fix = (
        f"{PLACEHOLDER}={unavailable} in the connector's config, or format_options.unavailable of"
        " the source as the connector sends it; then a new base of its tables"
    )
    setting = f"{PLACEHOLDER}={value}"
    return [Finding(REFUSE, PLACEHOLDER, where, what, fix, Effect.REWRITES, setting=setting)]


def expected_placeholder(source: SourceSettings) -> str:
    """The placeholder that the format of *source* reads as an unsent value."""
    return str(source.format_options.get("unavailable", UNAVAILABLE))


def _placeholder_text(value: str) -> str | None:
    if not value.startswith("hex:"):
        return value
    try:
        return bytes.fromhex(value.removeprefix("hex:")).decode()
    except ValueError:
        return None


def list_demands(source: SourceSettings, its: Iterable[Demand] = ()) -> tuple[Demand, ...]:
    """Demands of every connector for *source*, adapted to its converter.

    *its* are the demands of the kind of database.  If one needs rows to state their columns, Avro
    does that by Connect's metadata in its schema (`META`).
    """
    if not _avro(source):
        return (*DEMANDS, *its)
    mode = "avro_unicode" if source.format_options.get("unicode_names", True) else "none"
    why = "two columns may get one name, and the original names are lost"
    names = Demand(NAMES, why, good=(mode,), default="none")
    spelled = "a name that is not valid in Avro makes the connector fail"
    schemas = Demand(SCHEMAS, spelled, good=("avro_unicode", "avro"), default="none")
    others = (
        replace(one, name=META, default="true") if one.name == ENVELOPE else one
        for one in (*DEMANDS, *its)
        if one.name != NAMES
    )
    return (*others, names, schemas)


def find_null_defaults(config: Mapping[str, str], where: str) -> list[Finding]:
    """Findings on the value converter in *config* if it replaces NULL by the column's default.

    Observed: Apicurio's 2.6 does, and no setting prevents it.  That harms only tables with NULL in
    a column that has a default, so the doctor rejects it, but READY is not withheld.
    """
    stated = config.get("value.converter", "").strip()
    if stated == APICURIO:
        fix = f"value.converter={CONFLUENT} with {NULLABLES}=true; or no defaults where NULL may be"
        what = f"with Apicurio's converter, {DEFAULTED}"
        return [Finding(REFUSE, "value.converter", where, what, fix)]
    kept = [NULLS_KEPT[stated]] if stated in NULLS_KEPT else []
    remedy = "{name}={value} (and value.converter) in the connector's config"
    return find_unmet(kept, config, where, remedy=remedy)


def _avro(source: SourceSettings) -> bool:
    return source.format == AVRO_FORMAT


def _url(source: SourceSettings) -> str:
    registry = source.format_options.get("registry")
    return str(registry.get("url", "")) if isinstance(registry, Mapping) else ""


_NUMBERS = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?")


@dataclass(frozen=True, slots=True)
class LeastVersion:
    """The first version without a known defect, the defect, and the severity of a finding."""

    version: tuple[int, int, int]
    why: str
    severity: FindingSeverity = REFUSE

    def __str__(self) -> str:
        """Format the version as Debezium does."""
        return ".".join(map(str, self.version))


def version_findings(
    least: Sequence[LeastVersion], config: Mapping[str, str], plugins: Sequence[Any], where: str
) -> list[Finding]:
    """Findings on the version of the connector's class among *plugins*, as Connect lists them.

    *least* is sorted by version; the first that is not reached counts.  If Connect lists several
    plugins of the class, the newest counts, because Connect uses it by default.
    """
    if not least:
        return []
    of = config.get("connector.class", "")
    listed = [one for one in plugins if isinstance(one, Mapping) and one.get("class") == of]
    versions = [match for one in listed if (match := _NUMBERS.match(str(one.get("version"))))]
    fix = f"install Debezium's plugin {least[-1]} or newer, restart the workers"
    if not versions:
        losses = "; ".join(f"before {one}: {one.why}" for one in least)
        what = f"the version of its plugin is unknown; {losses}"
        return [Finding(WARN, "plugin_version", where, what, fix)]
    newest = max(tuple(int(number or 0) for number in one.groups()) for one in versions)
    for one in least:
        if newest < one.version:
            what = f"plugin {'.'.join(map(str, newest))}: {one.why}"
            return [Finding(one.severity, "plugin_version", where, what, fix)]
    return []
