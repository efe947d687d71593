"""What do the heartbeats of a batch show of logs whose messages name no places?

Where changes bear no place in the log, nothing else tells that a piece of it was never sent, or
that it is sent again.  A piece that is missing is a gap of all tables of the source.  Pure.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from pipeline.beats import LandedBeat, SkippedBeats, followed
from pipeline.living import is_there
from pipeline.mark import Mark, source_of
from pipeline.model import Ordering
from pipeline.report import Gap, tell_gap


def with_beats(
    made: Mark, beats: Mapping[str, Iterable[LandedBeat]], orderings: Mapping[str, Ordering]
) -> Mark:
    """*made*, the mark of a batch, with the *beats* in it: source -> its own, in any order."""
    trails, gaps = dict(made.beats), dict(made.gaps)
    for source, own in beats.items():
        if orderings.get(source, Ordering.LOG) is Ordering.LOG:
            continue
        trail, skipped = followed(trails.get(source), own, made.batch)
        if trail is not None:
            trails[source] = trail
        for one in skipped:
            gap = _gap(source, made, one)
            if gap.shards:
                gaps[gap.id] = tell_gap(gap)
    return replace(made, beats=trails, gaps=gaps)


def _gap(source: str, made: Mark, skipped: SkippedBeats) -> Gap:
    own = (n for n, table in made.shards.items() if table is not None and source_of(n) == source)
    topic = f"beats:{source}"
    lost = f"heartbeat {skipped.first} of source {source}"
    if skipped.until - skipped.first > 1:
        lost = f"heartbeats {skipped.first} to {skipped.until - 1} of source {source}"
    return Gap(
        id=f"{topic}:0:{skipped.first}@{made.batch}",
        topic=topic,
        partition=0,
        first=skipped.first,
        until=skipped.until,
        why=(
            f"{lost} never came, though a later one did: a piece of the log was not sent, and"
            " nobody sends it any more; let the collector begin below it, or take new bases"
        ),
        shards=tuple(sorted(name for name in own if is_there(made, name))),
        batch=made.batch,
    )
