"""A log is read once: each look at a newer version reads what has come since.

Counts the statements that readers run.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from pipeline.changelog import transactions
from pipeline.changelog.reader import LogReader
from pipeline.changelog.transactions import Ended, KnownKeys, LogMemory, TransactionEnd
from pipeline.delta.reader import SnapshotReader
from pipeline.model import Op, Shard, Table, TopicPartition
from pipeline.readings import LastChange, LogKey
from tests.builders.change_log import change, end_event, key_change, read_table, write_changes

A, B = Shard("shop", "s.orders_00"), Shard("shop", "s.orders_01")
TABLE = Table("shop.orders", (A, B), ("id",), "id")


def log_key(key: str, offset: int) -> LogKey:
    return LogKey(A, key, TopicPartition("shop.s.orders_00", 0), offset)


class Line:
    """Readers of a growing log that share one memory, and the statements they ran, in order."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path, self.memory, self.asked = path, LogMemory(("shop",)), list[str]()
        for name in ("select", "batches"):
            ask = getattr(SnapshotReader, name)

            def noted(pinned: SnapshotReader, query: str, ask: Callable[..., Any] = ask) -> Any:
                self.asked.append(query)
                return ask(pinned, query)

            monkeypatch.setattr(SnapshotReader, name, noted)

    def reader(self) -> LogReader:
        """One at the newest version; what was asked before is forgotten."""
        found = read_table(self.path)
        newest = found.transaction("sluice:main")
        self.memory.of(found.id, -1 if newest is None else newest)
        self.asked.clear()
        return LogReader(found, "main", self.memory)


@pytest.fixture
def line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Line:
    return Line(tmp_path, monkeypatch)


def test_f48_a_key_at_the_end_of_a_partition_at_rest_is_searched_for_once(line: Line) -> None:
    write_changes(line.path, 0, [key_change(Op.CREATE, 10, "k", 0)])
    first = line.reader().last_touches(TABLE, [log_key("k", 0)])
    assert any("batch >= -1" in one for one in line.asked)
    again = line.reader().last_touches(TABLE, [log_key("k", 0)])
    at_rest = [*line.asked]
    write_changes(
        line.path, 1, [key_change(Op.UPDATE, 20, "k", 1), key_change(Op.CREATE, 11, "other", 2)]
    )
    later = line.reader().last_touches(TABLE, [log_key("k", 0)])

    assert first == again == (LastChange("c", 0),)
    assert at_rest == []
    assert later == (LastChange("u", 1),)
    assert all("batch >= 1" in one or "batch > 0" in one for one in line.asked)


def test_a_key_whose_record_the_log_has_not_is_searched_for_once(line: Line) -> None:
    write_changes(line.path, 0, [key_change(Op.CREATE, 10, "other", 5)])
    assert line.reader().last_touches(TABLE, [log_key("k", 3)]) == (None,)
    assert line.reader().last_touches(TABLE, [log_key("k", 3)]) == (None,)
    assert line.asked == []
    write_changes(line.path, 1, [key_change(Op.DELETE, 20, "k", 6)])

    assert line.reader().last_touches(TABLE, [log_key("k", 3)]) == (LastChange("d", 1),)
    assert all("batch >= 1" in one or "batch > 0" in one for one in line.asked)


def test_f48_what_came_in_a_later_batch_but_was_written_before_is_not_the_newest(
    line: Line,
) -> None:
    write_changes(line.path, 0, [key_change(Op.UPDATE, 30, "k", 0)])
    line.reader().last_touches(TABLE, [log_key("k", 0)])
    write_changes(line.path, 1, [key_change(Op.CREATE, 20, "k", 1)])

    assert line.reader().last_touches(TABLE, [log_key("k", 0)]) == (LastChange("u", 0),)


def test_f48_the_record_at_the_new_end_is_searched_for_from_the_one_before_it_on(
    line: Line,
) -> None:
    for batch in range(5):
        write_changes(line.path, batch, [key_change(Op.CREATE, 10 + batch, f"k{batch}", batch)])
    line.reader().last_touches(TABLE, [log_key("k3", 3)])

    assert line.reader().last_touches(TABLE, [log_key("k4", 4)]) == (LastChange("c", 4),)
    assert not any("batch >= -1" in one for one in line.asked)
    assert line.reader().last_touches(TABLE, [log_key("k1", 1)]) == (LastChange("c", 1),)


