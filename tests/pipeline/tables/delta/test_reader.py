"""A mirror answers for one version, shard by shard, and only what it can decide."""

import json
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.aggregates import AggregatedColumn, TimeSpan
from pipeline.delta.reader import SnapshotReader
from pipeline.errors import ProofError, UnreachableError
from pipeline.model import Order, Shard, Table, TopicPartition
from pipeline.readings import LogKey
from pipeline.row_digest import DigestColumn, Form, digest_row
from pipeline.tables.delta.reader import SAID_AGAIN, MirrorReader
from tests.builders.change_log import APP, meta, read_table, write_mirror

A, B = Shard("shop", "s.orders_00"), Shard("shop", "s.orders_01")
ELSEWHERE = Shard("other", "s.orders_00")
TABLE = Table("shop.orders", (ELSEWHERE, A, B), ("id",), "id")
ONE = Table("shop.orders", (A,), ("id",), "id")
TYPES = {"id": pa.int64(), "t": pa.string()}
SPOT = TopicPartition("t", 0)


def mirror_rows(shard: Shard, batch: int, *ids: int) -> list[dict[str, Any]]:
    about = meta(shard.name, batch, source=shard.source, pos=batch)
    return [{"id": n, "t": f"t{n}", "_sluice": about} for n in ids]


def mirror_reader(path: Path, table: Table = TABLE) -> MirrorReader:
    return MirrorReader(read_table(path), table, APP)


def key(shard: Shard, *values: str) -> LogKey:
    texts = ",".join(f'"{text}"' for text in (shard.source, shard.name, *values))
    return LogKey(shard, f"[{texts}]", SPOT, 0)


@pytest.fixture
def mirror(tmp_path: Path) -> Path:
    write_mirror(tmp_path, mirror_rows(A, 0, 1, 2, 3, 3) + mirror_rows(B, 0, 2, 700), 0, TYPES)
    write_mirror(tmp_path, mirror_rows(A, 4, 50), 4, TYPES)
    write_mirror(tmp_path, mirror_rows(ELSEWHERE, 7, 900), 7, TYPES)
    return tmp_path


def test_each_shard_is_counted_for_itself(mirror: Path) -> None:
    found = mirror_reader(mirror)

    assert (found.version, found.batch, found.rows()) == (2, 7, 8)
    assert found.count_ids(A, "id", [(1, 3), (3, 4), (4, 4), (0, 1_000)]) == (2, 2, 0, 5)
    assert found.count_ids(ELSEWHERE, "id", [(0, 1_000)]) == (1,)
    assert [found.max_id(shard, "id") for shard in (A, B, ELSEWHERE)] == [50, 700, 900]
    assert found.max_id(Shard("shop", "s.orders_99"), "id") is None


def test_days_of_all_shards_are_added_up_by_one_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    day, first = timedelta(days=1), date(2026, 3, 1)
    days: list[TimeSpan] = [(first + n * day, first + (n + 1) * day) for n in range(3)]
    made = [
        {**row, "day": first + (row["id"] % 10) * day}
        for row in mirror_rows(A, 0, 10, 20, 21)
        + mirror_rows(B, 0, 22, 30, 39)
        + mirror_rows(ELSEWHERE, 0, 19)
    ]
    write_mirror(tmp_path, made, 0, {**TYPES, "day": pa.date32()})
    found, asked = mirror_reader(tmp_path), list[str]()
    plain = SnapshotReader.select

    def counted(pinned: SnapshotReader, query: str) -> list[dict[str, Any]]:
        asked.append(query)
        return plain(pinned, query)

    monkeypatch.setattr(SnapshotReader, "select", counted)
    tallies = found.tallies(TABLE.shards, "day", days, [AggregatedColumn("id")])

    def told(shard: Shard) -> list[tuple[int, int]]:
        return [(one.rows, int(one.sums[0])) for one in tallies[shard]]

    assert len(asked) == 1
    assert told(A) == [(2, 30), (1, 21), (0, 0)]
    assert told(B) == [(1, 30), (0, 0), (1, 22)]
    assert told(ELSEWHERE) == [(0, 0)] * 3
    some = found.tallies([A, B], "day", days, [AggregatedColumn("t", text=True)])
    assert [one.rows for one in some[B]] == [1, 0, 1]
    assert some[A][0].sums[0] > 0
    assert found.tallies([A], "day", [], ()) == {A: ()}


