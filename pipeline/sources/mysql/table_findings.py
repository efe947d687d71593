"""Which captured tables cannot be mirrored, proven or compared in full, as their schema shows?

Pure.
"""

from collections.abc import Callable, Sequence
from shlex import quote

from pipeline.finding import NOTE, REFUSE, WARN, Finding
from pipeline.sources.findings import SHARD, Told, no_key, of_named_key, of_tables
from pipeline.sources.mysql.description import cascades_unlogged, cascading
from pipeline.sources.mysql.server_facts import ServerFacts
from pipeline.sources.mysql.shard_facts import ShardFacts
from pipeline.sources.mysql.typemap import rounded, unverifiable
from pipeline.sources.scope import FoldedTable

LONGEST = {  # bytes that a value may have
    **dict.fromkeys(("MEDIUMTEXT", "MEDIUMBLOB"), 2**24),
    **dict.fromkeys(("LONGTEXT", "LONGBLOB", "JSON"), 2**32),
}
TRANSACTIONAL = ("innodb", "rocksdb", "tokudb", "ndbcluster")


def table_findings(
    shards: Sequence[ShardFacts],
    server: ServerFacts,
    fold: Callable[[str], FoldedTable | None],
    *,
    topic_keys: bool = False,
    largest: int | None = None,
) -> list[Finding]:
    """Findings of all shards; what shards of one table share is told once.

    *fold* gives None for a shard that the rules ignore.  *topic_keys*: the connector names keys
    of its own, so tables without one may have got one.  *largest*: bytes of a record that gets
    through.
    """
    return of_tables(
        (into.table, shard.shard.name, one)
        for shard in shards
        if (into := fold(shard.shard.name)) is not None
        for one in (
            *_shard(shard, server, into, topic_keys=topic_keys),
            *_too_large(shard, server, largest),
        )
    )


def zero_dates(server: ServerFacts) -> bool:
    """Whether ``0000-00-00`` may get in: NO_ZERO_DATE refuses it only together with strictness."""
    modes = set(server.variables.get("sql_mode", "").upper().split(","))
    if "TRADITIONAL" in modes:
        return False
    return "NO_ZERO_DATE" not in modes or not modes & {"STRICT_TRANS_TABLES", "STRICT_ALL_TABLES"}


def _shard(
    shard: ShardFacts, server: ServerFacts, into: FoldedTable, *, topic_keys: bool
) -> list[Told]:
    return [
        *_key(shard, into, topic_keys=topic_keys),
        *_cascades(shard, server, into.table),
        *_engine(shard),
        *_columns(shard, server),
        *_rounded(shard),
    ]


def _key(shard: ShardFacts, into: FoldedTable, *, topic_keys: bool) -> list[Told]:
    if into.key:
        not_null = {column.name for column in shard.columns if not column.nullable}
        named = of_named_key(into.key, not_null, shard.unique)
        return named if topic_keys else [*_key_sent(shard, into.key), *named]
    if shard.unique or topic_keys:
        return []
    return no_key()


def _key_sent(shard: ShardFacts, key: tuple[str, ...]) -> list[Told]:
    """What a collector sends as a row's key is the primary key, unless it is told otherwise."""
    sent = shard.unique[0] if shard.primary else ()
    if set(sent) == set(key):
        return []
    what = f"key: is {', '.join(key)}, the connector sends ({', '.join(sent)}): updates are lost"
    fix = f"message.key.columns={SHARD}:{','.join(key)} in the connector, then a new base"
    return [(REFUSE, "key_sent", what, fix)]


def _cascades(shard: ShardFacts, server: ServerFacts, table: str) -> list[Told]:
    if not shard.cascades or not cascades_unlogged(server):
        return []
    fix = (
        "let the application change these rows, and drop the rule of the foreign key; or MySQL"
        f" 9.6 with innodb_native_foreign_keys=OFF; or waive what sluice explain {quote(table)}"
        " then names"
    )
    return [(WARN, "unproven", cascading(shard), fix)]


def _engine(shard: ShardFacts) -> list[Told]:
    if shard.engine.lower() in TRANSACTIONAL:
        return []
    what = f"engine {shard.engine} knows no transactions: its snapshot stands at no position"
    return [(WARN, "engine", what, f"ALTER TABLE {SHARD} ENGINE=InnoDB")]


def _columns(shard: ShardFacts, server: ServerFacts) -> list[Told]:
    zero = zero_dates(server)
    whys = [why for c in shard.columns if (why := unverifiable(c, zero_dates=zero))]
    if not whys:
        return []
    avoidable = zero and any("0000-00-00" in why for why in whys)
    fix = (
        "sql_mode with STRICT_TRANS_TABLES and NO_ZERO_DATE, once no row holds one"
        if avoidable
        else "none: these columns are mirrored, but not compared"
    )
    return [(NOTE, "unverifiable", f"not verifiable: {'; '.join(whys)}", fix)]


def _too_large(shard: ShardFacts, server: ServerFacts, largest: int | None) -> list[Told]:
    """One row that is too large stops the connector, and with it the whole source."""
    if largest is None:
        return []
    packet = server.variables.get("max_allowed_packet", "")
    most = int(packet) if packet.isdigit() else LONGEST["LONGTEXT"]
    sizes = {c.name: min(LONGEST.get(c.kind.upper(), 0), most) for c in shard.columns}
    names = [name for name, size in sizes.items() if size > largest]
    if not names:
        return []
    what = (
        f"{', '.join(names)} may hold more than the {largest} bytes of a record: one such row"
        " stops the whole source"
    )
    fix = (
        "raise producer.override.max.request.size of the connector (sluice connector SOURCE"
        " --apply), message.max.bytes of the brokers, and max.message.bytes of topics that set it"
    )
    return [(WARN, "too_large", what, fix)]


def _rounded(shard: ShardFacts) -> list[Told]:
    names = [column.name for column in shard.columns if rounded(column)]
    if not names:
        return []
    what = (
        f"FLOAT in {', '.join(names)}: a snapshot rounds it to six digits, so a row that no change"
        " has brought differs in the mirror, and no check sees it"
    )
    fix = (  # no statement: it would take away what this knows nothing of
        f"where more digits matter: make {', '.join(names)} of {SHARD} DOUBLE by ALTER TABLE ..."
        " MODIFY with all else of their definitions (NOT NULL, DEFAULT: MODIFY takes away what is"
        " left out), then a new base; else nothing"
    )
    return [(WARN, "rounded", what, fix)]
