"""Were a table's rows sent from its CREATE on?  What a collector's lists say, and since when.

A collector tells by which lists it goes now, and describes tables that it leaves out, too: a
CREATE that came before the lists that let its table in is no base, as rows may have come before
them.  The lists that are seen first are taken for those of ever; of others only what comes after
they were seen counts.  A table that they leave out from now on is short of what comes: a gap.
Cannot see: lists that were others between two looks, and are the same again.  Pure.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from hashlib import sha256

from pipeline.collectors.collector import Capture
from pipeline.living import is_there
from pipeline.mark import CollectorLists, Mark, source_of
from pipeline.model import Shard, ShardId
from pipeline.report import Gap, tell_gap

GRACE = timedelta(seconds=30)  # a task that is stopped for new lists may go by the old ones so long


def digest(capture: Capture) -> str:
    """What stays the same as long as the lists do."""
    return sha256(capture.text.encode()).hexdigest()[:16]


def collected(
    known: CollectorLists | None,
    now: Capture | None,
    last: Capture | None,
    at: datetime,
) -> Capture | None:
    """The lists that what lands at *at* was sent by; None where nobody can tell.

    *known* are those of the batch before; *now* is None if the collector is silent, then *last*
    is what it told last in this life.
    """
    told = now or last
    if told is None or (known is None and now is None):
        return None
    if known is None:
        return told
    settled = known.since is None or at - known.since >= GRACE
    return told if settled and known.digest == digest(told) else None


def captured(
    lists: Capture, names: Iterable[str], sent: Collection[str], *, first: bool
) -> set[str]:
    """Those shards of *names* that were captured when they were described.

    Rows that were *sent* show it, unless the lists are seen for the *first* time: the table may
    have been let in, or left out, between.
    """
    shown = () if first and lists.known else sent
    return {name for name in names if name in shown or _sends(lists, name)}


def with_lists(
    made: Mark, before: Mark, told: Mapping[str, Capture], sources: Iterable[str], at: datetime
) -> Mark:
    """*made*, the mark after *before*, with the lists of *sources* and what they leave out.

    *told* is without the collectors that are silent.
    """
    lists, gaps = dict(before.lists), dict(made.gaps)
    for source in sources:
        known, capture = before.lists.get(source), told.get(source)
        if capture is None:
            if known is not None and known.unseen < 0:
                lists[source] = replace(known, unseen=made.batch)
            continue
        if known is None or known.digest != digest(capture):
            lists[source] = CollectorLists(digest(capture), None if known is None else at)
            left = {*_left_out(made, source, capture)}
            unsure = {*_unsure(made, source, known)} - left
            if left or unsure:
                gap = _gap(source, left, unsure, made.batch)
                gaps[gap.id] = tell_gap(gap)
        elif known.unseen >= 0:
            lists[source] = replace(known, unseen=-1)
    return replace(made, lists=lists, gaps=gaps)


def _left_out(made: Mark, source: str, capture: Capture) -> Iterator[str]:
    """Shards with a base of which nothing is sent any more; none if the lists cannot be read."""
    if capture.known:
        yield from (name for name in _based(made, source) if not _sends(capture, name))


def _unsure(made: Mark, source: str, known: CollectorLists | None) -> Iterator[str]:
    """Shards whose base became complete since the lists before were seen last."""
    if known is not None and known.unseen >= 0:
        found = _based(made, source)
        yield from (name for name in found if made.complete.get(name, -1) >= known.unseen)


def _based(made: Mark, source: str) -> Iterator[str]:
    for name in made.bases:
        if source_of(name) == source and made.shards.get(name) is not None and is_there(made, name):
            yield name


def _sends(lists: Capture, name: str) -> bool:
    return lists(ShardId.parse(Shard.parse(name).name))


def _gap(source: str, left: set[str], unsure: set[str], batch: int) -> Gap:
    topic, why = f"lists:{source}", list[str]()
    if left:
        why.append(
            f"the collector's lists were changed and leave out {_first(left)}; "
            "what is written to it is not sent: let it in, and take a new base of it"
        )
    if unsure:
        why.append(
            "the collector's lists were changed while it did not answer, and may have left out "
            f"{_first(unsure)} when its base was made: take a new base of it"
        )
    return Gap(
        id=f"{topic}:0:{batch}@{batch}",
        topic=topic,
        partition=0,
        first=batch,
        until=batch,
        why="; ".join(why),
        shards=tuple(sorted(left | unsure)),
        batch=batch,
    )


def _first(names: set[str]) -> str:
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"{min(names)}{more}"
