"""The changes of one row are found in the change log, from few files and row groups."""

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyarrow.parquet import ParquetFile

from pipeline.changelog import key_search
from pipeline.changelog.data_file import GROUP
from pipeline.changelog.key_search import FooterBounds, KeySearch, SoughtKeys, find_key_changes
from pipeline.errors import HeldError
from pipeline.model import Op, Order, Shard
from tests.builders.lake import LocalLake, row

C, U, D, R = Op.CREATE, Op.UPDATE, Op.DELETE, Op.READ
T, S = Op.TRUNCATE, Op.SETTLE
NO_TIME = timedelta(seconds=-1)


def key(number: int, shard: str = "db.t") -> str:
    return f'["s","{shard}","{number}"]'


def search(
    lake: LocalLake, *keys: str, budget: timedelta = timedelta(minutes=1), lane: str = "main"
) -> KeySearch:
    lake.log.look()
    sought = SoughtKeys(lane, "db.t", keys, budget)
    return find_key_changes(lake.log.store, lake.log.snapshot, sought, FooterBounds())


def ops(found: KeySearch) -> list[tuple[Any, ...]]:
    return [(one.op, one.batch, one.order and one.order.pos) for one in found.changes]


def test_all_changes_of_the_key_come_newest_first_by_order(tmp_path: Path) -> None:
    lake = LocalLake(tmp_path)
    lake.land(row(C, 10, 1, "a"), row(C, 11, 2, "b"))
    lake.land(row(U, 30, 1, "c"))
    lake.land(row(D, 20, 1, "a"))

    found = search(lake, key(1))

    assert ops(found) == [(U, 1, 30), (D, 2, 20), (C, 0, 10)]
    assert found.whole
    newest = found.changes[0]
    assert (newest.shard, newest.order) == (Shard("s", "db.t"), Order(1, 1, 30))
    assert (str(newest.place), newest.offset) == ("s.db.t:0", 30)


def test_a_changed_key_is_a_create_after_its_delete(tmp_path: Path) -> None:
    lake = LocalLake(tmp_path)
    lake.land(row(D, 10, 1, "a"), row(C, 10, 1, "b"))

    assert ops(search(lake, key(1))) == [(C, 0, 10), (D, 0, 10)]


def test_what_empties_the_shard_is_found_too(tmp_path: Path) -> None:
    lake = LocalLake(tmp_path)
    lake.land(row(C, 10, 1, "a"))
    lake.land(row(T, 20, None))
    lake.land(row(S, 30, None))

    found = search(lake, key(1))

    assert ops(found) == [(S, 2, 30), (T, 1, 20), (C, 0, 10)]
    assert [one.key for one in found.changes] == [None, None, key(1)]


def test_a_row_of_a_snapshot_is_newer_than_the_settle_of_its_order(tmp_path: Path) -> None:
    lake = LocalLake(tmp_path)
    lake.land(row(S, 10, None), row(R, 10, 1, "a"))
    lake.land(row(S, 10, None))

    assert [one.op for one in search(lake, key(1)).changes] == [R, S, S]


def test_other_tables_lanes_and_keys_are_left_out(tmp_path: Path) -> None:
    lake = LocalLake(tmp_path, others=("db.u",))
    lake.land(row(C, 10, 1, "a", table="db.u"), row(C, 11, 11, "a"))

    assert ops(search(lake, key(1))) == []
    assert ops(search(lake, key(11), lane="other")) == []
    assert search(lake, key(1)).whole


def test_keys_of_several_shards_are_found_at_once(tmp_path: Path) -> None:
    lake = LocalLake(tmp_path, shards=("db.t", "db.t2"))
    lake.land(row(C, 10, 1, "a"), row(C, 11, 1, "b", shard="db.t2"))

    found = search(lake, key(1), key(1, "db.t2"))

    assert {str(one.shard) for one in found.changes} == {"s/db.t", "s/db.t2"}


def test_without_time_the_newest_file_is_searched_and_the_rest_is_named(tmp_path: Path) -> None:
    lake = LocalLake(tmp_path)
    for number in range(3):
        lake.land(row(U, 10 + number, 1, "a"))

    found = search(lake, key(1), budget=NO_TIME)

    assert ops(found) == [(U, 2, 12)]
    assert not found.whole
    assert (found.files, found.footers, found.read, found.down_to) == (3, 1, 1, 2)


