"""What do other standards than those before make of rows that were landed under the old ones?

Two answers for one value in one column would join nothing and hide nothing.  So what was landed
before is a gap, which only a base that begins later closes; until then its mirror stands still.
Pure.
"""

from dataclasses import replace

from pipeline.checkpoint import ALWAYS, Mark, RowStandards, is_there
from pipeline.landing.new_rules import place
from pipeline.model import Shard
from pipeline.reports import Gap, tell_gap
from pipeline.standards.table_standards import Standards

STANDARDS = "standards:"  # how the id of such a gap begins


def with_standards(made: Mark, before: Mark, standards: Standards, *, anew: bool) -> Mark:
    """*made* with what its shards are written by; *before* is the mark of the batch before.

    *anew*: it is the first batch of a service, so that any shard's standards may have changed.
    """
    if not standards.rules and not before.standards:
        return made
    names = made.shards.keys() if anew else made.shards.keys() - before.shards.keys()
    known, gaps = dict(made.standards), dict(made.gaps)
    for name in sorted(names):
        digest, old = standards.digest(made.shards[name]), made.standards.get(name, ALWAYS)
        if digest == old.digest:
            continue
        seen = name in before.shards
        known[name] = RowStandards(digest, made.batch if seen else -1)
        if seen and made.shards[name] is not None and is_there(made, name):
            gap = _gap(name, made)
            gaps[gap.id] = tell_gap(gap)
    return replace(made, standards=known, gaps=gaps)


def _gap(name: str, made: Mark) -> Gap:
    topic, partition, until = place(Shard.parse(name).name, made.offsets)
    why = f"`standards` changed: what landed of {name} is written otherwise; take a new base of it"
    found = f"{STANDARDS}{name}@{made.batch}"
    return Gap(found, topic, partition, 0, until, why, shards=(name,), batch=made.batch)