def test_f48_a_truncate_that_lands_later_is_the_newest_touch_of_a_key_known_before(
    line: Line,
) -> None:
    write_changes(line.path, 0, [key_change(Op.CREATE, 10, "k", 0)])
    line.reader().last_touches(TABLE, [log_key("k", 0)])
    write_changes(line.path, 1, [change(Op.TRUNCATE, 20)])

    assert line.reader().last_touches(TABLE, [log_key("k", 0)]) == (LastChange("truncate", 1),)


def test_f48_the_ends_of_a_batch_are_read_once_for_all_tables(line: Line) -> None:
    many = [Table(f"shop.t{n}", (Shard("shop", f"s.t{n}"),), ("id",), "id") for n in range(20)]
    for batch in range(3):
        write_changes(line.path, batch, [end_event(f"x{batch}", **{f"t{n}": 1 for n in range(20)})])
    reader = line.reader()

    found = [reader.transactions(table, -1, 1) for table in many]
    more = [reader.transactions(table, 0, 2) for table in many]

    assert [len(one) for one in (*found, *more)] == [2] * 40
    payloads = [one for one in line.asked if '"after" AS payload' in one]
    assert len(payloads) == 2
    assert "batch > 1 AND batch <= 2" in payloads[1]


def test_the_sources_with_an_end_in_a_batch_are_read_once_for_all_tables(line: Line) -> None:
    for batch in range(3):
        rows = [end_event(f"x{batch}", t=1)] if batch != 1 else [key_change(Op.CREATE, 1, "k", 0)]
        write_changes(line.path, batch, rows)
    reader = line.reader()

    found = [reader.ended_sources(*span) for span in [(-1, 1), (0, 1), (0, 1), (0, 2), (-1, 2)]]

    assert found == [{"shop"}, frozenset(), frozenset(), {"shop"}, {"shop"}]
    assert len(line.asked) == 2
    line.memory.of("another log", 2)
    reader.ended_sources(-1, 2)
    assert len(line.asked) == 3


def test_the_ends_of_earlier_batches_are_not_read_for_an_idle_table(line: Line) -> None:
    for batch in range(4):
        write_changes(line.path, batch, [end_event(f"x{batch}", orders_00=1)])
    reader = line.reader()

    assert reader.unended_sources(TABLE, 2, 3, -1) == frozenset()
    assert len(line.asked) == 1
    assert "batch > -1" not in line.asked[0]


@pytest.mark.parametrize(
    ("most", "until"),
    [
        pytest.param(0, 0, id="one batch at least"),
        pytest.param(3, 0, id="no part of the next"),
        pytest.param(4, 2, id="a batch without ENDs fits"),
        pytest.param(99, 3, id="all"),
    ],
)
def test_batches_are_limited_by_their_ends(line: Line, most: int, until: int) -> None:
    for batch, many in enumerate([2, 2, 0, 1]):
        row = key_change(Op.CREATE, 10 + batch, "k", batch)
        write_changes(line.path, batch, [row, *[end_event(f"x{n}", t=1) for n in range(many)]])
    reader = line.reader()

    assert [reader.limit_ends(-1, 3, most) for _ in range(2)] == [until, until]
    assert reader.limit_ends(0, 3, 99) == 3
    assert len(line.asked) == 1


def test_another_log_in_its_place_is_one_of_which_nothing_is_known(
    line: Line, tmp_path: Path
) -> None:
    write_changes(line.path, 0, [key_change(Op.CREATE, 10, "k", 0)])
    line.reader().last_touches(TABLE, [log_key("k", 0)])
    line.path = tmp_path / "other"
    write_changes(line.path, 0, [key_change(Op.DELETE, 5, "k", 0)])
    write_changes(line.path, 1, [key_change(Op.CREATE, 6, "other", 1)])

    assert line.reader().last_touches(TABLE, [log_key("k", 0)]) == (LastChange("d", 0),)


@pytest.mark.parametrize(
    ("log", "until", "known"),
    [
        pytest.param("a", 5, True, id="the same"),
        pytest.param("a", 6, True, id="longer"),
        pytest.param("a", 4, False, id="put back"),
        pytest.param("b", 6, False, id="another"),
    ],
)
def test_what_is_known_is_of_one_log_that_grows(log: str, until: int, known: bool) -> None:
    memory = LogMemory()
    memory.of("a", 5)
    memory.touches["shop.orders"] = {}

    memory.of(log, until)

    assert (bool(memory.touches), memory.until) == (known, until)


