"""Compares a table by its keys, in steps: whole scans, and changed rows between them.

Each scan reads the whole table once on each side. So it suits tables of limited size, at a slow
pace.

1. The buckets of the mirror are summed, and then those of the source.
2. The mirror has passed step 1. A differing bucket counts as equal if one position explains it. The
   rows of the other buckets are read on both sides; those that differ are suspects.
3. The mirror has passed step 2. A suspect that still differs is wrong, unless a change of its key
   has landed since, or the source now has a different row.

A scan that ends without a finding proves the whole table. So it verifies each row that was changed
before the instant up to which the mirror held every change when the scan began (`find_verified`).

Until the next scan, changes are followed (`_follow`): changed rows are read by their keys, and
ruled on once the mirror has passed that reading. Rows that differ are also read by their buckets
before they are reported. Changes that cannot be followed wait for the next scan.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import structlog

from checks.compare.keyed import KeyedComparison
from checks.compare.look import Look, RowSuspects, are_partial, describe_left_out, name_columns
from checks.counting import (
    Differences,
    Fences,
    Suspect,
    SuspectState,
    await_fences,
    fences_after,
    find_wrong,
)
from checks.mirror_state import MIRROR, MirrorState, follow_mirror
from checks.model import NotYet, Undecided, Verified
from pipeline.clocks import has_passed
from pipeline.errors import ProofError, SlowError, TooManyRowsError
from pipeline.model import Shard

log = structlog.get_logger(__name__)
SOON = timedelta(minutes=1)  # time until a table with a finding is scanned again
MOVING_REST = timedelta(minutes=10)  # time after a scan that left only rows in motion
SLOW = timedelta(minutes=1)  # time until a step that took too long is repeated


@dataclass(frozen=True, slots=True)
class KeyedPace:
    """How often a table is scanned; see the probe's settings of the same names."""

    whole_every: timedelta
    followed_every: timedelta
    suspects: int
    tries: int
    patience: timedelta


def measure_by_key(
    comparison: KeyedComparison, pace: KeyedPace, check: str
) -> Differences | NotYet | Undecided:
    """Take the next step of a cycle: scan, explain and read rows, or rule on suspects.

    A step that took too long is repeated after 1 minute, then after 2, 4 and so on, up to the time
    between two scans. Each attempt may cost a server as much as its limit allows.
    """
    table, world = comparison.table, comparison.world
    memory = world.recall(table, check) or {}
    failed, since, why = memory.get("slow") or (0, world.now.isoformat(), "")
    pause = min(pace.whole_every, SLOW * 2 ** min(failed - 1, 30)) if failed else timedelta()
    if not has_passed(datetime.fromisoformat(since), pause, world.now):
        raise SlowError(why)
    try:
        return _take_step(comparison, pace, check, memory)
    except SlowError as error:
        slow = [failed + 1, world.now.isoformat(), str(error)]
        world.remember(table, check, {**memory, "slow": slow})
        raise


def _take_step(
    comparison: KeyedComparison, pace: KeyedPace, check: str, memory: Mapping[str, Any]
) -> Differences | NotYet | Undecided:
    table, world = comparison.table, comparison.world
    known = MirrorState.loads(memory.get(MIRROR))
    state, why = follow_mirror(table, world, known)
    if why:
        _begin(comparison, check, state)
        return Undecided("put_back", f"{why}; it is scanned again")
    other = known is None or memory.get("keyed") != comparison.asked
    if other or _is_over(memory, world.now):
        return _begin(comparison, check, state)
    memory = {**memory, MIRROR: state.dumps()}
    begun = datetime.fromisoformat(memory["ended"])
    if memory["rest"] is not None:
        return _follow(comparison, pace, check, memory)
    seen = RowSuspects.loads(memory["rows"], table) if memory["rows"] else None
    fences = await_fences(table, world, seen.ended if seen else begun, pace.patience)
    if isinstance(fences, NotYet | Undecided):
        return fences
    looks = [look for raw in memory["looks"] if (look := Look.loads(raw, table))]
    equal = Differences(fences, _describe_rows(looks, comparison))
    try:
        if seen is None:
            rows, reading = _explain(comparison, pace, looks, equal)
        else:
            rows, reading = _confirm(comparison, pace, seen, begun, equal)
    except TooManyRowsError:  # these suspects cannot be read; a new scan finds what still differs
        over = {"rows": None, "rest": SOON.total_seconds()}
        world.remember(table, check, {**memory, **over})
        raise
    rest = None
    if isinstance(reading, Differences):
        rest = choose_rest(reading, pace).total_seconds()
        verified = find_verified(
            reading, looks, table.shards, WholeScan.loads(memory), world.mirror(table).batch
        )
        if verified is not None:
            partial = are_partial(comparison.columns)
            life = world.incarnation(verified.looked)
            verified = replace(
                verified, life=life, partial=partial, mirror=state.id, version=state.version
            )
            if not reading.found:
                rest = pace.followed_every.total_seconds()
                memory = {**memory, "followed": {"batch": verified.looked, "look": None}}
        reading = replace(reading, ended=world.clock(), verified=verified)
    memory = {**memory, "rows": rows and rows.dumps(), "rest": rest, "slow": None}
    world.remember(table, check, memory)
    return reading


