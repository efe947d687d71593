"""Describes Debezium's connector for MySQL: a history of schemas, and file positions.

The stored offset's `pos` is where the newest transaction *begins*.  So that transaction counts as
unfinished until the next event of any kind is read, and a proof needs one more heartbeat.
Measured: during the initial snapshot no offset is stored.  From its end until the first event of
the stream, which may be a log rotation, the offset has `snapshot`, although all rows are sent.
Pure.
"""

import zlib
from collections.abc import Collection, Mapping
from typing import ClassVar

from pipeline.collectors.collector import CollectionScope
from pipeline.collectors.connect.database import ConnectedDatabase, variable_reference
from pipeline.collectors.connect.requirements import (
    SKIPPED,
    UNVERIFIED,
    LeastVersion,
    snapshot_demand,
)
from pipeline.finding import REFUSE, WARN, Demand, Effect, Finding
from pipeline.model import Acknowledged, Missing
from pipeline.settings import SourceSettings
from pipeline.sources.mysql.position import binlog_position

CLASSES = (
    "io.debezium.connector.mysql.MySqlConnector",
    "io.debezium.connector.mariadb.MariaDbConnector",
)


class ConnectedMySql:
    """MySQL; both connector classes can read MariaDB."""

    classes: ClassVar[tuple[str, ...]] = CLASSES
    port: ClassVar[int] = 3306
    lists: ClassVar[str] = "database"
    built_in: ClassVar[tuple[str, ...]] = (
        *("mysql", "performance_schema", "sys", "information_schema"),
    )
    demands: ClassVar[tuple[Demand, ...]] = (
        Demand(
            "bigint.unsigned.handling.mode",
            "BIGINT UNSIGNED above 2^63 arrives as a negative number",
            good=("precise",),
            default="long",
            effect=Effect.REWRITES,
        ),
        Demand(
            "enable.time.adjuster",
            "years before 100 become others: 0001-01-01 arrives as 2001-01-01",
            good=("false",),
            default="true",
            effect=Effect.REWRITES,
        ),
        Demand("include.schema.changes", "rows cannot be typed", good=("true",), default="true"),
        Demand(
            "event.deserialization.failure.handling.mode",
            SKIPPED,
            good=("fail",),
            default="fail",
            effect=Effect.DROPS,
        ),
        Demand(
            "inconsistent.schema.handling.mode",
            SKIPPED,
            good=("fail",),
            default="fail",
            effect=Effect.DROPS,
        ),
        Demand(
            "schema.history.internal.skip.unparseable.ddl",
            "a statement that changes a table's columns may be skipped",
            good=("false",),
            default="false",
            effect=Effect.REWRITES,
        ),
        Demand(
            "snapshot.locking.mode",
            "a change may fall between the snapshot and the log position noted for it",
            bad=("none", "custom"),
            severity=WARN,
            fix="snapshot.locking.mode=minimal",
            effect=Effect.DROPS,
        ),
        snapshot_demand("repeatable_read"),
    )
    pace: ClassVar[Mapping[str, str]] = {
        "connect.keep.alive.interval.ms": "2000",  # its default finds a dead source in 60 s
    }
    least: ClassVar[tuple[LeastVersion, ...]] = ()

    verified: ClassVar[tuple[Demand, ...]] = (
        Demand(
            "database.ssl.mode",
            UNVERIFIED,
            good=("verify_identity", "verify-full"),  # for MySQL's class, for MariaDB's
            default="preferred",
        ),
    )
    alternatives: ClassVar[frozenset[str]] = frozenset()
    files: ClassVar[frozenset[str]] = frozenset()

    def acknowledged(self, offset: Mapping[str, object]) -> Acknowledged | Missing | None:
        """The position of *offset*: file, offset in it, and GTIDs if it has some."""
        try:
            log = int(str(offset["file"]).rpartition(".")[2])
            pos = int(str(offset["pos"]))
        except (KeyError, ValueError):
            return None
        if not (0 <= log <= LARGEST and 0 <= pos <= LARGEST):
            return None
        executed = str(offset.get("gtids") or "")
        return Acknowledged(
            binlog_position(log, pos, executed), snapshot=flag_up(offset.get("snapshot"))
        )

    def settings(self, scope: CollectionScope) -> Mapping[str, str]:
        """The connector's replica number, its TLS settings, and the topic of its schema history."""
        own = str(100_000 + zlib.crc32(scope.source.name.encode()) % 900_000)
        history = "schema.history.internal.kafka"
        brokers = {f"{history}.bootstrap.servers": scope.brokers} if scope.brokers else {}
        prefix = scope.source.collected_prefix
        tls = self._tls(scope.source) if scope.source.secured else {}
        topic = {f"{history}.topic": f"__schema-history.{prefix}"}
        return {"database.server.id": own, **tls, **brokers, **topic}

    def _tls(self, source: SourceSettings) -> Mapping[str, str]:
        """TLS settings; paths of stores (JKS or PKCS12) are references to the worker's variables.

        Without a truststore, the JVM's own authorities are trusted.
        """
        stores = (("truststore", source.ca), ("keystore", source.certificate))
        found = {one.name: one.good[0] for one in self.verified}
        for store, file in stores:
            if file:
                path = f"DATABASE_{store.upper()}"
                found[f"database.ssl.{store}"] = variable_reference(source.name, path)
                found[f"database.ssl.{store}.password"] = variable_reference(
                    source.name, f"{path}_PASSWORD"
                )
        return found

    def findings(
        self,
        config: Mapping[str, str],
        source: SourceSettings,
        where: str,
    ) -> list[Finding]:
        """Return the hazards; MySQL has no other findings."""
        return self.hazards(config, where)

    def transforms(self, _config: Mapping[str, str]) -> Mapping[str, str]:
        """Return no settings."""
        return {}

    def own_transforms(self, _config: Mapping[str, str]) -> Collection[str]:
        """Return no aliases."""
        return ()

    def hazards(self, config: Mapping[str, str], where: str) -> list[Finding]:
        """A finding if a GTID filter is set and also filters rows."""
        kept = config.get("gtid.source.filter.dml.events", "true").lower() == "false"
        names = [
            name for name in ("gtid.source.includes", "gtid.source.excludes") if config.get(name)
        ]
        if kept or not names:
            return []
        setting = f"{names[0]}={config[names[0]]}"
        what = f"{setting}: changes that began on other servers are dropped"
        fix = "gtid.source.filter.dml.events=false in the connector's config"
        return [Finding(REFUSE, names[0], where, what, fix, Effect.DROPS, setting=setting)]


LARGEST = 2**63 - 1


def flag_up(flag: object) -> bool:
    """Whether a flag is set: Debezium 3 writes the kind of snapshot, older versions write true."""
    return flag is not None and str(flag).lower() != "false"


CONNECTED: type[ConnectedDatabase] = ConnectedMySql
