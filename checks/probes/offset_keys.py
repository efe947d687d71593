"""Looks up the row of the last message of each topic partition in the mirror.

The keys at the ends of all partitions are stored. Once the mirror has passed them, each is looked
up there.  An absent key may have been deleted since, so the change log is read too, and the key
must be absent in two rounds before it counts.  A wrong key that the change log no longer has stays
wrong until one of two things happens. The mirror has it right, or it has a base that began later or
in a log that replaced the old one.
Cannot detect: anything but the last change of each partition in each round; a changed value.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import islice
from typing import Any, ClassVar

from checks.counting import Fences, await_fences, keys_in_mirror, shard_name
from checks.model import (
    MOST_KEYS,
    FailKind,
    NotYet,
    Outcome,
    Ruling,
    Span,
    Undecided,
)
from checks.run import Probe
from checks.world import LastChange, LogKey, ShardBase, World
from pipeline.model import Fence, Op, Table, TopicPartition

NAME = "offset_keys"
MOST_DOUBTFUL = 1000  # limits the memory; further keys are checked when their partitions move
Began = Sequence[Any]
"""The newest batch when a key first became doubtful, and the log's incarnation or None."""
_PRESENT = {Op.CREATE, Op.UPDATE, Op.READ}


class KeyState(StrEnum):
    """The state of a stored key."""

    FINE = "fine"
    MOVING = "moving"
    MISSING = "missing"
    EXTRA = "extra"


@dataclass(frozen=True, slots=True)
class EndKeys:
    """The result for the keys at the ends of the partitions."""

    as_of: tuple[Fence, ...]
    looked: int
    missing: tuple[LogKey, ...] = ()
    extra: tuple[LogKey, ...] = ()
    ended: datetime | None = None

    @property
    def value(self) -> float:
        """Number of keys that differ from the change log."""
        return float(len(self.missing) + len(self.extra))


@dataclass(frozen=True, slots=True)
class OffsetKeys:
    """Fail when two rounds find a key absent without a delete, or present despite a delete."""

    patience: Span = timedelta(minutes=10)
    """How long it waits for the mirror to reach the position; after that it is UNKNOWN."""
    limit: Span = timedelta(seconds=15)
    every: ClassVar[timedelta] = timedelta(seconds=15)
    gating: ClassVar[bool] = True
    kind: ClassVar[FailKind] = FailKind.LOST

    def measure(self, table: Table, world: World) -> EndKeys | NotYet | Undecided:
        """Look up the stored keys, then store the present end keys and the doubtful keys."""
        memory = world.recall(table, NAME)
        if memory is None:
            _begin(table, world)
            return NotYet("read for the first time")
        fences = await_fences(table, world, datetime.fromisoformat(memory["ended"]), self.patience)
        if isinstance(fences, NotYet | Undecided):
            return fences
        keys = _loads(memory["keys"], table)
        before, began = memory["doubtful"], memory.get("began", {})
        states = _fates(table, world, keys, before, began)
        became = {key: state for key, (_, state) in zip(keys, states, strict=True)}
        ended = world.clock()
        doubtful = {
            key: _find_state(before.get(_text(key)), state, there=there)
            for key, (there, state) in zip(keys, states, strict=True)
            if state is not KeyState.FINE
        }
        _remember(table, world, dict(islice(doubtful.items(), MOST_DOUBTFUL)), began)
        reading = replace(_reading(fences, became, before), ended=ended)
        if not reading.value and {KeyState.MISSING, KeyState.EXTRA} & {*doubtful.values()}:
            return NotYet("asking for doubtful keys again")
        if keys and not reading.looked:
            return NotYet("its last keys have changed again, and that is not merged yet")
        return reading

    def judge(self, reading: EndKeys, past: Sequence[float]) -> Ruling:
        """Rule on keys that were wrong in two rounds; *past* is not used."""
        if reading.missing or reading.extra:
            code = "missing_rows" if reading.missing else "extra_rows"
            guilty = (*reading.missing, *reading.extra)
            keys = tuple(f"{key.at}:{key.offset} {key.key}" for key in guilty[:MOST_KEYS])
            reason = (
                f"{len(reading.missing)} keys are missing, {len(reading.extra)} deleted keys remain"
            )
            unnamed = len(guilty[MOST_KEYS:])
            return Ruling(Outcome.FAIL, f"{reason}: {keys[0]}", code, keys, unnamed)
        if not reading.looked:
            why = "its topics hold no message of a row, so there is no key to look for"
            return Ruling(Outcome.UNKNOWN, why, "not_yet")
        return Ruling(Outcome.PASS, f"{reading.looked} last keys are as the change log says")


def _find_state(before: str | None, state: KeyState, *, there: bool) -> KeyState:
    """Return the state to store for a doubtful key: a wrong key stays wrong until found right.

    A newer change of the key does not prove that the row in the mirror is right.
    """
    wrong = KeyState.EXTRA if there else KeyState.MISSING
    return wrong if state is KeyState.MOVING and before == wrong else state