def test_ids_ascend_keep_duplicates_and_stop_at_the_limit(mirror: Path) -> None:
    assert mirror_reader(mirror).ids(A, "id", (2, 60), 10) == (2, 3, 3, 50)
    assert mirror_reader(mirror).ids(A, "id", (2, 60), 3) == (2, 3, 3)


def test_a_pinned_version_does_not_see_later_commits(mirror: Path) -> None:
    before = mirror_reader(mirror)
    write_mirror(mirror, mirror_rows(A, 9, 60), 9, TYPES)

    assert (before.batch, before.max_id(A, "id")) == (7, 50)
    assert (mirror_reader(mirror).batch, mirror_reader(mirror).max_id(A, "id")) == (9, 60)


def test_keys_are_found_in_their_own_shard_only(mirror: Path) -> None:
    asked = [key(A, "50"), key(B, "50"), key(B, "2"), key(A, "4"), key(ELSEWHERE, "900")]

    assert mirror_reader(mirror).has_keys(asked) == (True, False, True, False, True)
    assert mirror_reader(mirror).has_keys([]) == ()


def test_strangers_in_a_table_of_one_shard_are_counted(mirror: Path) -> None:
    assert mirror_reader(mirror, ONE).count_ids(A, "id", [(0, 1_000)]) == (8,)
    assert mirror_reader(mirror, ONE).max_id(A, "id") == 900


def test_an_adopted_mirror_without_metadata_can_be_asked(tmp_path: Path) -> None:
    write_mirror(tmp_path, [{"id": 5, "t": "x"}], None, TYPES)
    found = mirror_reader(tmp_path, ONE)

    assert (found.batch, found.rows(), found.max_id(A, "id")) == (-1, 1, 5)
    assert found.has_keys([key(A, "5"), key(A, "6")]) == (True, False)
    assert found.sample(9) == [{"id": 5, "t": "x"}]
    with pytest.raises(ProofError, match="_sluice"):
        mirror_reader(tmp_path).max_id(A, "id")


def test_a_sample_is_of_the_newest_slice_and_shows_no_metadata(mirror: Path) -> None:
    write_mirror(mirror, mirror_rows(A, 9, 61, 62, 63), 9, TYPES)

    assert {row["id"] for row in mirror_reader(mirror).sample(9)} == {61, 62, 63}
    assert [set(row) for row in mirror_reader(mirror).sample(2)] == [{"id", "t"}] * 2


def ids(found: MirrorReader, batch: int | None) -> list[int]:
    return sorted(n for part in found.rows_after(batch) for n in part.column("id").to_pylist())


def test_rows_after_a_batch_are_those_of_later_ones(mirror: Path) -> None:
    found = mirror_reader(mirror)

    assert (ids(found, 4), ids(found, 3), ids(found, 7)) == ([900], [50, 900], [])
    assert ids(found, None) == [1, 2, 2, 3, 3, 50, 700, 900]
    assert found.columns == ("id", "t")
    assert next(found.rows_after(4)).column("_sluice")[0]["batch"].as_py() == 7
    (none,) = found.rows_after(7)
    assert (none.num_rows, tuple(none.schema.names)) == (0, (*found.columns, "_sluice"))
    for batch in (4, 7):
        (part,) = found.rows_after(batch, ("t", "unknown"))
        assert part.schema.names == ["t", "_sluice"]


