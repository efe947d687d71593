"""Were a table's rows sent from its CREATE on?  What a collector's lists say, and since when.

A collector tells by which lists it goes now, and describes tables that it leaves out, too: a
CREATE that came before the lists that let its table in is no base, as rows may have come before
them.  The lists that are seen first are taken for those of ever; of others only what stands above
the end that the source's log had once they were seen counts, for what older ones sent may land
far later: behind a mirror, or while its source is held.
A table that they leave out from now on, or as its base becomes complete, is short of what comes:
a gap, and so is one that was replaced at its source without a word in the log.  So is, until a base
shows otherwise, each of lists that nobody here can read: only rows that were surely sent by such
lists show that they let their table in.
Cannot see: lists that were others between two looks, and are the same again.  Pure.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from hashlib import sha256

from pipeline.checkpoint import CollectorLists, Mark, is_there, source_of
from pipeline.landing.highest import highest_by_source
from pipeline.model import Capture, Order, Ordering, Shard, ShardId
from pipeline.reports import Gap, tell_gap

GRACE = timedelta(seconds=30)  # a task that is stopped for new lists may go by the old ones so long


def digest(capture: Capture) -> str:
    """What stays the same as long as the lists do."""
    return sha256(capture.text.encode()).hexdigest()[:16]


def collected(
    known: CollectorLists | None, now: Capture | None, last: Capture | None
) -> Capture | None:
    """The lists that what stands above ``known.above`` was sent by; None where nobody can tell.

    *known* are those of the batch before; *now* is None if the collector is silent, then *last*
    is what it told last in this life.
    """
    told = now or last
    if told is None or (known is None and now is None):
        return None
    if known is None:
        return told
    return told if known.since is None and known.digest == digest(told) else None


def is_above(known: CollectorLists | None, order: Order) -> bool:
    """Whether what stands at *order* was sent by the lists that are *known*, not by older ones."""
    return known is None or known.above is None or order > known.above


def captured(
    lists: Capture, names: Iterable[str], sent: Collection[str], *, first: bool
) -> set[str]:
    """Those shards of *names* that were captured when they were described.

    Rows that were *sent* show it, unless the lists are seen for the *first* time: the table may
    have been let in, or left out, between.
    """
    shown = () if first and lists.known else sent
    return {name for name in names if name in shown or _sends(lists, name)}


def placed(
    ends: Mapping[str, Order], made: Mark, orderings: Mapping[str, Ordering]
) -> Mapping[str, Order]:
    """The *ends* of logs as changes are ordered: by what landed, where they bear no places."""
    weak = {name for name, one in orderings.items() if one is not Ordering.LOG}
    landed = highest_by_source(made.high) if weak else {}
    return {name: landed.get(name, end) if name in weak else end for name, end in ends.items()}


def with_lists(
    made: Mark,
    before: Mark,
    told: Mapping[str, Capture],
    ends: Mapping[str, Order],
    at: datetime,
) -> Mark:
    """*made*, the mark after *before*, with the lists of its sources and what they leave out.

    *told* is without the collectors that are silent, and without what *before* says was replaced;
    *ends* without the logs of servers that are silent.
    """
    lists, gaps, stores = dict(before.lists), dict(made.gaps), made.stores
    for source, known in before.lists.items():  # and those that are told, below
        if known.unseen < 0:
            lists[source] = replace(known, unseen=made.batch)
    for source, capture in told.items():
        known_before = before.lists.get(source)
        lists[source] = now = _known(known_before, capture, ends.get(source), at)
        other = known_before is None or known_before.digest != now.digest
        fresh = _fresh(made, source, known_before)
        asked = {*(_based(made, source) if other else fresh)}
        left = {name for name in asked if capture.known and not _sends(capture, name)}
        unread = set[str]()
        if not capture.known:
            unread = {name for name in asked if other or not _shown(made, now, name)}
        silent = known_before is not None and known_before.unseen >= 0
        unsure = {*fresh} - left - unread if other and silent else set[str]()
        remembered = _remembered(before, source)
        replaced = _replaced(made, before, capture, remembered, source) - left
        if capture.remembered and remembered != capture.remembered:
            stores = {n: one for n, one in stores.items() if source_of(n) != source}
            stores |= {f"{source}/{name}": one for name, one in capture.remembered.items()}
        if left or unsure or unread or replaced:
            why = _why(capture, left=left, unsure=unsure, unread=unread, replaced=replaced)
            short = left | unsure | unread | replaced
            gap = Gap.noticed(f"lists:{source}", made.batch, why, short)
            gaps[gap.id] = tell_gap(gap)
    return replace(made, lists=lists, gaps=gaps, stores=stores)


def _known(
    before: CollectorLists | None, capture: Capture, end: Order | None, at: datetime
) -> CollectorLists:
    if before is None or before.digest != digest(capture):
        return CollectorLists(digest(capture), None if before is None else at)
    now = replace(before, unseen=-1)
    if now.since is None or at < now.since:
        return replace(now, since=now.since and at)  # a clock set back keeps nobody waiting
    passed = at - now.since >= GRACE and end is not None
    return replace(now, since=None, above=end) if passed else now


def _shown(made: Mark, now: CollectorLists, name: str) -> bool:
    """Whether the rows of a base were sent by the lists that there are *now*."""
    return now.since is None and is_above(now, made.bases[name])


def _fresh(made: Mark, source: str, known: CollectorLists | None) -> list[str]:
    """Shards whose base became complete since the lists were seen last before."""
    seen = made.batch if known is None or known.unseen < 0 else known.unseen
    every = [name for name, batch in made.complete.items() if batch >= seen]
    return [name for name in every if _is_based(made, source, name)]


def _based(made: Mark, source: str) -> Iterator[str]:
    return (name for name in made.bases if _is_based(made, source, name))


def _is_based(made: Mark, source: str, name: str) -> bool:
    table = made.shards.get(name) if source_of(name) == source else None
    return table is not None and name in made.bases and is_there(made, name)


def _sends(lists: Capture, name: str) -> bool:
    return lists(ShardId.parse(Shard.parse(name).name))


def _replaced(
    made: Mark, before: Mark, capture: Capture, remembered: Mapping[str, str], source: str
) -> set[str]:
    """Those that were replaced, also if they have no base yet: it may be on its way.

    Not one of which nothing was known *before*: its rows may be the new table's.
    """
    now = capture.remembered
    differing = capture.differs(remembered) if remembered and remembered != now else frozenset()
    found = {*capture.replaced, *differing}
    if not found:
        return set()
    own = (n for n, table in made.shards.items() if table is not None and source_of(n) == source)
    there = (name for name in own if name in before.shards and is_there(made, name))
    return {name for name in there if ShardId.parse(Shard.parse(name).name) in found}


def _remembered(before: Mark, source: str) -> dict[str, str]:
    """What the source had behind its tables, as of the batch before."""
    start = f"{source}/"
    return {n.removeprefix(start): one for n, one in before.stores.items() if n.startswith(start)}


def _why(
    capture: Capture, *, left: set[str], unsure: set[str], unread: set[str], replaced: set[str]
) -> str:
    why = list[str]()
    if left:
        why.append(
            f"{capture.said_by} were changed and leave out {_first(left)}; "
            "what is written to it is not sent: let it in, and take a new base of it"
        )
    if unsure:
        why.append(
            f"{capture.said_by} were changed while it did not answer, and may have left out "
            f"{_first(unsure)} when its base was made: take a new base of it"
        )
    if unread:
        why.append(
            f"{capture.said_by} cannot be read here, and may leave out {_first(unread)}: write "
            "them as `sluice doctor` says, and take a new base of it"
        )
    if replaced:
        why.append(
            f"{_first(replaced)} was changed at the source by a statement that its log leaves out "
            "(DROP and CREATE, RENAME, ALTER COLUMN TYPE, or ATTACH, DETACH or TRUNCATE of a"
            " partition, or left out for a while); run `sluice bootstrap TABLE`, or ignore it"
        )
    return "; ".join(why)


def _first(names: set[str]) -> str:
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"{min(names)}{more}"