@pytest.fixture(scope="module")
def ascending(tmp_path_factory: pytest.TempPathFactory) -> LocalLake:
    """Two batches of six row groups each, with ascending keys of one length."""
    lake = LocalLake(tmp_path_factory.mktemp("ascending"))
    for batch in range(2):
        first = 100_000 + batch * 6 * GROUP
        lake.land(*(row(C if n % 2 else U, n, n, "a") for n in range(first, first + 6 * GROUP)))
    return lake


def test_only_row_groups_whose_bounds_let_the_key_in_are_read(ascending: LocalLake) -> None:
    found = search(ascending, key(100_000 + 2 * GROUP))

    assert len(found.changes) == 1
    assert (found.files, found.footers, found.read, found.groups) == (1, 1, 1, 1)


@pytest.fixture(scope="module")
def shuffled(tmp_path_factory: pytest.TempPathFactory) -> LocalLake:
    """Two batches of six row groups each, whose keys are in random order."""
    lake, numbers = LocalLake(tmp_path_factory.mktemp("shuffled")), [*range(12 * GROUP)]
    Random(1).shuffle(numbers)
    for batch in range(2):
        some = numbers[batch * 6 * GROUP :][: 6 * GROUP]
        lake.land(*(row(U, pos, n, "a") for pos, n in enumerate(some, 100_000 * (batch + 1))))
    return lake


def test_row_groups_whose_filter_excludes_the_key_are_not_read(shuffled: LocalLake) -> None:
    numbers = list(range(0, 12 * GROUP, 1_000))

    found = [search(shuffled, key(n)) for n in numbers]

    assert [[one.key for one in each.changes] for each in found] == [[key(n)] for n in numbers]
    assert max(each.footers for each in found) == 2
    assert sum(each.groups for each in found) <= len(numbers) + 3, "1 of 700 is a false positive"


def test_a_key_that_is_nowhere_reads_no_row_group(shuffled: LocalLake) -> None:
    found = search(shuffled, f"{key(5)[:-2]}x")  # within the bounds

    assert (found.files, found.footers, found.read, found.groups) == (2, 2, 0, 0)
    assert found.whole


def test_groups_with_rows_without_a_key_are_read_whatever_their_filter_says(
    tmp_path: Path,
) -> None:
    lake = LocalLake(tmp_path)
    changes = [row(U, pos, pos, "a") for pos in range(2 * GROUP)]
    lake.land(*changes[:GROUP], row(T, GROUP, None), *changes[GROUP:])

    found = search(lake, f"{key(5)[:-2]}x")

    assert ops(found) == [(T, 0, GROUP)]


def land_two_groups(lake: LocalLake) -> tuple[Path, int, int]:
    """Return the file, and where the filter of its first row group begins and ends."""
    lake.land(*(row(U, n, n, "a") for n in range(2 * GROUP)))
    lake.log.look()
    (path,) = [one for one in lake.home.rglob("*.parquet") if one.stat().st_size > 30_000]
    with ParquetFile(path) as file:
        column = next(
            one
            for at in range(file.metadata.num_columns)
            if (one := file.metadata.row_group(0).column(at)).path_in_schema == "key"
        )
    begins = column.bloom_filter_offset
    return path, begins, begins + column.bloom_filter_length


def test_a_damaged_filter_excludes_no_row_group(tmp_path: Path) -> None:
    lake = LocalLake(tmp_path)
    path, begins, _ = land_two_groups(lake)
    sound = path.read_bytes()
    for place in range(17):
        for bit in (0, 3, 6):
            data = bytearray(sound)
            data[begins + place] ^= 1 << bit
            path.write_bytes(data)

            assert ops(search(lake, key(1))) == [(U, 0, 1)]