def _fates(
    table: Table,
    world: World,
    keys: Sequence[LogKey],
    before: Mapping[str, str],
    began: Mapping[str, Began],
) -> list[tuple[bool, KeyState]]:
    """Return for each key whether its row is in the mirror, and its state.

    *before* has the states of doubtful keys, and *began* when they first became doubtful.
    """
    mirror, bases = world.mirror(table), world.bases(table)
    there = mirror.has_keys(keys_in_mirror(table, world, keys))
    touches = world.log().last_touches(table, keys)
    one_shard = not table.unique_across_shards
    found = list[tuple[bool, KeyState]]()
    for key, here, touch in zip(keys, there, touches, strict=True):
        state, text = judge_key(here, touch, mirror.batch, one_shard=one_shard), _text(key)
        if touch is None and text in before:
            base, doubt = bases.get(shard_name(key.shard)), began.get(text)
            over = base is not None and doubt is not None and _is_after(base, doubt, world)
            state = judge_gone_key(here, before[text], over=over)
        found.append((here, state))
    return found


def _is_after(base: ShardBase, began: Began, world: World) -> bool:
    """Whether *base* began after a key first became doubtful, or in a log that replaced that one.

    The mirror may have had one batch more than was known then.
    """
    batch, then, now = int(began[0]), began[1], world.incarnation(base.since)
    replaced = base.since <= batch and then is not None and now is not None and now > int(then)
    return replaced or base.since > batch + 1


def judge_gone_key(there: bool, before: str, *, over: bool) -> KeyState:
    """Judge a key that was doubtful, as *before* says, and is no longer in the change log.

    *over*: the mirror has a base that began later.
    """
    wrong = before == KeyState.EXTRA if there else before != KeyState.EXTRA
    if over or not wrong:
        return KeyState.FINE
    return KeyState.EXTRA if there else KeyState.MISSING


def judge_key(there: bool, touch: LastChange | None, applied: int, *, one_shard: bool) -> KeyState:
    """Compare a key's presence with its newest landed change.

    *one_shard*: a row with this key can only belong to the key's shard. Otherwise a row that moved
    to another shard may rightly exist after a delete.
    """
    if touch is None:
        return KeyState.FINE if there else KeyState.MISSING
    if touch.batch > applied:
        return KeyState.MOVING
    if not there:
        return KeyState.MISSING if touch.op in _PRESENT else KeyState.FINE
    deleted = touch.op == Op.DELETE and one_shard
    return KeyState.EXTRA if deleted else KeyState.FINE


def _reading(
    fences: Fences, became: Mapping[LogKey, KeyState], before: Mapping[str, str]
) -> EndKeys:
    """Return the reading; a key counts only if it had the same state in the round before."""
    twice = {key: state for key, state in became.items() if before.get(_text(key)) == state}
    missing = tuple(key for key, state in twice.items() if state is KeyState.MISSING)
    extra = tuple(key for key, state in twice.items() if state is KeyState.EXTRA)
    moving = sum(state is KeyState.MOVING for state in became.values())
    return EndKeys(fences, len(became) - moving, missing, extra)


def _begin(table: Table, world: World) -> None:
    """Begin with the present end keys, and with keys that were wrong in an earlier change log."""
    known = world.recall(table, NAME, lasting=True) or {"keys": (), "doubtful": {}}
    keys = {_text(key): key for key in _loads(known["keys"], table)}
    doubtful = {
        keys[text]: KeyState(how) for text, how in known["doubtful"].items() if text in keys
    }
    wrong = {key: how for key, how in doubtful.items() if how is not KeyState.MOVING}
    began = {text: one for text, one in known.get("began", {}).items() if one[1] is not None}
    _remember(table, world, wrong, began)


def _remember(
    table: Table, world: World, doubtful: Mapping[LogKey, KeyState], began: Mapping[str, Began]
) -> None:
    ends = {_text(key): key for key in (*doubtful, *world.end_keys(table))}
    newest = world.landed_batch()
    now = newest, world.incarnation(newest)
    memory = {
        "keys": [_dumps(key) for key in ends.values()],
        "doubtful": {_text(key): str(state) for key, state in doubtful.items()},
        "began": {text: began.get(text, now) for text in map(_text, doubtful)},
        "ended": world.clock().isoformat(),
    }
    world.remember(table, NAME, memory)


def _text(key: LogKey) -> str:
    """Return the name of a key in the memory: one per row, independent of the message."""
    return f"{shard_name(key.shard)} {key.key}"


def _dumps(key: LogKey) -> list[Any]:
    return [shard_name(key.shard), key.key, key.at.topic, key.at.partition, key.offset]


def _loads(raw: Sequence[Sequence[Any]], table: Table) -> tuple[LogKey, ...]:
    shards = {shard_name(shard): shard for shard in table.shards}
    return tuple(
        LogKey(shards[own], key, TopicPartition(topic, partition), offset)
        for own, key, topic, partition, offset in raw
        if own in shards
    )


PROBE: type[Probe[EndKeys]] = OffsetKeys
