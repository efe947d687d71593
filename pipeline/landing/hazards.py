"""Records gaps for settings by which changes may be dropped, rewritten or delayed.

A collector and its source report such settings at each look, after the acknowledgement was read. So
no batch can prove a cut by an acknowledgement that is newer than an unreported setting. While a
setting is reported, its tables have a gap. The gap's id names the setting and its value, so that it
can be waived. If the setting only delays changes, the gap closes with the setting.

Otherwise a base closes it. The base must be above the end that the source's log had once the
setting was surely gone. That the rows of a base landed later is not enough: they may have been sent
with the setting, and have waited in a topic. For the same reason the setting is remembered until
everything has landed that its log held by then. A table that had not landed before gets a gap, too.

Cannot detect: a setting that was changed and changed back between two looks; where changes have no
log positions, tables whose first rows land after the setting is gone.

A setting of several tables ends for each of them separately. The tables for which it ends at the
same end of the log share a new gap. A base closes that gap while others keep theirs. Pure.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256

from pipeline.checkpoint import (
    DELAY,
    SETTING,
    ActiveHazard,
    Checkpoint,
    Gap,
    shard_exists,
)
from pipeline.finding import Effect, Finding, join_alternatives, split_alternatives
from pipeline.landing.listing import LandingSource
from pipeline.landing.rule import BatchContext
from pipeline.model import CaptureScope, Order, Shard
from pipeline.settings import Router


@dataclass(frozen=True, slots=True)
class _Split:
    """The setting ``id`` is over for some of its tables: these have the id ``new`` now."""

    id: str
    new: str
    ended: ActiveHazard


def detect_hazards(checkpoint: Checkpoint, context: BatchContext) -> Checkpoint:
    """Record a gap of the tables of each hazard that lasts or whose changes may still land."""
    ends, waived = context.locate_log_ends(checkpoint), context.waived
    gaps = dict(checkpoint.gaps)
    known, splits = dict(checkpoint.hazards), list[_Split]()
    for source, capture in context.listing.captures.items():
        gone = f"{DELAY}:{source}"
        gaps = {id_: gap for id_, gap in gaps.items() if gap.topic != gone}
        splits += _remember(known, source, capture, ends.get(source), checkpoint.batch)
    for id_, one in tuple(known.items()):
        if not waived.isdisjoint({id_, *_waiver_ids(one.source, one.hazard)}):
            del known[id_]
            gaps.pop(id_, None)
    for split in splits:
        if split.id in gaps:
            _split_gap(gaps, split, known)
    for id_, one in known.items():
        gap = _gap(id_, one, gaps, checkpoint, context.router)
        if gap.shards:
            were = (context.before.gaps[id_],) if id_ in context.before.gaps else ()
            gaps[id_] = gap.after(were, checkpoint.shards)
    left = {id_: one for id_, one in known.items() if not _is_over(one, checkpoint, context)}
    return replace(checkpoint, gaps=gaps, hazards=left)


def hazard_id(source: str, hazard: Finding) -> str:
    """Return the id for waivers: it depends on the setting and its value, not on the wording.

    A setting that comes again has the same id.
    """
    return _digested(source, hazard, hazard.identity)


def _waiver_ids(source: str, hazard: Finding) -> Iterator[str]:
    """Yield the ids that waive *hazard*: the second one is from earlier versions, by its text."""
    yield hazard_id(source, hazard)
    yield _digested(source, hazard, hazard.what)


def _digested(source: str, hazard: Finding, identity: str) -> str:
    kind = DELAY if hazard.effect is Effect.DELAYS else SETTING
    digest = sha256(identity.encode()).hexdigest()[:8]
    return f"{kind}:{source}:{hazard.code}@{digest}"


def find_unrecorded_hazards(
    feeds: Iterable[LandingSource], checkpoint: Checkpoint
) -> dict[str, tuple[Finding, ...]]:
    """Return the hazards of each source that were seen and are in no checkpoint yet."""
    known = {
        id_: split_alternatives(one.hazard.shards)
        for id_, one in checkpoint.hazards.items()
        if one.above is None
    }
    found = {
        feed.settings.name: tuple(
            one
            for one in sorted(feed.unsaid, key=repr)
            if split_alternatives(one.shards)
            - known.get(hazard_id(feed.settings.name, one), frozenset())
        )
        for feed in feeds
    }
    return {source: hazards for source, hazards in found.items() if hazards}


def _by_id(source: str, hazards: Iterable[Finding]) -> dict[str, Finding]:
    """Group by id: a setting whose tables changed may be reported twice, and all tables count."""
    found = dict[str, Finding]()
    for one in hazards:
        known = found.setdefault(hazard_id(source, one), one)
        if known.shards != one.shards:
            both = split_alternatives(known.shards) | split_alternatives(one.shards)
            found[hazard_id(source, one)] = replace(known, shards=join_alternatives(both))
    return found


def _remember(
    known: dict[str, ActiveHazard],
    source: str,
    capture: CaptureScope,
    end: Order | None,
    batch: int,
) -> Iterator[_Split]:
    """Update *known* from *capture*; yield what ended for some of its tables only.

    A remembered setting that is not reported has ended, unless its reporter did not answer.
    """
    now = _by_id(source, capture.hazards)
    for id_, one in tuple(known.items()):
        reported = now.get(id_)
        if one.source != source or (one.above is not None and reported is None):
            continue
        gone = split_alternatives(one.hazard.shards)
        gone = gone - split_alternatives(reported.shards) if reported else gone
        if one.above is not None:  # it begins again, perhaps for other tables
            yield from _ended(known, id_, one, gone)
            continue
        looked = capture.steady and one.hazard.where not in capture.unanswered
        over = gone - capture.unreported(one.hazard) if looked and end is not None else frozenset()
        lasting = gone - over
        if reported is None and not lasting:
            known[id_] = replace(one, above=end, batch=batch)
            continue
        parts = lasting | split_alternatives(reported.shards) if reported else lasting
        known[id_] = replace(
            one, hazard=replace(reported or one.hazard, shards=join_alternatives(parts))
        )
        now.pop(id_, None)
        yield from _ended(known, id_, replace(one, above=end, batch=batch), over)
    known |= {id_: ActiveHazard(source, hazard, batch) for id_, hazard in now.items()}


def _ended(
    known: dict[str, ActiveHazard], id_: str, one: ActiveHazard, parts: frozenset[str]
) -> Iterator[_Split]:
    """Add to *known*, under a new id, that *one* is over for *parts*; yield the split."""
    if not parts:
        return
    new = _digested(one.source, one.hazard, f"{one.hazard.identity} until {one.above}")
    if new in known:
        parts |= split_alternatives(known[new].hazard.shards)
        one = replace(one, batch=max(one.batch, known[new].batch))
    known[new] = replace(one, hazard=replace(one.hazard, shards=join_alternatives(parts)))
    yield _Split(id_, new, known[new])


def _split_gap(gaps: dict[str, Gap], split: _Split, known: Mapping[str, ActiveHazard]) -> None:
    """Move the tables for which a setting is over into the gap that a base can close."""
    gap, lasting = gaps.pop(split.id), known[split.id].hazard
    over = {n for n in gap.shards if split.ended.hazard.affects(Shard.parse(n).name)}
    left = tuple(n for n in gap.shards if n not in over or lasting.affects(Shard.parse(n).name))
    if left:
        gaps[split.id] = replace(gap, shards=left)
    if over and split.new in known:
        others = gaps[split.new].shards if split.new in gaps else ()
        shards = tuple(sorted({*over, *others}))
        moved = _new_gap(split.new, split.ended, gap.first, shards)
        gaps[split.new] = replace(moved, shared=gap.shared and len(shards) > 1)


def _gap(
    id_: str, one: ActiveHazard, gaps: Mapping[str, Gap], made: Checkpoint, router: Router
) -> Gap:
    """Return the gap of a hazard; an open one continues, and no base from meanwhile counts."""
    known = gaps.get(id_)
    found = _affected(made, one.source, one.hazard, router)
    above = one.above
    short = {
        str(shard)
        for shard in found
        if above is None or (base := made.bases.get(shard)) is None or base <= above
    }
    shards = tuple(sorted({*short, *(known.shards if known else ())}))
    if known is not None and above is not None:
        return replace(known, shards=shards, above=above, batch=max(known.batch, one.batch))
    return _new_gap(id_, one, one.batch if known is None else known.first, shards)


def _new_gap(id_: str, one: ActiveHazard, first: int, shards: tuple[str, ...]) -> Gap:
    hazard, kind = one.hazard, id_.partition(":")[0]
    is_part = id_ != hazard_id(one.source, hazard)
    fix = "the setting is fixed for these tables" if is_part else hazard.fix
    why = f"{hazard.where}: {hazard.what}; {fix}"
    topic = f"{kind}:{one.source}"
    return Gap(id_, topic, 0, first, first, why, shards=shards, batch=one.batch, above=one.above)


def _is_over(one: ActiveHazard, checkpoint: Checkpoint, context: BatchContext) -> bool:
    """Return whether no row that was sent under the setting can land any more."""
    if one.hazard.effect is Effect.DELAYS:
        return True
    if one.above is None:
        return False
    placed_in_log = context.has_log_positions(one.source)
    return not placed_in_log or checkpoint.passed(one.source, one.above)


def _affected(made: Checkpoint, source: str, hazard: Finding, router: Router) -> Iterator[Shard]:
    for shard, table in made.shards.items():
        if table is None or shard.source != source or not shard_exists(made, shard):
            continue
        if not hazard.affects(shard.name):
            continue
        rule = router.rule(shard.name)
        if rule is None or not hazard.spares(rule.key):
            yield shard