def _follow(
    comparison: KeyedComparison, pace: KeyedPace, check: str, memory: Mapping[str, Any]
) -> Differences | NotYet | Undecided:
    """Read rows changed since the scan, or rule on those of the last reading."""
    table, world = comparison.table, comparison.world
    scanned = datetime.fromisoformat(memory["ended"])
    waits = f"the table was scanned at {scanned:%H:%M:%S %Z}, and is not due yet"
    followed = memory.get("followed")
    if followed is None:
        return NotYet(waits)
    over = {"followed": None, "rest": pace.whole_every.total_seconds()}
    if world.loses_changes(table):
        world.remember(table, check, {**memory, **over})
        return NotYet(f"{waits}; no changes are followed while a gap is open that may grow")
    if world.losses(table).keys() - {*memory.get("losses", ())}:
        world.remember(table, check, {**memory, **over})
        why = f"{waits}; a gap or an undecoded change opened since, and no log names its rows"
        until, shards = world.mirror(table).batch, tuple(map(str, table.shards))
        none = Verified(
            *(None, None, until),
            shards=shards,
            looked=until,
            life=world.incarnation(until),
            mirror=world.mirror(table).id,
        )
        return Differences((), "", behind=why, ended=world.clock(), verified=none)
    try:
        if followed["look"] is not None:
            found = _confirm_changes(comparison, pace, memory)
        else:
            found = _look_at_changes(comparison, followed["batch"])
    except (ProofError, SlowError, TooManyRowsError) as error:
        log.info("changes_not_followed", check=check, table=table.name, why=str(error))
        found = None
    if found is None:
        world.remember(table, check, {**memory, **over})
        return NotYet(f"{waits}; rows that were changed since wait for that")
    if isinstance(found, NotYet | Undecided):
        return found
    followed, reading = found
    soon = min(SOON, pace.whole_every).total_seconds()
    rest = soon if followed is None else memory["rest"]
    world.remember(table, check, {**memory, "followed": followed, "rest": rest})
    return reading


Following = tuple[Mapping[str, Any] | None, Differences | NotYet]
"""The stored state of following changes, and the answer; None in place of the state: scan soon."""


def _look_at_changes(comparison: KeyedComparison, after: int) -> Following | NotYet | None:
    """Read the rows changed after a batch; None if they cannot be followed."""
    table, world = comparison.table, comparison.world
    held, until = world.held_until(table), world.mirror(table).batch
    if held is None:
        return NotYet("until when the mirror holds every change is not known")
    looked = comparison.look_at_changes(after, until)
    if looked is None:
        return None
    keys, seen = looked
    look = {"until": until, "batch": until, "held": held.isoformat(), "keys": keys}
    waits = NotYet(f"{len(seen.rows)} of {keys} changed rows differ", suspicious=bool(seen.rows))
    return {"batch": after, "look": {**look, "rows": seen.dumps()}}, waits


