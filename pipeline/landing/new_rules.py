"""What do other rules than those before make of shards that were landed under the old ones?

A base is a shard's, but its rows are in one table's mirror.  Where the rules now name another
table for it, or no longer ignore it, what was landed before is in no mirror of that table: a gap,
which only a base that begins later closes.  Pure.
"""

from collections.abc import Mapping
from dataclasses import replace

from pipeline.checkpoint import Mark, is_there
from pipeline.model import PartitionEnd, Shard, TopicPartition
from pipeline.reports import Gap, tell_gap
from pipeline.settings import Router

RULES = "rules:"  # how the id of such a gap begins


def with_rules(made: Mark, before: Mark, router: Router) -> Mark:
    """*made*, the mark of the first batch under the rules of *router*; *before* is the last one's.

    A shard that is gone needs nothing: what comes under its name again begins anew.
    """
    shards, gaps = dict(made.shards), dict(made.gaps)
    for name, old in before.shards.items():
        new = router.table(Shard.parse(name).name)
        if new == old:
            continue
        shards[name] = new
        if new is not None and is_there(made, name):
            gap = _gap(name, old, new, made)
            gaps[gap.id] = tell_gap(gap)
    return replace(made, shards=shards, gaps=gaps)


def _gap(name: str, old: str | None, new: str, made: Mark) -> Gap:
    topic, partition, until = place(Shard.parse(name).name, made.offsets)
    went = f"to {old}" if old is not None else "nowhere"
    why = f"the rules sent it {went}, and send it to {new} now; take a new base of {name}"
    return Gap(
        f"{RULES}{name}@{made.batch}",
        topic,
        partition,
        0,
        until,
        why,
        shards=(name,),
        batch=made.batch,
    )


def place(shard: str, w: Mapping[str, PartitionEnd]) -> tuple[str, int, int]:
    """Topic and partition that *shard* came in, and where *w* stands there; else its name, 0, 0."""
    for name, end in sorted(w.items()):
        at = TopicPartition.parse(name)
        if at.topic.endswith(f".{shard}"):
            return at.topic, at.partition, end.offset
    return shard, 0, 0