def test_of_more_ends_than_are_kept_the_oldest_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "MOST_ENDS", 5)
    memory, asked_for = LogMemory(), list[range]()

    def read(batches: range) -> Iterator[Ended]:
        asked_for.append(batches)
        for batch in batches:
            yield ("shop", f"x{batch}"), TransactionEnd(1, {"s.t": 1}, batch)

    for batch in (0, 1, 2, 3, 3, 0):
        assert len(memory.ends([("shop", "s.t")], range(batch, batch + 1), read)) == 1

    assert [one.start for one in asked_for] == [0, 1, 2, 3, 0]


def test_the_keys_of_a_segment_are_read_once_for_many_rounds(line: Line) -> None:
    names = [f"k{number:02}" for number in range(20)]
    write_changes(line.path, 0, [key_change(Op.CREATE, 1, "other", 0)])
    write_changes(line.path, 1, [key_change(Op.UPDATE, n, k, n) for n, k in enumerate(names, 2)])
    found, above, asked = list[str](), None, list[int]()
    for _ in range(5):
        reader = replace(line.reader(), ahead=12)
        keys = reader.changed_keys(TABLE, 0, 1, above=above, most=4)
        found += [key for _, key in keys]
        above = (A.source, A.name, keys[-1][1])
        asked.append(
            len([one for one in line.asked if one.startswith("SELECT source, shard, key ")])
        )

    assert found == names
    assert asked == [1, 0, 0, 1, 0]
    write_changes(line.path, 2, [key_change(Op.UPDATE, 40, "k00", 40)])
    assert line.reader().changed_keys(TABLE, 1, 2, most=4) == ((A, "k00"),)
    assert line.reader().changed_keys(TABLE, 0, 1, most=2) == ((A, "k00"), (A, "k01"))


def test_keys_that_were_read_ahead_are_bounded_over_all_tables(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transactions, "MOST_KEYS", 5)
    monkeypatch.setattr(transactions, "MOST_TEXT", 6)
    memory = LogMemory()
    for name in ("a", "b", "c"):
        keys = tuple(("shop", "t", f"{name}{number}") for number in range(5))
        memory.keep_keys(name, KnownKeys(0, 1, None, keys, whole=True))

    assert list(memory.keys) == ["c"]
    (known,) = memory.keys.values()
    assert known.next(0, 1, None, 3) == tuple(("shop", "t", f"c{n}") for n in range(3))
    assert known.next(0, 1, None, 4) is None  # cut: more may follow
    assert known.next(0, 2, None, 1) is None


def test_keys_below_those_that_are_known_are_not_known() -> None:
    low, at, high = (("shop", "t", name) for name in "aco")
    known = KnownKeys(0, 1, at, (high,), whole=True)

    assert known.next(0, 1, at, 1) == (high,)
    assert known.next(0, 1, low, 1) is None
    assert known.next(0, 1, None, 1) is None


def test_a_batch_that_landed_again_after_its_log_was_put_back_is_read_again(
    tmp_path: Path,
) -> None:
    memory, incarnations = LogMemory(("shop",)), {0: 7, 1: 7}

    def reader() -> LogReader:
        found = read_table(tmp_path)
        newest = found.transaction("sluice:main")
        memory.of(found.id, -1 if newest is None else newest, incarnations.get)
        return LogReader(found, "main", memory)

    def write(keys: int, *ends: str) -> None:
        rows = [key_change(Op.UPDATE, 20 + n, f"k{n}", 1 + n) for n in range(keys)]
        write_changes(tmp_path, 1, [*rows, *(end_event(one, orders_00=1) for one in ends)])

    write_changes(tmp_path, 0, [key_change(Op.CREATE, 10, "a", 0)])
    write(4, "u:1")
    first = reader()
    assert [key for _, key in first.changed_keys(TABLE, 0, 1, most=2)] == ["k0", "k1"]
    assert [one.id for one in first.transactions(TABLE, 0, 1)] == ["u:1"]
    DeltaTable(str(tmp_path)).restore(0)
    incarnations[1] = 8
    write(8, "u:1", "u:2")
    again = reader()
    later = again.changed_keys(TABLE, 0, 1, above=("shop", "s.orders_00", "k1"), most=8)

    assert [key for _, key in later] == [f"k{n}" for n in range(2, 8)]
    assert [one.id for one in again.transactions(TABLE, 0, 1)] == ["u:1", "u:2"]
