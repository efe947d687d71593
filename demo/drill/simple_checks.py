"""Computes what three simple checks that teams write first would have found of the same faults.

They are pure: the content of source, mirror and topic is given. Each returns the ids that it names.
The count names no row: it says only that a table differs.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from demo.drill.faults import Fault


@dataclass(frozen=True, slots=True)
class TableState:
    """Ids of one table after the faults, one for each row, and the keys changed in its topic.

    ``changed`` are the keys whose last change in the topic, snapshots aside, is no delete.
    """

    source: Sequence[int]
    mirror: Sequence[int]
    changed: Collection[int]


def rows_above_highest(state: TableState) -> set[int]:
    """`max(id)` of source and mirror: rows of the source above the highest id of the mirror."""
    highest = max(state.mirror, default=-1)
    return {id_ for id_ in state.source if id_ > highest}


def count_difference(state: TableState) -> int:
    """`count(id)`: how many rows the mirror misses; negative if it has extra rows."""
    return len(state.source) - len(state.mirror)


def keys_without_row(state: TableState) -> set[int]:
    """Keys of records in Kafka: keys of changes whose row is not in the mirror."""
    return set(state.changed) - set(state.mirror)


@dataclass(frozen=True, slots=True)
class SimpleRecall:
    """How many faults of one kind each check names; the count only notices a table."""

    highest: int
    counted: int
    keys: int


def recall(faults: Iterable[Fault], states: Mapping[str, TableState]) -> SimpleRecall:
    """Return how many of *faults* the checks find, given the state of each of their tables."""
    highest = counted = keys = 0
    above = {table: rows_above_highest(state) for table, state in states.items()}
    without = {table: keys_without_row(state) for table, state in states.items()}
    for fault in faults:
        highest += fault.id in above[fault.table]
        counted += count_difference(states[fault.table]) != 0
        keys += fault.id in without[fault.table]
    return SimpleRecall(highest, counted, keys)


def changed_keys(records: Iterable[tuple[int, str]]) -> set[int]:
    """Return keys whose last change is no delete; *records* are (key, Debezium's op) in order."""
    last = {id_: op for id_, op in records if op != "r"}
    return {id_ for id_, op in last.items() if op != "d"}
