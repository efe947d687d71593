"""What is to be put right at a Postgres, its slot, its user's rights and its tables?  Pure."""

from collections.abc import Sequence

from pipeline.finding import Finding
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
) -> tuple[Finding, ...]:
    """Rule on its settings, its slot, then rights, then *shards*, those that are captured."""

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
    )