def _confirm_changes(
    comparison: KeyedComparison, pace: KeyedPace, memory: Mapping[str, Any]
) -> Following | NotYet | Undecided | None:
    """Rule on the last reading of changed rows; read rows in motion again."""
    table, world, followed = comparison.table, comparison.world, memory["followed"]
    look = followed["look"]
    seen = RowSuspects.loads(look["rows"], table)
    fences = await_fences(table, world, seen.ended, pace.patience)
    if isinstance(fences, NotYet | Undecided):
        return fences
    became = comparison.judge_changes(seen, followed["batch"], look["until"], look["batch"])
    if became is None:
        return None
    parts: tuple[list[Suspect], list[Suspect]] = [], []
    for one, state in became.items():
        if state is not SuspectState.CLEARED:
            parts[state is SuspectState.MOVING].append(one)
    wrong, moving = (replace(seen, rows={one: seen.rows[one] for one in own}) for own in parts)
    if moving.rows and not wrong.rows:
        return _read_moving(comparison, pace, followed, moving, fences)
    return _rule_on_changes(comparison, memory, wrong, fences, len(moving.rows))


def _read_moving(
    comparison: KeyedComparison,
    pace: KeyedPace,
    followed: Mapping[str, Any],
    seen: RowSuspects,
    fences: Fences,
) -> Following | None:
    """Read the rows of *seen* again; after too many tries, end as UNKNOWN.

    Then the next reading begins at the same batch, so it includes these rows.
    """
    world, look, after = comparison.world, followed["look"], followed["batch"]
    if seen.tries + 1 >= pace.tries:
        reading = Differences(fences, "", moving=len(seen.rows), ended=world.clock())
        return {"batch": after, "look": None}, reading
    again = comparison.look_at_changes(after, look["until"], seen.rows)
    if again is None:
        return None
    rows = replace(again[1], tries=seen.tries + 1).dumps()
    look = {**look, "batch": world.mirror(comparison.table).batch, "rows": rows}
    waits = NotYet(f"{len(seen.rows)} changed rows keep moving", suspicious=True)
    return {"batch": after, "look": look}, waits


def _rule_on_changes(
    comparison: KeyedComparison,
    memory: Mapping[str, Any],
    seen: RowSuspects,
    fences: Fences,
    moving: int,
) -> Following | None:
    """Rule on a reading of changed rows; only the rows of *seen* differ, and *moving* others.

    Reading their buckets must confirm this, because some spellings of a key find no row.
    """
    look, rows = memory["followed"]["look"], len(seen.rows)
    try:
        found = find_wrong(comparison.judge(seen).items()) if rows else ()
    except TooManyRowsError as error:
        return None, NotYet(f"{rows} changed rows differ: {error}; scanning", suspicious=True)
    if rows and not found:
        return None
    scanned = datetime.fromisoformat(memory["ended"])
    text = f"{look['keys']} changed rows are equal on both sides, by their keys"
    text += f"; the table was scanned at {scanned:%H:%M:%S %Z}"
    reading = Differences(
        fences,
        text + describe_left_out(comparison.columns),
        found=found,
        moving=moving,
        ended=comparison.world.clock(),
        columns=name_columns(comparison, found),
        verified=_verify_changes(comparison, memory, found=bool(found)),
        names=seen.names,
    )
    return None if found else {"batch": look["until"], "look": None}, reading


def _verify_changes(
    comparison: KeyedComparison, memory: Mapping[str, Any], *, found: bool
) -> Verified | None:
    """What the scan and the last reading of changes prove; *found* rows remove ``through``."""
    begun, look = WholeScan.loads(memory).begun, memory["followed"]["look"]
    if begun is None or look["held"] is None:  # a clock that was ahead makes no claim
        return None
    world, table = comparison.world, comparison.table
    return Verified(
        None if found else datetime.fromisoformat(look["held"]),
        begun,
        world.mirror(table).batch,
        shards=tuple(map(str, table.shards)),
        looked=look["until"],
        life=world.incarnation(look["until"]),
        partial=are_partial(comparison.columns),
        mirror=world.mirror(table).id,
        version=world.mirror(table).version,
    )


def choose_rest(reading: Differences, pace: KeyedPace) -> timedelta:
    """Return how long to wait after a scan: longer if another one would hardly settle more."""
    if reading.found or reading.more:
        return min(pace.whole_every, SOON)
    return min(pace.whole_every, MOVING_REST) if reading.moving else pace.whole_every


