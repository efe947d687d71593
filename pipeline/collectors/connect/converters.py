"""By which converter must a connector write what its source is read as, and how are columns named?

Any converter of Avro will do that writes Confluent's wire format: Confluent's and Apicurio's
are known, and Confluent's is printed.  Avro spells only letters of ASCII, digits and underscores:
``avro`` makes underscores of all others, and one column of two; ``avro_unicode`` loses no name.
Pure.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from pipeline.collectors.connect.demands import DEMANDS
from pipeline.finding import REFUSE, Demand, Effect, Finding, unmet
from pipeline.settings import SourceSettings

AVRO_FORMAT = "debezium_avro"
JSON = "org.apache.kafka.connect.json.JsonConverter"
CONFLUENT = "io.confluent.connect.avro.AvroConverter"
APICURIO = "io.apicurio.registry.utils.converter.AvroConverter"
NAMES, SCHEMAS = "field.name.adjustment.mode", "schema.name.adjustment.mode"
NULLS = "value.converter.replace.null.with.default"
NULLABLES = "value.converter.ignore.default.for.nullables"
DEFAULTED = "NULL in a column that has a default arrives as that default"
# By the class of the values' converter; its settings count only where it is stated itself.
NULLS_KEPT = {
    JSON: Demand(NULLS, DEFAULTED, good=("false",), default="true", effect=Effect.REWRITES),
    CONFLUENT: Demand(
        NULLABLES, DEFAULTED, good=("true",), default="false", effect=Effect.REWRITES
    ),
}
SIDES = ("key.converter", "value.converter")
ENVELOPE, META = "value.converter.schemas.enable", "value.converter.connect.meta.data"


def classes(source: SourceSettings) -> tuple[str, ...]:
    """Converters that will do, the one that is printed first."""
    return (CONFLUENT, APICURIO) if _avro(source) else (JSON,)


def converters(source: SourceSettings) -> dict[str, str]:
    """Their settings; the user of the registry is a reference that Connect resolves."""
    if not _avro(source):
        plain = dict.fromkeys((f"{side}.schemas.enable" for side in SIDES), "false")
        return {**dict.fromkeys(SIDES, JSON), **plain}
    found = {SCHEMAS: "avro_unicode"}
    for side in SIDES:
        found |= {side: CONFLUENT, f"{side}.schema.registry.url": _url(source)}
    return found | {NULLABLES: "true"}


def demands(source: SourceSettings, its: Iterable[Demand] = ()) -> tuple[Demand, ...]:
    """What is demanded of every connector, with the names that its converter can spell.

    *its* are demanded for the kind of database.  One that needs rows to tell their columns has
    them in what Avro keeps of Connect's own schema.
    """
    if not _avro(source):
        return (*DEMANDS, *its)
    mode = "avro_unicode" if source.format_options.get("unicode_names", True) else "none"
    why = "two columns may become one, and names are not found back"
    names = Demand(NAMES, why, good=(mode,), default="none")
    spelled = "names that Avro cannot spell make the connector fail"
    schemas = Demand(SCHEMAS, spelled, good=("avro_unicode", "avro"), default="none")
    others = (
        replace(one, name=META, default="true") if one.name == ENVELOPE else one
        for one in (*DEMANDS, *its)
        if one.name != NAMES
    )
    return (*others, names, schemas)


def defaulted(config: Mapping[str, str], where: str) -> list[Finding]:
    """What the converter of values that *config* states does to NULL.

    Seen: Apicurio's 2.6 writes the default, and has no setting against it.  It harms only tables
    that have NULL in a column with a default, so it is refused, and does not withhold READY.
    """
    stated = config.get("value.converter", "").strip()
    if stated == APICURIO:
        fix = f"value.converter={CONFLUENT} with {NULLABLES}=true; or no defaults where NULL may be"
        what = f"by Apicurio's converter {DEFAULTED}"
        return [Finding(REFUSE, "value.converter", where, what, fix)]
    kept = [NULLS_KEPT[stated]] if stated in NULLS_KEPT else []
    remedy = "{name}={value} (and value.converter) in the connector's config"
    return unmet(kept, config, where, remedy=remedy)


def _avro(source: SourceSettings) -> bool:
    return source.format == AVRO_FORMAT


def _url(source: SourceSettings) -> str:
    told = source.format_options.get("registry")
    return str(told.get("url", "")) if isinstance(told, Mapping) else ""
