"""The mark after a batch, from the mark before it and what the batch holds; pure."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace

from pipeline.landing.bases import Settled, advance
from pipeline.landing.facts import Facts
from pipeline.landing.plan import Plan
from pipeline.mark import Epoch, Mark
from pipeline.model import Acknowledged
from pipeline.report import Gap
from pipeline.route import Router

_NAMED = 100  # ids of quarantined changes kept by name, per subject; the rest is one id


def next_mark(
    mark: Mark,
    facts: Facts,
    plan: Plan,
    *,
    acknowledged: Mapping[str, Acknowledged],
    epochs: Mapping[str, Epoch],
    starts: Mapping[str, int],
    waived: frozenset[str],
    router: Router,
) -> tuple[Mark, tuple[Settled, ...]]:
    """Add one batch to *mark*; returns it with the shards whose base it completes.

    *acknowledged* holds only what W of *plan* has passed.  A source whose epoch moves loses what
    it had acknowledged: positions of two logs prove nothing about each other.
    """
    batch = mark.batch + 1
    open_, settled = advance(mark, facts, batch)
    snaps = {name: snap for name, snap in open_.items() if f"snapshot:{name}" not in waived}
    shards = _shards(mark, facts, (*snaps, *(done.name for done in settled)), router)
    opened = tuple(_with_shards(gap, batch, shards) for gap in plan.gaps)
    made = replace(
        mark,
        batch=batch,
        offsets=dict(plan.offsets),
        acknowledged=_acknowledged(mark, acknowledged, epochs),
        heartbeats=_highest(mark.heartbeats, facts.heartbeats),
        tables={**mark.tables, **dict.fromkeys(_touched(facts, settled, router), batch)},
        epochs=dict(epochs),
        starts={**mark.starts, **starts},
        high={**mark.high, **facts.high},
        shards=shards,
        bases={**mark.bases, **{done.name: done.order for done in settled}},
        based={**mark.based, **{done.name: done.since for done in settled}},
        snaps=snaps,
        grown=_grown(mark, plan),
        gaps=_gaps(mark, opened, settled, waived),
        quarantined=_quarantined(mark, facts, _since(settled, router), waived),
    )
    return made, settled


def _acknowledged(
    mark: Mark, passed: Mapping[str, Acknowledged], epochs: Mapping[str, Epoch]
) -> dict[str, Acknowledged]:
    moved = {s for s, e in epochs.items() if s in mark.epochs and e.number != mark.epochs[s].number}
    known = {**mark.acknowledged, **passed}
    return {name: said for name, said in known.items() if name not in moved}


def _shards(mark: Mark, facts: Facts, seen: Iterable[str], router: Router) -> dict[str, str | None]:
    return {**mark.shards, **{name: _table(name, router) for name in seen}, **facts.shards}


def _touched(facts: Facts, settled: Iterable[Settled], router: Router) -> set[str]:
    """Tables whose mirrors have something to do: rows, a base, or a new schema without rows."""
    reshaped = {router.table(news.change.shard) for news in facts.news}
    based = {_table(done.name, router) for done in settled}
    return {name for name in {*facts.tables, *reshaped, *based} if name is not None}


def _table(name: str, router: Router) -> str | None:
    return router.table(name.partition("/")[2])


def _since(settled: Iterable[Settled], router: Router) -> dict[str, list[int]]:
    """Table -> batches in which the snapshots of its newly settled shards began."""
    result: dict[str, list[int]] = {}
    for done in settled:
        result.setdefault(_table(done.name, router) or "", []).append(done.since)
    return result


def _highest(old: Mapping[str, int], new: Mapping[str, int]) -> dict[str, int]:
    return {**old, **{name: max(number, old.get(name, number)) for name, number in new.items()}}


def _grown(mark: Mark, plan: Plan) -> tuple[str, ...]:
    topics = {name.rpartition(":")[0] for name in mark.offsets}
    added = {name.rpartition(":")[0] for name in plan.offsets if name not in mark.offsets}
    return tuple(sorted(set(mark.grown) | (added & topics)))


def _with_shards(gap: Gap, batch: int, shards: Iterable[str]) -> Gap:
    """Name the shards that a gap concerns: the topic's own, or every known one."""
    own = [name for name in shards if gap.topic.endswith("." + name.partition("/")[2])]
    return replace(gap, batch=batch, shards=tuple(sorted(own or shards)))


def _gaps(
    mark: Mark, opened: Iterable[Gap], settled: Iterable[Settled], waived: frozenset[str]
) -> dict[str, str]:
    result: dict[str, str] = {}
    for gap in (*(read_gap(text) for text in mark.gaps.values()), *opened):
        healed = {done.name for done in settled if done.since >= gap.batch}
        left = tuple(name for name in gap.shards if name not in healed)
        if gap.id in waived or (gap.shards and not left):
            continue
        result[gap.id] = json.dumps(asdict(replace(gap, shards=left)), sort_keys=True)
    return result


def read_gap(text: str) -> Gap:
    """Read back one value of ``Mark.gaps``."""
    raw = json.loads(text)
    return Gap(**{**raw, "tables": tuple(raw["tables"]), "shards": tuple(raw["shards"])})


def _quarantined(
    mark: Mark, facts: Facts, bases: Mapping[str, list[int]], waived: frozenset[str]
) -> dict[str, tuple[str, ...]]:
    """Open ids by subject; an id ends in ``@batch``, and a base read after that batch closes it."""
    batch = mark.batch + 1
    result: dict[str, tuple[str, ...]] = {}
    for subject in {*mark.quarantined, *facts.errors}:
        fresh = [f"{name}@{batch}" for name in facts.errors.get(subject, ())]
        if len(fresh) > _NAMED:
            fresh = [*fresh[:_NAMED], f"{subject}:and {len(fresh) - _NAMED} more@{batch}"]
        ids = (*mark.quarantined.get(subject, ()), *fresh)
        opened = [
            name for name in ids if name not in waived and not _healed(name, bases.get(subject, ()))
        ]
        if opened:
            result[subject] = tuple(opened)
    return result


def _healed(name: str, since: Iterable[int]) -> bool:
    return any(int(name.rpartition("@")[2]) < batch for batch in since)