@dataclass(frozen=True, slots=True)
class WholeScan:
    """When a scan began, and up to which instant its mirror held every change; None if unknown."""

    begun: datetime | None
    held: datetime | None

    @classmethod
    def loads(cls, memory: Mapping[str, Any]) -> "WholeScan":
        """Read back what the memory of a check has; earlier versions did not write it."""
        begun, held = (
            datetime.fromisoformat(memory[name]) if memory.get(name) else None
            for name in ("begun", "held")
        )
        return cls(begun, held)


def find_verified(
    reading: Differences,
    looks: Sequence[Look],
    shards: Sequence[Shard],
    scan: WholeScan,
    batch: int,
) -> Verified | None:
    """Return what an ended scan proves about changed rows; None if it proves nothing new.

    *looks* are those of its first step, and *batch* is the batch that the mirror is applied through
    now. Each row changed before ``scan.held`` was in the mirror that was read. It was equal there,
    or with later changes that the mirror has by now. Rows in motion, or rows that were not read,
    prevent a proof. A finding invalidates the proof of an earlier scan.
    """
    compared = {look.shard for look in looks}
    if scan.begun is None or compared != {*shards}:
        return None
    if not reading.found and (reading.moving or reading.more):
        return None
    through = None if reading.found else scan.held
    looked, names = min(look.batch for look in looks), tuple(map(str, shards))
    return Verified(through, scan.begun, batch, shards=names, looked=looked)


Step = tuple[RowSuspects | None, Differences | NotYet]
"""Suspects to rule on later, or None with the reading that ends the cycle."""


def _is_over(memory: Mapping[str, Any], now: datetime) -> bool:
    """Whether a cycle and the rest after it have ended."""
    if memory["rest"] is None:
        return False
    ended, rest = datetime.fromisoformat(memory["ended"]), timedelta(seconds=memory["rest"])
    return has_passed(ended, rest, now)


def _explain(
    comparison: KeyedComparison, pace: KeyedPace, looks: Sequence[Look], reading: Differences
) -> Step:
    left = {look.shard: own for look in looks if (own := comparison.unexplained(look))}
    fresh = comparison.find_suspects(left, pace.suspects)
    if fresh.rows or fresh.cut:
        return fresh, NotYet(f"{len(fresh.rows)} rows differ; they are looked at again")
    return None, reading


def _confirm(
    comparison: KeyedComparison,
    pace: KeyedPace,
    seen: RowSuspects,
    begun: datetime,
    reading: Differences,
) -> Step:
    became = comparison.judge(seen)
    left = [one for one, state in became.items() if state is not SuspectState.CLEARED]
    moving = sum(became[one] is SuspectState.MOVING for one in left)
    if moving and seen.tries + 1 < pace.tries:
        return comparison.read_again(seen, left), NotYet(f"{moving} rows keep moving")
    found = find_wrong(became.items())
    reading = replace(reading, found=found, moving=moving, more=seen.cut, names=seen.names)
    reading = replace(reading, columns=name_columns(comparison, found))
    if not found:  # a PASS covers only what was committed before the scan ended
        fences = fences_after(comparison.table, comparison.world, begun)
        reading = replace(reading, as_of=fences or reading.as_of)
    return None, reading


def _begin(comparison: KeyedComparison, check: str, mirror: MirrorState) -> NotYet:
    world, table = comparison.world, comparison.table
    held = world.held_until(table)
    begun = {"begun": world.now.isoformat(), "held": held and held.isoformat()}
    looks = [comparison.look_at(shard).dumps() for shard in table.shards]
    memory = {"keyed": comparison.asked, "looks": looks, "ended": world.clock().isoformat()}
    rest = {"rows": None, "rest": None, MIRROR: mirror.dumps()}
    losses = {"losses": sorted(world.losses(table))}
    world.remember(table, check, {**memory, **rest, **begun, **losses})
    return NotYet("a cycle has begun")


def _describe_rows(looks: Sequence[Look], comparison: KeyedComparison) -> str:
    rows = sum(look.rows for look in looks)
    text = f"{rows} rows of {len(looks)} shards are equal on both sides, by their keys"
    return text + describe_left_out(comparison.columns)
