"""Describes Debezium's connector for Postgres: a slot, a publication, and LSNs.

The stored offset's `lsn_commit` is the end of the last commit that was sent; all earlier commits
were sent too.  `lsn` is the position of the newest row, whose transaction may be unfinished.
Measured: `lsn_commit` is absent from a snapshot's first row until the first commit after it.
There is no topic of schema changes: each message has its columns, and the source's types only if
the connector is set to send them.  Pure.
"""

import re
from collections.abc import Collection, Mapping
from typing import ClassVar

from pipeline.collectors.collector import CollectionScope
from pipeline.collectors.connect.database import ConnectedDatabase, variable_reference
from pipeline.collectors.connect.mysql import LARGEST, flag_up
from pipeline.collectors.connect.requirements import (
    ENVELOPE,
    METADATA,
    UNVERIFIED,
    LeastVersion,
    snapshot_demand,
    split_list,
)
from pipeline.finding import REFUSE, WARN, Demand, Effect, Finding, find_unmet
from pipeline.model import Acknowledged, Missing
from pipeline.settings import SourceSettings
from pipeline.sources.postgres.position import log_position
from pipeline.sources.postgres.replication import read_replication

STREAM = "slot.stream.params"
TYPES = "column.propagate.source.type"
FACTORY, AUTHORITIES = "database.sslfactory", "database.sslrootcert"
LIBPQ, JAVA = "org.postgresql.ssl.LibPQFactory", "org.postgresql.ssl.DefaultJavaSSLFactory"
OWN = "the config names another under sources"

# Transforms that act on the topic of transactions only: BEGIN, which has no count, becomes a
# tombstone and is dropped; END is sent unchanged.  See `end_markers`.
MARKERS, COUNT, FIELDS = "sluiceMarkers", "event_count", "status,id,data_collections,ts_ms"
_KAFKA = "org.apache.kafka.connect.transforms."
_STEPS: Mapping[str, Mapping[str, str]] = {
    "sluiceKeep": {
        "type": f"{_KAFKA}HeaderFrom$Value",
        "fields": FIELDS,
        "headers": FIELDS,
        "operation": "copy",
    },
    "sluiceCount": {"type": f"{_KAFKA}ExtractField$Value", "field": COUNT},
    "sluiceDrop": {
        "type": "io.debezium.transforms.ExtractNewRecordState",
        "delete.tombstone.handling.mode": "drop",
    },
    "sluiceWrap": {"type": f"{_KAFKA}HoistField$Value", "field": COUNT},
    "sluiceEnd": {
        "type": "io.debezium.transforms.HeaderToValue",
        "headers": FIELDS,
        "fields": FIELDS,
        "operation": "move",
    },
    "sluiceName": {
        "type": f"{_KAFKA}SetSchemaMetadata$Value",
        "schema.name": "io.debezium.connector.common.TransactionMetadataValue",
        "schema.version": "1",
    },
}


def end_markers(config: Mapping[str, str]) -> dict[str, str]:
    """Settings with which a connector of *config* sends END of each transaction, and no BEGIN.

    Measured on Debezium 3.7.0, and the code of 3.7.1 is the same: the offset stored with a BEGIN
    states that all is processed up to the last COMMIT.  After a restart from it, the connector
    mistakes a change at exactly the end of that COMMIT for the stored one.  It then silently skips
    all changes up to that one.  This does not happen with the offset of a COMMIT or of a change
    (``WalPositionLocator`` of the connector).  Connect stores no offset of a record that a
    transform drops.
    """
    topic = [config.get("topic.prefix", ""), _marker_topic(config)]
    steps = {
        f"transforms.{alias}.{name}": value
        for alias, step in _STEPS.items()
        for name, value in {**step, "predicate": MARKERS}.items()
    }
    return {
        "transforms": ",".join(_STEPS),
        **steps,
        "predicates": MARKERS,
        f"predicates.{MARKERS}.type": f"{_KAFKA}predicates.TopicNameMatches",
        f"predicates.{MARKERS}.pattern": re.escape(_delimiter(config).join(topic)),
    }


