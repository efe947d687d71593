"""Which captured tables cannot be mirrored or proven in full, as the catalogue shows?  Pure."""

from collections.abc import Callable, Sequence

from pipeline.finding import NOTE, REFUSE, WARN, Finding
from pipeline.sources.findings import SHARD, Told, no_key, of_named_key, of_tables
from pipeline.sources.postgres.description import unidentified, unsent
from pipeline.sources.postgres.replication import Replication
from pipeline.sources.postgres.server_facts import PublicationFacts
from pipeline.sources.postgres.session import spelled
from pipeline.sources.postgres.shard_facts import NOTHING, WHOLE, PostgresShardFacts
from pipeline.sources.postgres.typemap import unverifiable
from pipeline.sources.scope import FoldedTable


def table_findings(
    shards: Sequence[PostgresShardFacts],
    publication: PublicationFacts | None,
    names: Replication,
    fold: Callable[[str], FoldedTable | None],
    *,
    topic_keys: bool = False,
) -> list[Finding]:
    """Findings of all shards; what shards of one table share is told once.

    *fold* gives None for a shard that the rules ignore.  *topic_keys*: the connector names keys
    of its own, so tables without one may have got one.
    """
    return of_tables(
        (into.table, shard.shard.name, one)
        for shard in shards
        if (into := fold(shard.shard.name)) is not None
        for one in (
            *_sent(shard, publication, names),
            *_key(shard, into, topic_keys=topic_keys),
            *_identity(shard, into),
            *_columns(shard),
        )
    )


def _sent(
    shard: PostgresShardFacts, publication: PublicationFacts | None, names: Replication
) -> list[Told]:
    """What all tables share, no publication or one that leaves out operations, is told once."""
    if publication is None:
        return []
    name = spelled(names.publication)
    if not shard.logged:
        what, fix = unsent(shard, publication, names.publication), f"ALTER TABLE {SHARD} SET LOGGED"
        return [(REFUSE, "unlogged", what, fix)]
    if shard.published is None:
        what = unsent(shard, publication, names.publication)
        return [(REFUSE, "unpublished", what, f"ALTER PUBLICATION {name} ADD TABLE {SHARD}")]
    again = (
        f"ALTER PUBLICATION {name} DROP TABLE {SHARD}; ALTER PUBLICATION {name} ADD TABLE {SHARD}"
    )
    if shard.published.rows:
        what = unsent(shard, publication, names.publication)
        return [(REFUSE, "unpublished", what, again)]
    if shard.published.left_out:
        what = f"publication {names.publication} leaves out {', '.join(shard.published.left_out)}"
        return [(WARN, "columns_unpublished", f"{what}: the mirror lacks these columns", again)]
    return []


def _key(shard: PostgresShardFacts, into: FoldedTable, *, topic_keys: bool) -> list[Told]:
    if into.key:
        return of_named_key(into.key, {*shard.columns} - {*shard.nullable}, shard.unique)
    if shard.unique or topic_keys:
        return []
    return no_key()


def _identity(shard: PostgresShardFacts, into: FoldedTable) -> list[Told]:
    """An old row is sent as far as its replica identity goes, and its key must be in that."""
    if shard.identity == WHOLE or shard.published is None:
        return []
    key = into.key or next(iter(shard.unique), ())
    fix = f"ALTER TABLE {SHARD} REPLICA IDENTITY FULL"
    if shard.identity == NOTHING or not shard.identified:
        what = "it has no replica identity: the server refuses each UPDATE and DELETE of it"
        return [(WARN, "replica_identity", what, fix)]
    absent = unidentified(shard, key)
    if not absent:
        return []
    what = f"a deleted row is sent without {', '.join(absent)} of its key: it would stay"
    return [(REFUSE, "replica_identity", what, fix)]


def _columns(shard: PostgresShardFacts) -> list[Told]:
    whys = [why for column in shard.typed if (why := unverifiable(column))]
    if not whys:
        return []
    fix = "none: these columns are mirrored, but not compared"
    return [(NOTE, "unverifiable", f"not verifiable: {'; '.join(whys)}", fix)]