@pytest.mark.parametrize(
    "lost",
    [
        pytest.param(range(2 * GROUP), id="all of it"),
        pytest.param(range(1_000, 1_000 + 4_096), id="a page"),
        pytest.param([n for n in range(2 * GROUP) if n % 32 // 4 == 5], id="a word of each block"),
    ],
)
def test_a_filter_with_zeros_in_place_of_its_bits_hides_no_key(
    tmp_path: Path, lost: Sequence[int]
) -> None:
    lake = LocalLake(tmp_path)
    path, begins, ends = land_two_groups(lake)
    data = bytearray(path.read_bytes())
    assert ends - begins == 17 + 2 * GROUP
    for place in lost:
        data[begins + 17 + place] = 0
    path.write_bytes(data)

    found = [search(lake, key(n)) for n in range(0, GROUP, 64)]

    assert [len(one.changes) for one in found] == [1] * len(found)


def test_of_a_key_that_changes_often_the_newest_changes_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_search, "MOST_CHANGES", 3)
    lake = LocalLake(tmp_path)
    lake.land(*(row(U, pos, 1, "a") for pos in range(100, 120)), row(C, 5, 2, "a"))
    lake.land(*(row(U, pos, 1, "a") for pos in range(10)))
    for batch in range(12):
        lake.land(row(U, 200 + batch, 1, "a"))

    found = search(lake, key(1), key(2))

    newest = [(U, 13 - n, 211 - n) for n in range(3)]
    assert ops(found) == [*newest, (C, 0, 5)]
    assert found.left_out == 20 + 10 + 12 - 3
    assert found.whole


def test_a_newest_change_with_an_older_order_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_search, "MOST_CHANGES", 2)
    lake = LocalLake(tmp_path)
    lake.land(*(row(U, pos, 1, "a") for pos in range(100, 120)))
    lake.land(*(row(U, pos, 1, "a") for pos in range(10)))

    found = search(lake, key(1))

    assert ops(found) == [(U, 0, 119), (U, 0, 118), (U, 1, 9), (U, 1, 8)]
    assert found.left_out == 26


def test_a_file_that_ends_before_its_filters_is_damaged(tmp_path: Path) -> None:
    lake = LocalLake(tmp_path)
    lake.land(*(row(U, n, n, "a") for n in range(2 * GROUP)))
    lake.log.look()
    store, snapshot, known = lake.log.store, lake.log.snapshot, FooterBounds()
    sought = SoughtKeys("main", "db.t", (key(1),))
    find_key_changes(store, snapshot, sought, known)
    (path,) = [one.path for one in snapshot.files.values() if known.known(one.path)]
    (file,) = tmp_path.rglob(Path(path).name)
    file.write_bytes(file.read_bytes()[:100])

    with pytest.raises(HeldError, match="ends before its Bloom filters"):
        find_key_changes(store, snapshot, sought, known)


def test_bounds_of_the_oldest_files_are_forgotten_beyond_a_number_of_bytes(
    shuffled: LocalLake,
) -> None:
    shuffled.log.look()
    store, snapshot, known = shuffled.log.store, shuffled.log.snapshot, FooterBounds(most=6_000)
    sought = SoughtKeys("main", "db.t", (key(1_000), key(2_000)))

    for _ in range(2):
        find_key_changes(store, snapshot, sought, known)

    large = [one.path for one in snapshot.files.values() if (one.records or 0) > GROUP]
    assert [bool(known.known(path)) for path in large].count(True) == 1
    assert known.size <= 6_000


def test_a_key_above_all_bounds_opens_no_file(ascending: LocalLake) -> None:
    found = search(ascending, key(999_999))

    assert (found.files, found.footers, found.read, found.groups) == (0, 0, 0, 0)
    assert found.whole


def test_a_footer_is_read_once(ascending: LocalLake, monkeypatch: pytest.MonkeyPatch) -> None:
    ascending.log.look()
    store, known = ascending.log.store, FooterBounds()
    sought = SoughtKeys("main", "db.t", (key(100_001),))
    find_key_changes(store, ascending.log.snapshot, sought, known)
    opened, source = list[str](), type(store).source
    monkeypatch.setattr(key_search, "row_groups", None)

    def counted(self: Any, path: str) -> Any:
        opened.append(path)
        return source(self, path)

    monkeypatch.setattr(type(store), "source", counted)

    again = find_key_changes(store, ascending.log.snapshot, sought, known)

    assert again.footers == 1
    assert len(opened) == 2, "the filter and the rows, and not the footer again"


def test_bounds_of_long_keys_are_cut_and_still_let_the_key_in(tmp_path: Path) -> None:
    lake = LocalLake(tmp_path)
    long = "x" * 50
    lake.land(row(C, 10, 1, "a") | {"key": f'["s","db.t","{long}2"]'})

    assert ops(search(lake, f'["s","db.t","{long}2"]')) == [(C, 0, 10)]