def test_whole_rows_of_an_id_and_rows_after_a_batch_make_one_table(tmp_path: Path) -> None:
    values = {
        "t": ("é", pa.string()),
        "b": (b"\0", pa.binary()),
        "n": (Decimal("1.50"), pa.decimal128(10, 2)),
        "d": (date(2026, 3, 1), pa.date32()),
        "at": (datetime(2026, 3, 1, tzinfo=UTC), pa.timestamp("us", "UTC")),
        "local": (datetime(2026, 3, 1), pa.timestamp("us")),  # noqa: DTZ001  - has no zone
        "f": (0.1, pa.float32()),
        "l": ([1, None], pa.list_(pa.int64())),
    }
    made = {name: value for name, (value, _) in values.items()}
    types = {"id": pa.int64(), **{name: kind for name, (_, kind) in values.items()}}
    for batch in (4, 7):
        about = meta(A.name, batch, source=A.source, pos=batch)
        write_mirror(tmp_path, [{"id": batch, **made, "_sluice": about}], batch, types)
    found = mirror_reader(tmp_path)

    (later,) = found.rows_after(4)
    older = pa.Table.from_pylist(list(found.rows_of(A, "id", (4, 5))), later.schema)
    both = pa.concat_tables([pa.table(later), older]).to_pylist()

    assert [(row["id"], row["_sluice"]["batch"]) for row in both] == [(7, 7), (4, 4)]
    assert [{name: row[name] for name in made} for row in both[1:]] == [
        {name: both[0][name] for name in made}
    ]
    assert next(found.rows_after(7)).schema.names == later.schema.names


def test_an_adopted_mirror_has_all_rows_after_any_batch(tmp_path: Path) -> None:
    write_mirror(tmp_path, [{"id": 5, "t": "x"}], None, TYPES)

    assert ids(mirror_reader(tmp_path, ONE), 3) == [5]


@pytest.mark.parametrize("name", ["sluice.floors", "sluice.schemas", "sluice.standards"])
def test_a_property_that_no_batch_shows_is_seen(mirror: Path, name: str) -> None:
    before = mirror_reader(mirror).rewritten
    write_mirror(mirror, mirror_rows(A, 9, 60), 9, TYPES)
    assert mirror_reader(mirror).rewritten == before

    DeltaTable(mirror).alter.set_table_properties({name: "{}"}, raise_if_not_exists=False)

    assert mirror_reader(mirror).rewritten != before


@pytest.mark.parametrize(
    ("kind", "kept", "there", "absent"),
    [
        pytest.param(pa.string(), "o'x", "o'x", "O'X", id="text, byte by byte"),
        pytest.param(pa.int32(), 7, "7", "8", id="int"),
        pytest.param(pa.decimal128(20), Decimal(12_345), "12345", "1", id="unsigned bigint"),
    ],
)
def test_keys_of_every_comparable_type(
    tmp_path: Path, kind: Any, kept: Any, there: str, absent: str
) -> None:
    write_mirror(tmp_path, [{"id": kept, "_sluice": meta(A.name, 0)}], 0, {"id": kind})

    assert mirror_reader(tmp_path).has_keys([key(A, there), key(A, absent)]) == (True, False)


def test_a_composite_key_is_compared_in_all_its_columns(tmp_path: Path) -> None:
    table = Table("shop.items", (A, B), ("order", "Line no"))
    types = {"order": pa.int64(), "Line no": pa.string()}
    kept = [{"order": 1, "Line no": "a", "_sluice": meta(A.name, 0)}]
    write_mirror(tmp_path, kept, 0, types)

    found = mirror_reader(tmp_path, table).has_keys(
        [key(A, "1", "a"), key(A, "1", "b"), key(A, "2", "a")]
    )

    assert found == (True, False, False)


def test_keys_that_are_unique_across_shards_have_no_place_in_front(mirror: Path) -> None:
    table = Table("shop.orders", (A, B), ("id",), "id", unique_across_shards=True)

    assert mirror_reader(mirror, table).has_keys([LogKey(A, '["50"]', SPOT, 0)]) == (True,)