class ConnectedPostgres:
    """One database of a Postgres server, read with the plugin pgoutput."""

    classes: ClassVar[tuple[str, ...]] = ("io.debezium.connector.postgresql.PostgresConnector",)
    port: ClassVar[int] = 5432
    lists: ClassVar[str] = "schema"
    built_in: ClassVar[tuple[str, ...]] = ("pg_catalog", "information_schema")
    demands: ClassVar[tuple[Demand, ...]] = (
        Demand(
            "plugin.name",
            "decoderbufs sends neither TRUNCATE nor the ends of transactions",
            good=("pgoutput",),
            default="decoderbufs",
            effect=Effect.DROPS,
        ),
        Demand(TYPES, "rows do not state the types of their columns", good=(".*",), default=""),
        Demand(ENVELOPE, "rows do not state their columns", good=("true",)),
        Demand(
            "include.unknown.datatypes",
            "columns of types that Debezium does not know are left out",
            good=("true",),
            default="false",
            effect=Effect.REWRITES,
        ),
        Demand(
            "interval.handling.mode",
            "a month arrives as 30.4 days",
            good=("string",),
            default="numeric",
            effect=Effect.REWRITES,
        ),
        Demand(
            "hstore.handling.mode",
            "keys may be lost",
            good=("json",),
            default="json",
            effect=Effect.REWRITES,
        ),
        Demand(
            "slot.drop.on.stop",
            "changes that are committed while the connector is stopped are lost",
            good=("false",),
            default="false",
            effect=Effect.DROPS,
        ),
        Demand(
            "publication.autocreate.mode",
            "its own publication is FOR ALL TABLES, which only a superuser may make",
            good=("disabled", "filtered"),
            default="all_tables",
            severity=WARN,
        ),
        snapshot_demand("serializable"),
    )
    pace: ClassVar[Mapping[str, str]] = {
        "status.update.interval.ms": "1000",  # by default the server retains 10 s of log longer
    }
    least: ClassVar[tuple[LeastVersion, ...]] = (
        LeastVersion(
            (3, 7, 0),
            "after a restart it may leave out the first rows of a transaction that was open over it"
            " (a row at the end position of the last commit counts as part of that commit)",
        ),
        LeastVersion(
            (3, 7, 1),
            "after a restart it may leave out rows of a COPY, if only the first of those that"
            " share a position had been stored",
            WARN,
        ),
    )

    verified: ClassVar[tuple[Demand, ...]] = (
        Demand("database.sslmode", UNVERIFIED, good=("verify-full",), default="prefer"),
        Demand(FACTORY, UNVERIFIED, good=(LIBPQ, JAVA)),
    )
    alternatives: ClassVar[frozenset[str]] = frozenset({FACTORY, AUTHORITIES})
    files: ClassVar[frozenset[str]] = frozenset(
        (AUTHORITIES, "database.sslcert", "database.sslkey", "database.sslpassword")
    )

    def acknowledged(self, offset: Mapping[str, object]) -> Acknowledged | Missing | None:
        """The end of the last commit; during a snapshot, before the first commit, its position."""
        if "lsn" not in offset or "file" in offset:
            return None
        snapshot = flag_up(offset.get("snapshot"))
        stored = offset.get("lsn_commit") or (offset["lsn"] if snapshot else None)
        if stored is None:
            return Missing("no commit has been handed over since the snapshot")
        try:
            lsn = int(str(stored))
        except ValueError:
            return None
        if not 0 <= lsn <= LARGEST:
            return None
        return Acknowledged(log_position(lsn), snapshot=snapshot)

    def settings(self, scope: CollectionScope) -> Mapping[str, str]:
        """The database, slot and publication of the source's settings, and TLS settings."""
        names = read_replication(scope.source)
        found = {
            "database.dbname": names.database,
            "slot.name": names.slot,
            "publication.name": names.publication,
        }
        return {**found, **_tls(scope.source)} if scope.source.secured else found

    def transforms(self, config: Mapping[str, str]) -> Mapping[str, str]:
        """The transforms that drop BEGIN, and their predicate: see `end_markers`."""
        return end_markers(config)

    def own_transforms(self, config: Mapping[str, str]) -> Collection[str]:
        """Aliases of the wanted transforms that drop BEGIN, up to the first other transform."""
        wanted, listed = end_markers(config), split_list(config.get("transforms", ""))
        # a name with the delimiter may be that of a table's topic
        is_own_topic = _delimiter(config) not in _marker_topic(config)
        if not is_own_topic or _differ(config, wanted, f"predicates.{MARKERS}."):
            return ()
        own = (s for s in listed if s in _STEPS and not _differ(config, wanted, f"transforms.{s}."))
        return [one for one, other in zip(own, listed, strict=False) if one == other]

    def hazards(self, config: Mapping[str, str], where: str) -> list[Finding]:
        """Findings on settings that skip changes: BEGIN is sent, or the stream has parameters."""
        dropped = [*self.own_transforms(config)] == [*_STEPS]
        dropped = dropped and MARKERS in split_list(config.get("predicates", ""))
        sent = flag_up(config.get(METADATA)) and not dropped
        begins = [_begin_finding(config, where)] if sent else []
        return [*begins, *self._stream_findings(config, where)]

    def _stream_findings(self, config: Mapping[str, str], where: str) -> list[Finding]:
        """A finding on parameters of the stream, which may skip changes or name a publication."""
        parameters = config.get(STREAM, "")
        given = [one.strip() for one in parameters.split(";") if one.strip()]
        if all(re.fullmatch(r"origin\s*=\s*any", one) for one in given):
            return []
        setting = f"{STREAM}={parameters}"
        what = f"{setting}: parameters such as origin=none leave out changes"
        fix = f"remove {STREAM} from the connector's config"
        return [Finding(REFUSE, STREAM, where, what, fix, Effect.DROPS, setting=setting)]

    def findings(
        self, config: Mapping[str, str], source: SourceSettings, where: str
    ) -> list[Finding]:
        """Findings on names that differ from the source's, replica identities, and hazards."""
        names = read_replication(source)
        demands = (
            _named("database.dbname", names.database, ""),
            _named("slot.name", names.slot, "debezium"),
            _named("publication.name", names.publication, "dbz_publication"),
        )
        remedy = "{name}={value} in the connector's config"
        found = find_unmet(demands, config, where, remedy=remedy)
        found += self.hazards(config, where)
        if not config.get("replica.identity.autoset.values"):
            return found
        what = "replica.identity.autoset.values changes tables of the source"
        fix = "remove it from the connector's config; ALTER TABLE ... REPLICA IDENTITY where needed"
        return [*found, Finding(WARN, "replica.identity.autoset.values", where, what, fix)]


