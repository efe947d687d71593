"""Which captured tables cannot be mirrored or proven in full, as the catalogue shows?  Pure."""

from collections import defaultdict
from collections.abc import Callable, Sequence

from pipeline.finding import REFUSE, WARN, Finding, FindingSeverity
from pipeline.sources.postgres.description import unidentified, unsent
from pipeline.sources.postgres.replication import Replication
from pipeline.sources.postgres.server_facts import PublicationFacts
from pipeline.sources.postgres.session import spelled
from pipeline.sources.postgres.shard_facts import NOTHING, WHOLE, PostgresShardFacts
from pipeline.sources.scope import FoldedTable

SHARD = "<shard>"  # stands in a fix until all shards that need it are known

Told = tuple[FindingSeverity, str, str, str]  # severity, code, what, fix


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
    told: dict[tuple[str, Told], list[str]] = defaultdict(list)
    for shard in shards:
        into = fold(shard.shard.name)
        if into is None:
            continue
        key = _key(shard, into, topic_keys=topic_keys)
        for one in (*_sent(shard, publication, names), *key, *_identity(shard, into)):
            told[into.table, one].append(shard.shard.name)
    return [
        Finding(
            severity, code, f"table {table}", f"{_few(shards, table)}{what}", _spelled(fix, shards)
        )
        for (table, (severity, code, what, fix)), shards in told.items()
    ]


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
        return _named_key(shard, into.key)
    if shard.unique or topic_keys:
        return []
    what = "no primary key and no unique, not-null index: landed, but its mirror is HELD(no_key)"
    fix = (
        f"ALTER TABLE {SHARD} ADD PRIMARY KEY (...), or name a unique, not-null set"
        " of columns as key: under tables"
    )
    return [(WARN, "no_key", what, fix)]


def _named_key(shard: PostgresShardFacts, key: tuple[str, ...]) -> list[Told]:
    wrong = [name for name in key if name not in shard.columns or name in shard.nullable]
    if wrong:
        what = f"key: names {', '.join(wrong)}, which is no column of it or may be NULL"
        return [(REFUSE, "key", what, "name columns that are NOT NULL as key: under tables")]
    if any(set(one) <= set(key) for one in shard.unique):
        return []
    what = f"key: {', '.join(key)} is no unique index, so two rows may share it: one would be lost"
    return [(WARN, "key", what, f"ALTER TABLE {SHARD} ADD UNIQUE ({', '.join(key)})")]


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


def _spelled(fix: str, names: Sequence[str]) -> str:
    more = f" (and the same for {len(names) - 1} more)" if len(names) > 1 and SHARD in fix else ""
    return fix.replace(SHARD, names[0]) + more


def _few(names: Sequence[str], table: str) -> str:
    """Name the shards, unless the table is its only shard."""
    if list(names) == [table]:
        return ""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"{', '.join(names[:3])}{more}: "
