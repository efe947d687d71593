"""Which captured tables cannot be mirrored or proven in full, as the catalogue shows?

``table_findings`` is what the doctor prints; ``hazards`` is the part of it that the running
service withholds READY for.  Both go through the same list.  Pure.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from re import escape

from pipeline.finding import NOTE, REFUSE, WARN, Demand, Effect, Finding
from pipeline.sources.findings import SHARD, Told, no_key, of_named_key, of_tables
from pipeline.sources.postgres.description import INDEX, filtered, unidentified, unsent
from pipeline.sources.postgres.replication import Replication
from pipeline.sources.postgres.server_facts import PublicationFacts
from pipeline.sources.postgres.session import spelled
from pipeline.sources.postgres.shard_facts import NOTHING, WHOLE, PostgresShardFacts
from pipeline.sources.postgres.typemap import unverifiable
from pipeline.sources.scope import FoldedTable

ROWS = Demand(
    "row filter of the publication",
    "rows for which it does not hold are not sent",
    effect=Effect.DROPS,
)
COLUMNS = Demand(
    "column list of the publication",
    "columns that it leaves out are not sent",
    severity=WARN,
    effect=Effect.REWRITES,
)
OTHER_INDEX = Demand(
    "REPLICA IDENTITY USING INDEX without the key",
    "a deleted row is sent without its key, and stays in the mirror",
    effect=Effect.DROPS,
)
NO_IDENTITY = Demand(
    "REPLICA IDENTITY NOTHING",
    "the log does not say which row is changed; while it is published, UPDATE and DELETE fail",
    severity=WARN,
    effect=Effect.DELAYS,
)
DEMANDS = (ROWS, COLUMNS, OTHER_INDEX, NO_IDENTITY)
FULL = f"ALTER TABLE {SHARD} REPLICA IDENTITY FULL"
Harm = tuple[Demand, Told]


def hazards(
    shards: Iterable[PostgresShardFacts], publication: str, where: str
) -> tuple[Finding, ...]:
    """What drops or rewrites changes of published *shards*; each table in one of its own.

    Which keys the config names is not known here: a finding says which ones are well.
    """
    found = {
        Finding(
            severity,
            code,
            where,
            f"{demand.name} on {shard.shard.name}: {what}",
            fix.replace(SHARD, shard.shard.name),
            demand.effect,
            escape(shard.shard.name),
            shard.identified if demand is OTHER_INDEX else (),
        )
        for shard in shards
        for demand, (severity, code, what, fix) in (
            *_left_out(shard, publication),
            *_harmful_identity(shard, next(iter(shard.unique), ())),
        )
    }
    return tuple(sorted(found, key=lambda one: one.what))


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
    return [told for _, told in _left_out(shard, names.publication)][:1]


def _left_out(shard: PostgresShardFacts, publication: str) -> Iterator[Harm]:
    """Rows and columns that the publication leaves out."""
    name, sent = spelled(publication), shard.published
    again = (
        f"ALTER PUBLICATION {name} DROP TABLE {SHARD}; ALTER PUBLICATION {name} ADD TABLE {SHARD}"
    )
    if sent is not None and sent.rows:
        yield ROWS, (ROWS.severity, "unpublished", filtered(sent, publication), again)
    if sent is not None and sent.left_out:
        what = f"publication {publication} leaves out {', '.join(sent.left_out)}"
        what += ": the mirror lacks these columns"
        yield COLUMNS, (COLUMNS.severity, "columns_unpublished", what, again)


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
    harmful = [told for _, told in _harmful_identity(shard, key)]
    if harmful or shard.identity == INDEX:
        return harmful
    return [_refusing()] if not shard.identified else _without(shard, key)


def _harmful_identity(shard: PostgresShardFacts, key: Sequence[str]) -> Iterator[Harm]:
    if shard.identity == NOTHING or (shard.identity == INDEX and not shard.identified):
        yield NO_IDENTITY, _refusing()
    elif shard.identity == INDEX:
        yield from ((OTHER_INDEX, told) for told in _without(shard, key))


def _refusing() -> Told:
    what = "it has no replica identity: the server refuses each UPDATE and DELETE of it"
    return NO_IDENTITY.severity, "replica_identity", what, FULL


def _without(shard: PostgresShardFacts, key: Sequence[str]) -> list[Told]:
    absent = unidentified(shard, key)
    if not absent:
        return []
    what = f"a deleted row is sent without {', '.join(absent)} of its key: it would stay"
    return [(OTHER_INDEX.severity, "replica_identity", what, FULL)]


def _columns(shard: PostgresShardFacts) -> list[Told]:
    whys = [why for column in shard.typed if (why := unverifiable(column))]
    if not whys:
        return []
    fix = "none: these columns are mirrored, but not compared"
    return [(NOTE, "unverifiable", f"not verifiable: {'; '.join(whys)}", fix)]