def _begin_finding(config: Mapping[str, str], where: str) -> Finding:
    wanted = end_markers(config)
    what = (
        "BEGIN of each transaction is sent: a connector that starts again at the offset of a BEGIN"
        " may leave out the first rows of that transaction"
    )
    fix = f"sluice connector SOURCE --apply, so that {wanted['transforms']} come first in"
    fix += " transforms, without topic.transaction; then compare each table, and waive"
    setting = f"{METADATA}=true with BEGIN"
    return Finding(REFUSE, "transforms", where, what, fix, Effect.DROPS, setting=setting)


def _differ(config: Mapping[str, str], wanted: Mapping[str, str], own: str) -> list[str]:
    """Names with the prefix *own* whose setting differs from the wanted one."""
    names = {name for name in (*config, *wanted) if name.startswith(own)}
    return [name for name in names if config.get(name) != wanted.get(name)]


def _delimiter(config: Mapping[str, str]) -> str:
    return config.get("topic.delimiter", ".")


def _marker_topic(config: Mapping[str, str]) -> str:
    """Name of the topic of transactions, without its prefix."""
    return config.get("topic.transaction", "transaction")


def _tls(source: SourceSettings) -> Mapping[str, str]:
    """TLS settings; paths of files are references to the worker's variables.

    pgjdbc's own socket factory fails without a file of authorities.  Java's factory trusts the
    JVM's authorities, and cannot present a certificate from files.
    """
    found = {"database.sslmode": "verify-full"}
    if not source.ca and not source.certificate:
        return {**found, FACTORY: JAVA}
    found[AUTHORITIES] = variable_reference(source.name, "DATABASE_CA")
    if source.certificate:
        found["database.sslcert"] = variable_reference(source.name, "DATABASE_CERTIFICATE")
        found["database.sslkey"] = variable_reference(source.name, "DATABASE_KEY")
    return found


def _named(setting: str, name: str, default: str) -> Demand:
    fix = f"{setting}={name} in the connector's config, or name its own under sources: options"
    effect = Effect.NONE if setting == "database.dbname" else Effect.DROPS
    return Demand(setting, OWN, good=(name.lower(),), default=default, fix=fix, effect=effect)


CONNECTED: type[ConnectedDatabase] = ConnectedPostgres
