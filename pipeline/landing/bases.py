"""When is a shard's snapshot complete?  When its end was seen and the log goes on after it.

A collector streams only after its snapshot, so a LIVE change above the snapshot's order proves
that the snapshot has ended; the shard's own last-row marker proves that all its rows were sent.
A snapshot that was begun again has a new order and replaces the unfinished one.
(Debezium sets no end marker on a single row of the first table, nor on an empty table.)
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pipeline.landing.facts import Facts
from pipeline.mark import Mark, Snap
from pipeline.model import Order


@dataclass(frozen=True, slots=True)
class Settled:
    """A shard whose base became complete as of ``order``; its first row came in ``since``."""

    name: str
    order: Order
    since: int


def advance(mark: Mark, facts: Facts, batch: int) -> tuple[dict[str, Snap], tuple[Settled, ...]]:
    """Snapshots still open after this batch, and the shards that got a base in it, sorted."""
    snaps = dict(mark.snaps)
    born: dict[str, Settled] = {}
    for news in facts.news:
        name, order = f"{news.source}/{news.change.shard}", news.change.order
        if news.change.kind == "create" and news.snapshot:
            _begin(snaps, mark, name, Snap(order, batch))
        elif news.change.kind == "create":
            born[name] = Settled(name, order, batch)
    for name, rows in facts.snapshots.items():
        _begin(snaps, mark, name, Snap(rows.order, batch))
        known = snaps.get(name)
        if known is not None and known.order == rows.order:
            ended = known.ended or rows.ended
            snaps[name] = replace(known, rows=known.rows + rows.rows, ended=ended)
    live = _live({**mark.high, **facts.high})
    done = {name: snap for name, snap in snaps.items() if _complete(snap, live.get(_source(name)))}
    settled = born | {name: Settled(name, s.order, s.batch) for name, s in done.items()}
    left = {name: snap for name, snap in snaps.items() if name not in done}
    return left, tuple(settled[name] for name in sorted(settled))


def _begin(snaps: dict[str, Snap], mark: Mark, name: str, snap: Snap) -> None:
    known, base = snaps.get(name), mark.bases.get(name)
    if base is not None and base >= snap.order:
        return  # rows of a finished snapshot that were sent again
    if known is None or known.order < snap.order:
        snaps[name] = snap


def _complete(snap: Snap, live: Order | None) -> bool:
    return live is not None and live > snap.order and (snap.ended or snap.rows <= 1)


def _live(high: Mapping[str, Order]) -> dict[str, Order]:
    """Source -> its highest LIVE order over all partitions."""
    result: dict[str, Order] = {}
    for name, order in high.items():
        source = _source(name)
        result[source] = max(order, result.get(source, order))
    return result


def _source(name: str) -> str:
    return name.partition("/")[0]
