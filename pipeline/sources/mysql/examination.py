"""What is to be put right at a MySQL server, its user's rights and its tables?  Pure."""

from collections.abc import Sequence

from pipeline.finding import Finding
from pipeline.model import ShardId
from pipeline.settings import SourceSettings
from pipeline.sources.mysql.grant_findings import grant_findings
from pipeline.sources.mysql.server_facts import ServerFacts
from pipeline.sources.mysql.server_findings import server_findings
from pipeline.sources.mysql.shard_facts import ShardFacts
from pipeline.sources.mysql.table_findings import table_findings
from pipeline.sources.scope import ExaminationScope


def findings(
    settings: SourceSettings,
    server: ServerFacts,
    shards: Sequence[ShardFacts],
    scope: ExaminationScope,
    *,
    heartbeat: bool,
) -> tuple[Finding, ...]:
    """Rule on its settings, then rights, then *shards*, those that are captured.

    *heartbeat*: the heartbeat's table is there.
    """
    where = f"source:{settings.name}"
    tables = {shard.shard.name for shard in shards}
    databases = {ShardId.read(name).database for name in tables}
    return (
        *server_findings(server, where, databases, scope),
        *grant_findings(
            server,
            where,
            settings.heartbeat,
            present=heartbeat,
            tables=(tables | scope.named) - {settings.heartbeat},
        ),
        *table_findings(
            shards, server, scope.fold, topic_keys=scope.own_keys, largest=scope.largest
        ),
    )
