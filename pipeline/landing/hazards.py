"""Gaps for settings by which changes may be dropped, rewritten or delayed.

A collector and its source tell such settings at each look, after what was acknowledged was asked
for: no batch can prove a cut by an acknowledgement that is newer than the setting without telling
it.  While it is told, its tables have a gap, whose id names the setting and its value, so that a
person may accept it.  Where the setting only delays changes, it closes with the setting.

Else it closes by a base above the end that the source's log had once the setting was surely gone.
That the rows of a base landed later is not enough: they may have been sent by the setting, and
have waited in a topic.  For the same reason the setting is remembered until all has landed that
its log held by then: a table of which nothing had landed before gets a gap, too.
Cannot see: a setting that was changed and changed back between two looks; where changes have no
log positions, tables whose first rows land after the setting is gone.  Pure.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from hashlib import sha256

from pipeline.capture import Capture
from pipeline.finding import Effect, Finding
from pipeline.landing.collector_lists import placed
from pipeline.living import is_there
from pipeline.mark import Mark, ToldHazard, source_of
from pipeline.model import Order, Ordering, Shard
from pipeline.report import DELAY, SETTING, Gap, read_gap, tell_gap
from pipeline.route import Router


def with_hazards(
    made: Mark,
    before: Mark,
    told: Mapping[str, Capture],
    ends: Mapping[str, Order],
    *,
    orderings: Mapping[str, Ordering],
    router: Router,
    waived: Collection[str],
) -> Mark:
    """*made* with a gap for each hazard that was *told*, or is remembered, unless it is *waived*.

    *before* is the mark before it, *ends* are those of the sources' logs, asked for after *told*.
    """
    ends, gaps = placed(ends, made, orderings), dict(made.gaps)
    known = dict(made.hazards)
    for source, capture in told.items():
        gone = f"{DELAY}:{source}"
        gaps = {id_: text for id_, text in gaps.items() if read_gap(text).topic != gone}
        now = _by_id(source, capture.hazards)
        for id_, one in known.items():
            looked = capture.steady and one.hazard.where not in capture.unanswered
            over = one.above is None and looked and source in ends
            if one.source == source and id_ not in now and over:
                known[id_] = replace(one, above=ends[source])
        known |= {id_: ToldHazard(source, hazard, made.batch) for id_, hazard in now.items()}
    known = {id_: one for id_, one in known.items() if id_ not in waived}
    for id_, one in known.items():
        gap = _gap(id_, one, gaps, made, router)
        if gap.shards:
            were = (read_gap(before.gaps[id_]),) if id_ in before.gaps else ()
            gaps[id_] = tell_gap(gap.after(were, made.shards))
    left = {id_: one for id_, one in known.items() if not _is_over(one, made, orderings)}
    return replace(made, gaps=gaps, hazards=left)


def hazard_id(source: str, hazard: Finding) -> str:
    """What a person waives: the setting of that name with that value, also if it comes again."""
    kind = DELAY if hazard.effect is Effect.DELAYS else SETTING
    digest = sha256(hazard.what.encode()).hexdigest()[:8]
    return f"{kind}:{source}:{hazard.code}@{digest}"


def _by_id(source: str, hazards: Iterable[Finding]) -> dict[str, Finding]:
    """A setting whose tables have just become others may be told twice: all of them count."""
    found = dict[str, Finding]()
    for one in hazards:
        known = found.setdefault(hazard_id(source, one), one)
        both = {known.shards, one.shards}
        shards = "" if "" in both else "|".join(sorted(both))
        found[hazard_id(source, one)] = replace(known, shards=shards)
    return found


def _gap(id_: str, one: ToldHazard, gaps: Mapping[str, str], made: Mark, router: Router) -> Gap:
    """One that is open goes on: no base counts that began meanwhile."""
    known = read_gap(gaps[id_]) if id_ in gaps else None
    found = _affected(made, one.source, one.hazard, router)
    above = one.above
    short = {n for n in found if above is None or n not in made.bases or made.bases[n] <= above}
    shards = tuple(sorted({*short, *(known.shards if known else ())}))
    if known is not None and above is not None:
        return replace(known, shards=shards, above=above)
    first = one.batch if known is None else known.first
    why = f"{one.hazard.where}: {one.hazard.what}; {one.hazard.fix}"
    topic = f"{id_.partition(':')[0]}:{one.source}"
    return Gap(id_, topic, 0, first, first, why, shards=shards, batch=one.batch, above=above)


def _is_over(one: ToldHazard, made: Mark, orderings: Mapping[str, Ordering]) -> bool:
    """Whether no row can land any more that was sent by the setting."""
    if one.hazard.effect is Effect.DELAYS:
        return True
    if one.above is None:
        return False
    placed_in_log = orderings.get(one.source, Ordering.LOG) is Ordering.LOG
    return not placed_in_log or made.passed(one.source, one.above)


def _affected(made: Mark, source: str, hazard: Finding, router: Router) -> Iterator[str]:
    for name, table in made.shards.items():
        if table is None or source_of(name) != source or not is_there(made, name):
            continue
        shard = Shard.parse(name).name
        if not hazard.affects(shard):
            continue
        rule = router.rule(shard)
        if rule is None or not hazard.spares(rule.key):
            yield name
