"""Gaps for settings by which changes may be dropped, rewritten or delayed.

A collector and its source tell such settings at each look, after what was acknowledged was asked
for: no batch can prove a cut by an acknowledgement that is newer than the setting without telling
it.  While it is told, its tables have a gap, whose id names the setting and its value, so that a
person may accept it.  It closes by a base that began after the setting was gone; where the setting
only delays changes, with the setting.
Cannot see: a setting that was changed and changed back between two looks.  Pure.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from hashlib import sha256

from pipeline.capture import Capture
from pipeline.finding import Effect, Finding
from pipeline.living import is_there
from pipeline.mark import Mark, source_of
from pipeline.model import Shard
from pipeline.report import DELAY, SETTING, Gap, read_gap, tell_gap
from pipeline.route import Router


def with_hazards(
    made: Mark, told: Mapping[str, Capture], router: Router, waived: Collection[str]
) -> Mark:
    """*made* with a gap for each hazard that was *told*, unless its id is *waived*."""
    gaps = dict(made.gaps)
    for source, capture in told.items():
        gone = f"{DELAY}:{source}"
        gaps = {id_: text for id_, text in gaps.items() if read_gap(text).topic != gone}
        for hazard in capture.hazards:
            gap = _gap(made, source, hazard, router)
            if gap.shards and gap.id not in waived:
                gaps[gap.id] = tell_gap(gap)
    return made if gaps == made.gaps else replace(made, gaps=gaps)


def hazard_id(source: str, hazard: Finding) -> str:
    """What a person waives: the setting of that name with that value, also if it comes again."""
    kind = DELAY if hazard.effect is Effect.DELAYS else SETTING
    digest = sha256(hazard.what.encode()).hexdigest()[:8]
    return f"{kind}:{source}:{hazard.code}@{digest}"


def _gap(made: Mark, source: str, hazard: Finding, router: Router) -> Gap:
    """One that is open goes on: no base counts that began meanwhile."""
    id_ = hazard_id(source, hazard)
    known = read_gap(made.gaps[id_]) if id_ in made.gaps else None
    first = made.batch if known is None else known.first
    shards = {*_affected(made, source, hazard, router), *(known.shards if known else ())}
    kind = id_.partition(":")[0]
    return Gap(
        id_,
        f"{kind}:{source}",
        0,
        first,
        first,
        f"{hazard.where}: {hazard.what}; {hazard.fix}",
        shards=tuple(sorted(shards)),
        batch=made.batch,
    )


def _affected(made: Mark, source: str, hazard: Finding, router: Router) -> Iterator[str]:
    for name, table in made.shards.items():
        if table is None or source_of(name) != source or not is_there(made, name):
            continue
        shard = Shard.parse(name).name
        rule = router.rule(shard) if hazard.effect is Effect.REKEYS else None
        if hazard.affects(shard) and not (rule and rule.key):
            yield name
