"""What is to be put right at a Postgres, its slot, its user's rights and its tables?  Pure."""

from collections.abc import Iterator, Mapping, Sequence

from pipeline.finding import WARN, Finding
from pipeline.settings import SourceSettings
from pipeline.sources.postgres.replication import Replication
from pipeline.sources.postgres.server_facts import PostgresFacts
from pipeline.sources.postgres.server_findings import grant_findings, server_findings
from pipeline.sources.postgres.shard_facts import PostgresShardFacts
from pipeline.sources.postgres.slot_findings import slot_findings
from pipeline.sources.postgres.table_findings import table_findings
from pipeline.sources.scope import ExaminationScope, FoldedTable


def findings(
    settings: SourceSettings,
    names: Replication,
    server: PostgresFacts,
    shards: Sequence[PostgresShardFacts],
    scope: ExaminationScope,
    *,
    elsewhere: Mapping[str, str] | None = None,
) -> tuple[Finding, ...]:
    """Rule on its settings, its slot, then rights, then *shards*, those that are captured.

    *elsewhere*: captured shard -> whose names its changes are sent under.
    """

    def fold(shard: str) -> FoldedTable | None:
        """The heartbeat's table is sent as any other, or nothing is proven."""
        return FoldedTable(shard) if shard == settings.heartbeat else scope.fold(shard)

    where = f"source:{settings.name}"
    tables = [one for one in shards if one.shard.name != settings.heartbeat]
    hidden = [one.shard.name for one in tables if not one.readable and scope.fold(one.shard.name)]
    return (
        *server_findings(server, where, names, scope),
        *slot_findings(server, where, names),
        *grant_findings(server, where, settings.heartbeat, hidden),
        *table_findings(shards, server.publication, names, fold, topic_keys=scope.own_keys),
        *_elsewhere(elsewhere or {}, scope),
    )


def _elsewhere(told: Mapping[str, str], scope: ExaminationScope) -> Iterator[Finding]:
    fix = "leave it out of the connector's table.include.list, or ignore it under tables"
    for shard, why in sorted(told.items()):
        if (into := scope.fold(shard)) is not None:
            what = f"{shard}: {why}: its mirror stands still after the snapshot"
            yield Finding(WARN, "sent_elsewhere", f"table {into.table}", what, fix)