@pytest.mark.parametrize(
    ("table", "asked", "why"),
    [
        pytest.param(Table("t", (A, B)), key(A, "1"), "do not fit", id="no declared key"),
        pytest.param(TABLE, key(A, "1", "2"), "do not fit", id="another number of columns"),
        pytest.param(Table("t", (A, B), ("d",)), key(A, "1"), "write differently", id="a double"),
        pytest.param(Table("t", (A, B), ("x",)), key(A, "1"), "type nothing", id="no such column"),
    ],
)
def test_a_key_that_cannot_be_compared_is_undecided(
    tmp_path: Path, table: Table, asked: LogKey, why: str
) -> None:
    kept = {"id": 1, "d": 1.0, "_sluice": meta(A.name, 0)}
    write_mirror(tmp_path, [kept], 0, {"id": pa.int64(), "d": pa.float64()})

    with pytest.raises(ProofError, match=why):
        mirror_reader(tmp_path, table).has_keys([asked])


def test_a_file_that_was_vacuumed_is_unreachable_not_absent(mirror: Path) -> None:
    found = mirror_reader(mirror)
    for file in mirror.glob("*.parquet"):
        file.unlink()

    with pytest.raises(UnreachableError, match=str(mirror)):
        found.ids(A, "id", (0, 100), 10)


files = st.lists(st.lists(st.integers(0, 300), min_size=1, max_size=6), min_size=1, max_size=14)


