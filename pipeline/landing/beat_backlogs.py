"""Through which batch had the heartbeats' topic been read as far as it went?

A batch that is capped may take more of a table's partition than of the heartbeats': rows that are
sent again, and not yet the heartbeat that shows it by its number.  So the next one that is higher
than all before says nothing of such a batch, unless it came behind all that was listed with it.
The first listing that is not passed at once is kept until it is; so a source that is always behind
has such batches, too, though fewer.  Pure.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from pipeline.checkpoint import Mark
from pipeline.heartbeats import BeatBacklog, BeatTrail
from pipeline.landing.listing import Listing
from pipeline.model import PartitionEnd, TopicPartition


def with_levels(made: Mark, listing: Listing) -> Mark:
    """*made*, the mark after a batch that *listing* was made for, with what it tells of trails."""
    own = _partitions(made.beats, listing)
    beats = {
        source: _levelled(trail, made, own[source], listing.ends)
        for source, trail in made.beats.items()
    }
    return replace(made, beats=beats)


def _partitions(sources: Iterable[str], listing: Listing) -> Mapping[str, list[TopicPartition]]:
    """Those of each source that hold anything."""
    found: dict[str, list[TopicPartition]] = {source: [] for source in sources}
    for at, end in listing.ends.items() if found else ():
        if end.offset and (source := listing.source_of[at.topic]) in found:
            found[source].append(at)
    return found


def _levelled(
    trail: BeatTrail,
    made: Mark,
    own: Sequence[TopicPartition],
    ends: Mapping[TopicPartition, PartitionEnd],
) -> BeatTrail:
    listed = {str(at): ends[at].offset for at in own if at.topic == trail.topic}
    if not listed:
        return trail
    waiting = trail.backlog
    if waiting is not None and not _broken(waiting, listed):
        if not _landed(waiting.ends, made):
            return trail
        trail = replace(trail, level=waiting.batch)
    if len(own) == 1 or _landed(listed, made):  # one partition is never ahead of itself
        return replace(trail, level=made.batch, backlog=None)
    return replace(trail, backlog=BeatBacklog(made.batch, listed))


def _broken(waiting: BeatBacklog, listed: Mapping[str, int]) -> bool:
    """Whether it is never passed: heartbeats come through another topic, or this one was cut."""
    return any(listed.get(name, -1) < end for name, end in waiting.ends.items())


def _landed(ends: Mapping[str, int], made: Mark) -> bool:
    w = made.offsets
    return all(name in w and w[name].offset >= end for name, end in ends.items())
