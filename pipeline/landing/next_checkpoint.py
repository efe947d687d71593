"""Computes the landing checkpoint after a batch, from the one before and the batch's statistics.

Statements are matched to shards by name: a shard may be concerned if its name is in the text. A
migration alters every shard in one batch, so texts and shards are many at once. A name of only
word characters can occur in a text only within one of its words. Distinct words are few,
because most statements differ only in the name.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

from pipeline.checkpoint import (
    MAX_NAMED_CHANGES,
    Checkpoint,
    Epoch,
    EpochStart,
    Gap,
    OpenSnapshot,
    Quarantine,
    source_of,
)
from pipeline.landing.backfill import BackfillStep
from pipeline.landing.bases import (
    Settled,
    advance_snapshots,
    detect_repeated_snapshots,
    detect_split_snapshots,
    find_births,
    inherit_bases,
    initial_snapshots,
    is_torn,
    read_snapshots,
)
from pipeline.landing.batch_stats import NAMED, BatchStats, SchemaNews, UnreadChanges, merge_schemas
from pipeline.landing.epochs import find_moved, find_needed_starts, find_resending
from pipeline.landing.gaps import (
    detect_capture_changes,
    detect_changed_orderings,
    detect_failover_divergence,
    detect_hidden_topics,
    detect_lost_logs,
    detect_new_rules,
    detect_new_standards,
)
from pipeline.landing.hazards import detect_hazards
from pipeline.landing.heartbeats import detect_missing_heartbeats, follow_histories, note_levels
from pipeline.landing.listing import TopicNames, TopicShards
from pipeline.landing.plan import Plan
from pipeline.landing.rule import BatchContext, CheckpointRule
from pipeline.landing.source_holds import note_late_rows
from pipeline.model import Acknowledged, Order, Origin, Shard
from pipeline.settings import Router

_WORDS = re.compile(r"\w+")
T = TypeVar("T")


def shards_named_in_ddl(texts: Iterable[tuple[str, str]], shards: Iterable[Shard]) -> set[Shard]:
    """Return shards whose relation occurs in the text of a statement of their source.

    Also those whose database occurs in a statement about a database: no event names its tables.
    *texts* are (source, text).
    """
    said: dict[str, list[str]] = {}
    for source, text in texts:
        said.setdefault(source, []).extend((text, text.replace("``", "`")))
    spoken = {source: _SourceStatements("\n".join(own).casefold()) for source, own in said.items()}
    return {
        shard
        for shard in shards
        if (one := spoken.get(shard.source)) is not None and one.is_about(shard)
    }


@dataclass(frozen=True)  # without slots: its properties are cached, and most batches need few
class _SourceStatements:
    """All statements of one source, in lower case."""

    text: str

    @cached_property
    def words(self) -> str:
        """Return each word of the text once."""
        return "\n".join(sorted({*_WORDS.findall(self.text)}))

    @cached_property
    def of_databases(self) -> bool:
        """Return whether a statement may be about a database."""
        return "database" in self.words or "schema" in self.words

    def is_about(self, shard: Shard) -> bool:
        """Return whether the text contains the name of *shard* or of its database."""
        own = Shard(shard.source, shard.name.casefold())
        return self._holds(own.relation) or (self.of_databases and self._holds(own.database))

    def _holds(self, name: str) -> bool:
        return name in (self.words if _WORDS.fullmatch(name) else self.text)


NONE_AGAIN = BackfillStep()  # if no backfill is open


RULES: tuple[CheckpointRule, ...] = (
    detect_new_rules,
    detect_new_standards,
    detect_hidden_topics,
    detect_failover_divergence,
    note_late_rows,
    detect_changed_orderings,
    detect_capture_changes,
    detect_lost_logs,
    detect_repeated_snapshots,
    detect_split_snapshots,
    detect_missing_heartbeats,
    follow_histories,
    note_levels,
    detect_hazards,
)
"""All rules, in the order in which they run."""


def next_checkpoint(
    context: BatchContext,
    plan: Plan,
    *,
    acknowledged: Mapping[str, Acknowledged],
    names_of: Callable[[str], TopicNames | None],
    again: BackfillStep = NONE_AGAIN,
) -> tuple[Checkpoint, tuple[Settled, ...]]:
    """Return the checkpoint after the batch of *context*, and the shards whose base it completes.

    *acknowledged* holds only what W of *plan* has passed. The statistics include the rows that
    *again* takes.
    """
    checkpoint, settled = _advance(
        context, plan, acknowledged=acknowledged, names_of=names_of, again=again
    )
    for rule in RULES:
        checkpoint = rule(checkpoint, context)
    return checkpoint, settled


def _advance(
    context: BatchContext,
    plan: Plan,
    *,
    acknowledged: Mapping[str, Acknowledged],
    names_of: Callable[[str], TopicNames | None],
    again: BackfillStep,
) -> tuple[Checkpoint, tuple[Settled, ...]]:
    """Add what the batch itself proves.

    A source whose epoch moves loses its acknowledgement: positions of two logs prove nothing about
    each other.
    """
    facts, router, waived = context.stats, context.router, context.waived
    epochs, starts = context.epochs.known, context.epochs.starts
    checkpoint = _topics(context.before, facts, plan)
    snaps, settled = _backfilled(
        again, *_snaps(checkpoint, facts, batch := checkpoint.batch + 1, waived)
    )
    named = (*snaps, *(done.shard for done in settled))
    shards = _shards(checkpoint, facts, named, router)
    closed = (*settled, *(dropped := _dropped(checkpoint, facts, batch)))
    known = _shards_after(checkpoint, facts, shards, names_of)
    made = replace(
        replace(checkpoint, batch=batch, snaps=snaps, backfills=again.backfills),
        acknowledged=_acknowledged(checkpoint, acknowledged, epochs),
        heartbeats=_highest(checkpoint.heartbeats, facts.heartbeats),
        tables={
            **checkpoint.tables,
            **dict.fromkeys(_touched(facts, settled, shards, router), batch),
        },
        epochs=_epochs(checkpoint, epochs),
        high={**checkpoint.high, **facts.high},
        snapshots=read_snapshots(checkpoint, facts),
        initial=initial_snapshots(checkpoint, facts),
        shards=shards,
        existing=known.checkpoint.existing,
        departed={
            **checkpoint.departed,
            **dict.fromkeys(_departed(checkpoint, facts, dropped), batch),
        },
        bases=_bases(checkpoint, facts, settled),
        belated={**checkpoint.belated, **dict.fromkeys(_corrected(again), batch)},
        lost=_lost(checkpoint, settled),
        gaps=_gaps(checkpoint, facts, _opened(plan, batch, known), closed, waived),
        quarantine=_quarantine(checkpoint, facts, known, closed, waived, epochs=epochs),
    )
    return _passed(_started(_completed(made, settled), starts, plan), acknowledged), settled


def _topics(checkpoint: Checkpoint, facts: BatchStats, plan: Plan) -> Checkpoint:
    """Apply W after *plan*, described columns, and topics that gained partitions or miss rows."""
    parts = {
        shard: rows.order
        for shard, rows in ((Shard.parse(name), one) for name, one in facts.snapshots.items())
        if rows.topics & plan.trimmed or is_torn(rows, checkpoint.snaps.get(shard))
    }
    topics = tuple(sorted({*checkpoint.trimmed, *plan.trimmed}))
    at = replace(checkpoint, offsets=dict(plan.offsets), gone=dict(plan.gone))
    at = replace(
        at,
        schemas=merge_schemas(checkpoint.schemas, facts.schemas),
        quarantine=_note_disturbed(checkpoint, plan),
    )
    return replace(
        at,
        grown=tuple(sorted(grown_topics(checkpoint, plan))),
        trimmed=topics,
        parts=_updated(checkpoint.parts, parts),
    )


def _note_disturbed(checkpoint: Checkpoint, plan: Plan) -> dict[str, Quarantine]:
    """Mark open quarantines whose offsets may now have other messages: they are not read again."""
    moved = plan.disturbed
    found = checkpoint.quarantine.items()
    return {n: replace(one, epoch=0) if one.partitions & moved else one for n, one in found}


def _shards_after(
    checkpoint: Checkpoint,
    facts: BatchStats,
    shards: Mapping[Shard, str | None],
    names_of: Callable[[str], TopicNames | None],
) -> TopicShards:
    """Return the shards after the batch, and which of them exist."""
    made = replace(checkpoint, shards=shards, existing=find_births(checkpoint, facts)[0])
    return TopicShards(made, shards, names_of)


def _departed(checkpoint: Checkpoint, facts: BatchStats, dropped: Iterable[Settled]) -> set[str]:
    """Return the tables that a shard has left, by a DROP or a RENAME."""
    gone = {*(old for old, _ in _renamed(checkpoint, facts)), *(done.shard for done in dropped)}
    return {table for shard in gone if (table := checkpoint.shards.get(shard)) is not None}


def _snaps(
    checkpoint: Checkpoint, facts: BatchStats, batch: int, waived: frozenset[str]
) -> tuple[dict[Shard, OpenSnapshot], tuple[Settled, ...]]:
    """Return the snapshots that are still awaited, and the bases that this batch completes."""
    left, settled = advance_snapshots(checkpoint, facts, batch)
    open_ = {shard: snap for shard, snap in left.items() if snap.waiver(shard) not in waived}
    return open_, settled


def _backfilled(
    again: BackfillStep, snaps: Mapping[Shard, OpenSnapshot], settled: tuple[Settled, ...]
) -> tuple[dict[Shard, OpenSnapshot], tuple[Settled, ...]]:
    """Add backfilled bases; a snapshot that began before one of them is dropped."""
    bases = {done.shard: done for done in settled}
    for done in again.settled:
        known = bases.get(done.shard)
        bases[done.shard] = done if known is None or known.order < done.order else known
    new = {done.shard: done.order for done in again.settled}
    left = {n: snap for n, snap in snaps.items() if n not in new or snap.order > new[n]}
    return left, tuple(bases[shard] for shard in sorted(bases, key=str))


def _corrected(again: BackfillStep) -> set[str]:
    """Return tables with rows of a repair or replay: older mirrors and copies lack these rows.

    Rows of a bootstrap do not count: it takes many batches, and ``complete`` names the last one.
    """
    return {
        one.table
        for one in again.taken
        if one.rows and again.backfills[one.shard].origin is not Origin.SNAPSHOT
    }


def _bases(
    checkpoint: Checkpoint, facts: BatchStats, settled: Iterable[Settled]
) -> Mapping[Shard, Order]:
    own = {done.shard: done.order for done in settled}
    return _updated(checkpoint.bases, {**inherit_bases(checkpoint, facts), **own})


def _completed(made: Checkpoint, settled: Iterable[Settled]) -> Checkpoint:
    complete = dict.fromkeys((done.shard for done in settled), made.batch)
    began = {done.shard: done.since for done in settled}
    return replace(
        made, based=_updated(made.based, began), complete=_updated(made.complete, complete)
    )


def _lost(checkpoint: Checkpoint, settled: Iterable[Settled]) -> Mapping[Shard, Order]:
    """Return the order below which shards may lack changes although no gap is open.

    A base closes a gap, but rows that moved to another table before still lack the changes.
    """
    doubts: list[Gap | Quarantine] = [*checkpoint.gaps.values()]
    doubts += checkpoint.quarantine.values()
    closed = {
        done.shard: done.order
        for done in settled
        for name in [str(done.shard)]
        if any(name in doubt.shards and heals(done, doubt) for doubt in doubts)
    }
    return _updated(checkpoint.lost, closed)


def _updated(known: Mapping[Shard, T], new: Mapping[Shard, T]) -> Mapping[Shard, T]:
    """Return both; *known* itself if nothing is *new*, so that nothing compares all of it."""
    return {**known, **new} if new else known


def _acknowledged(
    checkpoint: Checkpoint, passed: Mapping[str, Acknowledged], epochs: Mapping[str, Epoch]
) -> dict[str, Acknowledged]:
    known, moved = {**checkpoint.acknowledged, **passed}, find_moved(checkpoint.epochs, epochs)
    return {name: said for name, said in known.items() if name not in moved}


def _epochs(checkpoint: Checkpoint, epochs: Mapping[str, Epoch]) -> dict[str, Epoch]:
    """Return the epochs now; a new one keeps the acknowledgement of the log before."""
    said = {
        name: checkpoint.acknowledged.get(name) for name in find_moved(checkpoint.epochs, epochs)
    }
    return {**epochs, **{name: replace(epochs[name], passed=one) for name, one in said.items()}}


def _started(made: Checkpoint, starts: Mapping[EpochStart, int], plan: Plan) -> Checkpoint:
    """Return *made* with those *starts* that matter for rows that are new or redelivered."""
    again = {(name, made.epochs[name].number) for name in find_resending(made, made.epochs)}
    left = find_needed_starts(starts, made.offsets, renewed=plan.renewed, kept=again)
    return replace(made, starts=left)


def _shards(
    checkpoint: Checkpoint, facts: BatchStats, seen: Iterable[Shard], router: Router
) -> Mapping[Shard, str | None]:
    """Return the shards after the batch, with their tables.

    They include shards that a statement altered, without rows or a base: these are BLOCKED until
    they have a base. A RENAME alters the table that it makes. If it does not name the database of
    the old one, as in ``USE a; RENAME TABLE t TO b.t``, Debezium does not report the old one
    (measured on 3.5).

    It is the same object if no shard is new or has moved, so that nothing compares all of them.
    """
    altered = (
        one.shard
        for one in facts.news
        if one.captured and not one.snapshot and one.change.kind == "alter"
    )
    inherited = inherit_bases(checkpoint, facts)
    known = {shard: router.table(shard.name) for shard in (*seen, *inherited, *altered)}
    known |= {Shard.parse(name): table for name, table in facts.shards.items()}
    before = checkpoint.shards
    if all(shard in before and before[shard] == table for shard, table in known.items()):
        return before
    return {**before, **known}


def _touched(
    facts: BatchStats, settled: Iterable[Settled], shards: Collection[Shard], router: Router
) -> set[str]:
    """Return tables whose mirrors must be merged: rows, a base, or a new schema without rows.

    Also tables that a statement may name in addition to its own table, or without one. Whether it
    moves their rows is decided when they are merged. A statement about an unknown or unsent table
    concerns no mirror.
    """
    described = {news.shard for news in facts.news}
    reshaped = {router.table(shard.name) for shard in described if shard in shards}
    based = {router.table(done.shard.name) for done in settled}
    about = shards_named_in_ddl(facts.texts, shards) if facts.texts else ()
    named = {router.table(shard.name) for shard in about}
    return {name for name in {*facts.tables, *reshaped, *based, *named} if name is not None}


def _highest(old: Mapping[str, int], new: Mapping[str, int]) -> dict[str, int]:
    return {**old, **{name: max(number, old.get(name, number)) for name, number in new.items()}}


def grown_topics(checkpoint: Checkpoint, plan: Plan) -> frozenset[str]:
    """Return topics that have gained partitions up to *plan*: their keys may have moved."""
    added = {at.topic for at in plan.offsets.keys() - checkpoint.offsets.keys()}
    if not added:
        return frozenset(checkpoint.grown)
    topics = {at.topic for at in checkpoint.offsets}
    return frozenset({*checkpoint.grown, *(added & topics)})


def _opened(plan: Plan, batch: int, known: TopicShards) -> tuple[Gap, ...]:
    """Return the plan's gaps with their shards; a waiver of one does not cover the next.

    *known* are the shards after the batch: a doubt is a gap of a table that exists by then.
    """
    return tuple(
        replace(gap, id=f"{gap.id}@{batch}", batch=batch, shards=known.lost_with(gap.topic))
        for gap in (*plan.gaps, *(one for one in plan.doubts if known.is_needed(one.topic)))
        if not known.concerns_nobody(gap.topic)
    )


def _renamed(checkpoint: Checkpoint, facts: BatchStats) -> tuple[tuple[Shard, Shard], ...]:
    """Return the renamed shards, before and after."""
    return tuple(
        (news.former, news.shard)
        for news in facts.news
        if news.former is not None and _is_new(checkpoint, news, news.former)
    )


def _dropped(checkpoint: Checkpoint, facts: BatchStats, batch: int) -> tuple[Settled, ...]:
    """Return dropped shards as settled: their losses do not matter any more."""
    return tuple(
        Settled(news.shard, news.change.order, batch, born=True)
        for news in facts.news
        if news.change.kind == "drop" and not news.snapshot
        if _is_new(checkpoint, news, news.shard)
    )


def _is_new(checkpoint: Checkpoint, news: SchemaNews, shard: Shard) -> bool:
    """Return whether a statement about *shard* is new; a resent one ends no later rows."""
    known = checkpoint.existing.get(shard)
    return known is None or known.order < news.change.order


def _gaps(
    checkpoint: Checkpoint,
    facts: BatchStats,
    opened: Iterable[Gap],
    settled: Sequence[Settled],
    waived: frozenset[str],
) -> dict[str, Gap]:
    """Return the gaps after the batch; a gap follows the rows when their table is renamed."""
    result: dict[str, Gap] = {}
    renamed = [(str(old), str(new)) for old, new in _renamed(checkpoint, facts)]
    for gap in (*checkpoint.gaps.values(), *opened):
        healed = _healed(settled, gap)
        left = tuple(name for name in gap.shards if name not in healed)
        came = (new for old, new in renamed if old in gap.shards and new not in left)
        left = (*left, *came)
        if gap.id in waived or (gap.shards and not left):
            continue
        result[gap.id] = replace(gap.after((), checkpoint.shards), shards=left)
    return result


def _quarantine(
    checkpoint: Checkpoint,
    facts: BatchStats,
    known: TopicShards,
    settled: Sequence[Settled],
    waived: frozenset[str],
    *,
    epochs: Mapping[str, Epoch],
) -> dict[str, Quarantine]:
    """Return the open quarantines after the batch; *known* are the shards after it."""
    result: dict[str, Quarantine] = {}
    for subject in sorted({*checkpoint.quarantine, *facts.errors}):
        one, fresh = checkpoint.quarantine.get(subject), facts.errors.get(subject)
        one = _waived(subject, one, waived) if one else None
        if fresh is not None:
            sure = _sure(checkpoint, epochs, fresh.source)
            one = _more(one, fresh, checkpoint.batch + 1, _closing(subject, known), sure)
        one = _closed(one, settled) if one else None
        if one is not None:
            result[subject] = one
    return result


def _closing(subject: str, known: TopicShards) -> tuple[str, ...]:
    topic = subject.removeprefix("topic:")
    return (subject,) if topic == subject else known.lost_with(topic)


def _more(
    known: Quarantine | None,
    fresh: UnreadChanges,
    batch: int,
    shards: tuple[str, ...],
    epoch: int,
) -> Quarantine:
    """Add what was quarantined in *batch*; from then on each shard needs a base after that."""
    ids = (*(known.ids if known else ()), *(f"{name}@{batch}" for name in fresh.ids))[:NAMED]
    count = (known.count if known else 0) + fresh.count
    one = epoch if known is None or known.epoch == epoch else 0
    return Quarantine(fresh.table, batch, count, ids, shards, epoch=one)


def _sure(checkpoint: Checkpoint, epochs: Mapping[str, Epoch], source: str) -> int:
    """Return the epoch of all rows of *source* in a batch; 0 if some may be of an earlier one."""
    before, now = checkpoint.epochs.get(source), epochs.get(source)
    if now is None or now.number != (1 if before is None else before.number):
        return 0
    return 0 if any(one.source == source for one in checkpoint.starts) else now.number


def _waived(subject: str, one: Quarantine, waived: frozenset[str]) -> Quarantine | None:
    all_others = one.names(subject)[-1] in waived and one.count > MAX_NAMED_CHANGES
    named, rest = (
        (one.ids[:MAX_NAMED_CHANGES], 0) if all_others else (one.ids, one.count - len(one.ids))
    )
    ids = tuple(name for name in named if name not in waived)
    return replace(one, ids=ids, count=len(ids) + rest) if ids or rest else None


def _closed(one: Quarantine, settled: Iterable[Settled]) -> Quarantine | None:
    healed = _healed(settled, one)
    left = tuple(name for name in one.shards if name not in healed)
    return None if one.shards and not left else replace(one, shards=left)


def _healed(settled: Iterable[Settled], doubt: Gap | Quarantine) -> set[str]:
    """Return the shards whose new base closes *doubt*."""
    return {str(done.shard) for done in settled if heals(done, doubt)}


def heals(done: Settled, doubt: Gap | Quarantine) -> bool:
    """Return whether a base began after all losses of *doubt*.

    A CREATE may have landed after the losses only by chance, so it counts only once *doubt* is
    passed.
    """
    later = done.since > doubt.batch
    if isinstance(doubt, Gap) and doubt.doubt:  # no base closes it before its end is known
        later = later and doubt.above is not None and done.order > doubt.above
    elif isinstance(doubt, Gap) and doubt.above is not None:
        later = done.order >= doubt.above
    return later and (doubt.passed or not done.born)


def _passed(made: Checkpoint, acknowledged: Mapping[str, Acknowledged]) -> Checkpoint:
    """Note gaps and quarantines as passed if all their sources were read up to a listed end.

    A gap whose missing changes were sent again closes for the shards that now have them.
    """

    def passed(doubt: Gap | Quarantine) -> bool:
        return {source_of(name) for name in doubt.shards} <= acknowledged.keys()

    gaps, late = dict(made.gaps), set[str]()
    for gap in (one for one in made.gaps.values() if passed(one)):
        left = replace(gap, passed=True)
        if _has_arrived(gap, made):
            left = _sent_late(gap, made)
            late |= set(gap.shards) - set(left.shards)
        gaps[gap.id] = left
        if gap.shards and not left.shards:
            del gaps[gap.id]
    unread = {n: replace(one, passed=True) for n, one in made.quarantine.items() if passed(one)}
    tables = (made.shards.get(Shard.parse(name)) for name in late)
    belated = {table: made.batch for table in tables if table is not None}
    return replace(
        made,
        gaps=gaps,
        quarantine={**made.quarantine, **unread},
        belated={**made.belated, **belated},
    )


def _has_arrived(gap: Gap, made: Checkpoint) -> bool:
    """Return whether all has landed that was sent again with missing heartbeats.

    *gap* is of a source that was read up to another listing in this batch. The listing that noted
    it as passed may have been made before the heartbeats came; this one was made after that.
    """
    if not (gap.sent_again and gap.passed and gap.shards and gap.above is not None):
        return False
    return made.passed(source_of(gap.shards[0]), gap.above)


def _sent_late(gap: Gap, made: Checkpoint) -> Gap:
    """Return *gap*, which was redelivered, for the shards for which that was too late.

    A statement about them has landed before, or came with it: order alone does not show to which
    rows it applied. A base as of that statement, such as a CREATE's, holds all earlier rows.
    """

    def late(name: str) -> bool:
        shard = Shard.parse(name)
        known, base = made.existing.get(shard), made.bases.get(shard)
        if known is None or not known.there:
            return False
        return all(one < known.order for one in (gap.below, base) if one is not None)

    left = tuple(name for name in gap.shards if late(name))
    why = (
        f"{gap.topic} {gap.first} to {gap.until - 1} were sent again, but a statement about the"
        " table came since; take a new base"
    )
    return replace(gap, shards=left, why=why)