@settings(max_examples=15, deadline=None)
@given(files, st.data())
def test_a_maximum_is_right_however_rows_lie_in_files(
    tmp_path_factory: pytest.TempPathFactory, ids: Sequence[list[int]], data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("mirror")
    shards = [data.draw(st.sampled_from([A, B])) for _ in ids]
    for shard, some in zip(shards, ids, strict=True):
        write_mirror(path, mirror_rows(shard, 0, *some), 0, TYPES)

    for shard in (A, B):
        own = [n for of, some in zip(shards, ids, strict=True) if of == shard for n in some]
        assert mirror_reader(path).max_id(shard, "id") == max(own, default=None)


UNSIGNED = {"id": pa.decimal128(20, 0)}


@pytest.mark.parametrize("base", [2**53, 2**62, 2**63 - 3, 2**64 - 3000], ids=hex)
def test_a_row_is_found_in_files_with_rounded_bounds(tmp_path: Path, base: int) -> None:
    """`delta-rs` writes bounds of decimals as floats, cut to 64 bits with a sign."""
    files = [[base + 1, base + 2, base + 100], [base + 1023], [base + 2001, base + 2999]]
    for ids in files:
        kept = [{"id": Decimal(n), "_sluice": meta(A.name, 0, pos=n - base)} for n in ids]
        write_mirror(tmp_path, kept, 0, UNSIGNED)
    found, columns = mirror_reader(tmp_path), [DigestColumn("id", Form.INTEGER)]
    every = [n for ids in files for n in ids]
    spans = [(n, n + 1) for n in every]
    digests = tuple(digest_row(columns, [n]) for n in every)

    assert found.max_id(A, "id") == every[-1]
    assert [found.count_ids(A, "id", [span])[0] for span in spans] == [1] * len(every)
    assert found.count_ids(A, "id", [(base, every[3]), (every[3], 2**64)]) == (3, 3)
    assert found.digests(A, "id", spans, columns) == digests
    assert tuple(found.digests(A, "id", [span], columns)[0] for span in spans) == digests
    assert tuple(found.id_digests(A, "id", [n], columns)[0] for n in every) == digests
    assert found.id_digests(A, "id", every, columns, since=-1) == digests
    assert [found.ids(A, "id", span, 5) for span in spans] == [(n,) for n in every]
    assert [len(found.row_digests(A, "id", span, columns, 5)) for span in spans] == [1] * len(every)
    assert [len(found.rows_of(A, "id", span)) for span in spans] == [1] * len(every)
    assert [len(found.rows_with_key({"id": Decimal(n)})) for n in every] == [1] * len(every)
    assert all(found.has_keys([key(A, str(n))])[0] for n in every)
    assert found.row_orders(A, "id", every) == {n: Order(0, 1, n - base) for n in every}
    assert found.has_keys([key(A, str(base + 3)), key(A, str(base + 3000))]) == (False, False)


@pytest.mark.parametrize("high", [2**53 + 1, 2**63 + 1001], ids=hex)
def test_a_row_is_found_in_a_file_whose_lowest_bound_is_short(tmp_path: Path, high: int) -> None:
    kept = [{"id": Decimal(n), "_sluice": meta(A.name, 0)} for n in (1, high)]
    write_mirror(tmp_path, kept, 0, UNSIGNED)
    write_mirror(tmp_path, [{"id": Decimal(5), "_sluice": meta(A.name, 0)}], 0, UNSIGNED)

    found = mirror_reader(tmp_path)

    assert found.count_ids(A, "id", [(1, 2), (5, 6), (high, high + 1)]) == (1, 1, 1)
    assert found.has_keys([key(A, str(high))]) == (True,)


def test_a_key_with_decimals_is_found_in_files_with_rounded_bounds(tmp_path: Path) -> None:
    price, types = Decimal("1234567890123456.78"), {"id": pa.decimal128(18, 2)}
    write_mirror(tmp_path, [{"id": price, "_sluice": meta(A.name, 0)}], 0, types)

    assert len(mirror_reader(tmp_path).rows_with_key({"id": price})) == 1


@pytest.mark.parametrize("kind", [pa.int64(), pa.decimal128(20, 0)], ids=str)
def test_a_file_far_from_what_is_asked_is_not_read(tmp_path: Path, kind: Any) -> None:
    for ids in ([1, 2], [2**40]):
        kept = [{"id": n, "_sluice": meta(A.name, 0)} for n in ids]
        write_mirror(tmp_path, kept, 0, {"id": kind})
    found = mirror_reader(tmp_path)
    near = min(tmp_path.glob("*.parquet"), key=lambda one: pq.read_table(one)["id"][0].as_py())
    for file in tmp_path.glob("*.parquet"):
        if file != near:
            file.unlink()

    assert found.count_ids(A, "id", [(0, 2**39)]) == (2,)
    assert found.has_keys([key(A, "2"), key(A, "3")]) == (True, False)
    assert found.id_digests(A, "id", [5, 6], [DigestColumn("id", Form.INTEGER)])[0].rows == 0


def test_bounds_that_are_no_floats_skip_files_whatever_their_size(tmp_path: Path) -> None:
    """As Sluice and Spark write them: with all digits."""
    near, far = (2**62 + 1, 2**62 + 3), (2**62 + 2**40 + 1, 2**62 + 2**40 + 3)
    for version, ids in enumerate((near, far)):
        kept = [{"id": Decimal(n), "_sluice": meta(A.name, 0)} for n in ids]
        write_mirror(tmp_path, kept, 0, UNSIGNED)
        entry = tmp_path / f"_delta_log/{version:020}.json"
        actions = [json.loads(line) for line in entry.read_text().splitlines()]
        add = next(one["add"] for one in actions if "add" in one)
        stats = json.loads(add["stats"])
        stats["minValues"]["id"], stats["maxValues"]["id"] = ids
        add["stats"] = json.dumps(stats)
        entry.write_text("\n".join(map(json.dumps, actions)))
    (tmp_path / add["path"]).unlink()

    assert mirror_reader(tmp_path).count_ids(A, "id", [(2**62, 2**62 + 2**39)]) == (2,)


def test_an_answer_about_a_version_is_given_again_and_looked_at_anew_in_the_end(
    mirror: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, plain = list[str](), SnapshotReader.select

    def counted(pinned: SnapshotReader, query: str) -> list[dict[str, Any]]:
        asked.append(query)
        return plain(pinned, query)

    monkeypatch.setattr(SnapshotReader, "select", counted)
    found = mirror_reader(mirror)

    for _ in range(SAID_AGAIN + 1):
        assert found.max_id(A, "id") == 50
        assert found.max_id(B, "id") == 700
        assert found.count_ids(A, "id", [(0, 3), (3, 60)]) == (2, 3)
        assert found.count_ids(A, "id", [(0, 60)]) == (5,)
        assert found.rows() == 8
    assert len(asked) == 5

    for file in mirror.rglob("*.parquet"):
        file.unlink()
    with pytest.raises(UnreachableError):
        found.count_ids(A, "id", [(0, 60)])


def test_the_order_of_a_row_is_that_of_the_change_that_wrote_it(mirror: Path) -> None:
    write_mirror(mirror, mirror_rows(A, 9, 3), 9, TYPES)

    found = mirror_reader(mirror).row_orders(A, "id", [3, 50, 700])

    assert {id_: order.pos for id_, order in found.items()} == {3: 9, 50: 4}


@pytest.mark.parametrize(
    ("kind", "kept", "other"),
    [
        pytest.param(pa.int32(), -3, 3, id="int"),
        pytest.param(pa.string(), "it's", "its", id="text"),
        pytest.param(pa.binary(), b"\x00\xff'", b"\x00\xff", id="bytes"),
        pytest.param(pa.binary(), b"", b"\x00", id="no bytes"),
        pytest.param(pa.date32(), date(2026, 1, 2), date(2026, 1, 3), id="date"),
        pytest.param(
            pa.timestamp("us"),
            datetime(2026, 1, 2, 3, 4, 5, 6),  # noqa: DTZ001 - a wall's time
            datetime(2026, 1, 2, 3, 4, 5, 7),  # noqa: DTZ001
            id="time",
        ),
        pytest.param(
            pa.timestamp("us", "UTC"),
            datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
            datetime(2026, 1, 2, 3, 4, 5, 7, tzinfo=UTC),
            id="instant",
        ),
        pytest.param(pa.decimal128(10, 2), Decimal("1.10"), Decimal("1.11"), id="decimal"),
        pytest.param(pa.bool_(), True, False, id="boolean"),
    ],
)
def test_the_row_of_a_key_is_found_by_its_typed_values(
    tmp_path: Path, kind: Any, kept: Any, other: Any
) -> None:
    rows = [{"k": kept, "n": n, "_sluice": meta(A.name, 0)} for n in (1, 2)]
    write_mirror(tmp_path, rows, 0, {"k": kind, "n": pa.int64()})
    mirror = mirror_reader(tmp_path, Table("t", (A, B), ("k", "n")))

    (found,) = mirror.rows_with_key({"k": kept, "n": 2})

    assert (found["k"], found["n"], found["_sluice"]["shard"]) == (kept, 2, A.name)
    assert mirror.rows_with_key({"k": other, "n": 2}) == []


def test_a_key_of_several_shards_is_found_in_each(mirror: Path) -> None:
    found = mirror_reader(mirror).rows_with_key({"id": 2})

    assert sorted(one["_sluice"]["shard"] for one in found) == [A.name, B.name]


def test_a_key_of_a_type_that_is_not_exact_is_undecided(tmp_path: Path) -> None:
    write_mirror(tmp_path, [{"k": 1.5, "_sluice": meta(A.name, 0)}], 0, {"k": pa.float64()})

    with pytest.raises(ProofError, match="write differently"):
        mirror_reader(tmp_path).rows_with_key({"k": 1.5})


def test_rows_are_looked_for_where_later_batches_wrote_first_and_everywhere_then(
    mirror: Path,
) -> None:
    """Of a row that is there twice the later one is an answer, and an older row is one, too."""
    columns = [DigestColumn("id", Form.INTEGER), DigestColumn("t", Form.TEXT)]
    write_mirror(mirror, mirror_rows(A, 9, 2, 60), 9, TYPES)
    ids = [1, 2, 3, 50, 60, 61]

    everywhere = mirror_reader(mirror).id_digests(A, "id", ids, columns)
    since = mirror_reader(mirror).id_digests(A, "id", ids, columns, 4)

    assert [one.rows for one in everywhere] == [1, 2, 2, 1, 1, 0]
    assert [one.rows for one in since] == [1, 1, 2, 1, 1, 0]
    assert since[0] == everywhere[0]
    assert since[2:] == everywhere[2:]
