"""What a turn comes to, by our own writer."""

import json
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.apply.decide import AppliedBefore, Fill
from pipeline.apply.foreign_commits import find_intrusion
from pipeline.apply.merge import MergeTask
from pipeline.delta import actions
from pipeline.delta.commit import commit_actions
from pipeline.delta.log import load_snapshot
from pipeline.errors import HeldError, LostRaceError
from pipeline.model import Op, Origin, Shard, TopicPartition
from pipeline.sources.mysql.types import MySqlColumn as Column
from pipeline.tables.delta.merge import read_commit, run_merge
from tests.example_count import examples
from tests.pipeline.tables.delta.turns import (
    FAR,
    NOW,
    A,
    B,
    TurnBench,
    change,
    mirror_schema,
    order,
    table,
    unique,
)

C, U, D, R, T, S, TOMB, ERROR = (
    Op.CREATE,
    Op.UPDATE,
    Op.DELETE,
    Op.READ,
    Op.TRUNCATE,
    Op.SETTLE,
    Op.TOMBSTONE,
    Op.ERROR,
)


Row = dict[str, Any]
FEW = settings(
    max_examples=examples(50, brief=8),
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
)


def tomb(key: int) -> Row:
    return {**change(TOMB, 0, key), "order": None}


@pytest.fixture
def bench(tmp_path: Path) -> TurnBench:
    return TurnBench(tmp_path / "mirror")


@pytest.mark.parametrize(
    ("batches", "expected"),
    [
        pytest.param([[change(C, 10, 1, "a")]], {1: "a"}, id="a row appears"),
        pytest.param([[change(C, 10, 1, "a"), change(U, 20, 1, "b")]], {1: "b"}, id="newest wins"),
        pytest.param([[change(U, 20, 1, "b"), change(C, 10, 1, "a")]], {1: "b"}, id="in any place"),
        pytest.param(
            [[change(C, 10, 1, "a")], [change(D, 20, 1, "a"), tomb(1)]], {}, id="a delete"
        ),
        pytest.param(
            [[change(C, 10, 1, "a"), change(D, 20, 1, "a")]], {}, id="born and gone in one batch"
        ),
        pytest.param(
            [[change(C, 10, 1, "a")], [change(D, 20, 1)], [change(C, 30, 1, "z")]],
            {1: "z"},
            id="inserted again after a delete",
        ),
        pytest.param(
            [[change(C, 10, 1, "a")], [change(D, 20, 1, "a"), change(C, 20, 2, "a")]],
            {2: "a"},
            id="a key update is a delete and a create at one place",
        ),
        pytest.param(
            [[change(C, 10, 1, "a")], [change(D, 20, 1)], [change(C, 10, 1, "a")]],
            {},
            id="what was deleted stays deleted when its insert is sent again",
        ),
        pytest.param(
            [[change(C, 10, 1, "a"), change(C, 11, 2, "b")], [change(T, 20, None)]],
            {},
            id="a truncate empties the shard",
        ),
        pytest.param(
            [[change(C, 10, 1, "a")], [change(T, 20, None), change(C, 30, 1, "n")]],
            {1: "n"},
            id="a truncate and a row after it in one batch",
        ),
        pytest.param(
            [[change(T, 50, None)], [change(R, 40, 7, "late"), change(C, 60, 8, "new")]],
            {8: "new"},
            id="nothing older than a truncate is inserted later",
        ),
        pytest.param(
            [
                [change(R, 10, 1, "a"), change(R, 10, 2, "b")],
                [change(R, 50, 2, "b"), change(S, 50, None)],
            ],
            {2: "b"},
            id="a second snapshot settles what was deleted between the two",
        ),
        pytest.param(
            [[change(C, 60, 1, "new")], [change(R, 50, 1, "old"), change(S, 50, None)]],
            {1: "new"},
            id="a snapshot row does not undo a later change",
        ),
        pytest.param(
            [
                [change(C, 10, 1, "live"), change(R, 10, 1, "repair", origin=Origin.REPAIR)],
                [change(R, 10, 1, "repair", origin=Origin.REPAIR)],
            ],
            {1: "live"},
            id="live wins over a repair at equal order",
        ),
    ],
)
def test_mirror_follows(
    bench: TurnBench, batches: list[list[Row]], expected: dict[int, str]
) -> None:
    for batch in batches:
        bench.play(*batch)

    assert bench.rows() == expected
    assert {row["id"]: row["name"] for row in bench.elsewhere()} == expected


@pytest.mark.parametrize(
    ("batches", "expected"),
    [
        pytest.param(
            [[change(C, 10, 1, "a"), change(C, 11, 1, "b", of=B)], [change(D, 20, 1, "a")]],
            {1: "b"},
            id="a delete speaks for its own shard only",
        ),
        pytest.param(
            [[change(C, 30, 1, "b", of=B)], [change(C, 10, 1, "a"), change(D, 40, 1, of=B)]],
            {1: "a"},
            id="the delete of the mirror's row is heard though another upsert stands for the key",
        ),
        pytest.param(
            [[change(C, 10, 1, "a")], [change(D, 20, 1), change(D, 40, 1, of=B)]],
            {},
            id="the delete of the mirror's row is heard beside a newer one of another shard",
        ),
        pytest.param(
            [[change(C, 10, 1, "a")], [change(D, 20, 1), change(C, 3, 1, "f", of=FAR)]],
            {1: "f"},
            id="a key that has left its source may come from another one",
        ),
    ],
)
def test_keys_that_span_shards(
    tmp_path: Path, batches: list[list[Row]], expected: dict[int, str]
) -> None:
    bench = TurnBench(tmp_path / "mirror", shards=(A, B, FAR), spanning=True)

    for batch in batches:
        bench.play(*batch)

    assert bench.rows() == expected


@pytest.mark.parametrize(
    "batches",
    [
        pytest.param([[change(C, 1, 1, "a"), change(C, 2, 1, "f", of=FAR)]], id="in one batch"),
        pytest.param([[change(C, 1, 1, "a")], [change(C, 2, 1, "f", of=FAR)]], id="in two"),
    ],
)
def test_f12_an_upsert_never_crosses_sources_by_itself(
    tmp_path: Path, batches: list[list[Row]]
) -> None:
    bench = TurnBench(tmp_path / "mirror", shards=(A, FAR), spanning=True)
    for batch in batches[:-1]:
        bench.play(*batch)

    with pytest.raises(HeldError, match="crosses_sources"):
        bench.play(*batches[-1])


def test_the_same_key_of_two_shards_is_two_rows(tmp_path: Path) -> None:
    bench = TurnBench(tmp_path / "mirror", shards=(A, B))

    bench.play(change(C, 10, 1, "a"), change(C, 10, 1, "b", of=B))
    bench.play(change(U, 20, 1, "bb", of=B))
    bench.play(change(D, 30, 1, "a"))

    assert [(row["name"], row["_sluice"]["shard"]) for row in bench.read().to_pylist()] == [
        ("bb", "db.b")
    ]


def test_each_change_is_in_one_term_of_the_account(bench: TurnBench) -> None:
    bench.play(change(C, 10, 1, "a"), change(C, 11, 2, "b"), change(C, 12, 3, "c"))

    written = bench.play(
        *(
            change(U, 20, 1, "x"),
            change(U, 21, 1, "y"),
            change(U, 21, 1, "y"),
        ),  # over-written, twice
        *(change(C, 11, 2, "b"), change(D, 5, 3), change(D, 30, 9)),  # again, too old, absent
        *(change(C, 40, 4, "d"), tomb(9), change(ERROR, 0, None), change(S, 2, None)),
    )

    account = written.account
    assert (account.read, account.applied, account.superseded) == (10, 3, 1)
    assert (account.noop, account.redelivered, account.quarantined) == (2, 2, 1)
    assert account.ignored == {"tombstone": 1}
    counts = written.counts
    assert (counts.inserted, counts.updated, counts.deleted, counts.floored) == (1, 1, 0, 0)
    assert (counts.noop, counts.again) == (2, 1)


def test_a_turn_that_changes_nothing_has_no_actions(bench: TurnBench) -> None:
    bench.play(change(C, 10, 1, "a"))

    assert bench.play(change(C, 10, 1, "a")).work == ()


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        pytest.param([change(C, 1, 1, "a"), change(C, 1, 1, "b")], "conflict", id="contradiction"),
        pytest.param(
            [change(C, 1, 1, after='{"name":"x"}')], "null_key", id="no value for the key"
        ),
        pytest.param([change(C, 1, 1, key=None)], "no_key", id="f11 no key"),
        pytest.param([change(C, 1, 1, after='{"id":1,"x":2}')], "unknown_field", id="unknown"),
        pytest.param([change(C, 1, 1, after='{"id":"one"}')], "misread", id="misread"),
        pytest.param([change(C, 1, 1, order=None)], "no_order", id="no order"),
    ],
)
def test_the_table_is_held(bench: TurnBench, rows: list[Row], reason: str) -> None:
    with pytest.raises(HeldError) as held:
        bench.play(*rows)

    assert held.value.reason == reason


def test_f26_a_contradiction_below_a_truncate_holds_nothing(bench: TurnBench) -> None:
    bench.play(change(C, 1, 1, "a"), change(C, 1, 1, "b"), change(T, 2, None))

    assert bench.rows() == {}


def test_a_zombie_loses_the_race_and_leaves_nothing_that_counts(bench: TurnBench) -> None:
    bench.play(change(C, 10, 1, "a"))
    old = bench.snapshot
    zombie = run_merge(bench.task(table(change(U, 20, 1, "zombie"))))
    bench.play(change(U, 20, 1, "winner"))
    new, bench.snapshot = bench.snapshot, old

    with pytest.raises(LostRaceError):
        bench.commit(zombie)

    bench.snapshot = new
    assert bench.rows() == {1: "winner"}


def test_a_task_and_what_it_writes_can_be_pickled(bench: TurnBench) -> None:
    bench.play(change(C, 10, 1, "a"))
    fill = Fill("name", A, order(5), pa.scalar("d"))
    task: MergeTask[Any] = pickle.loads(  # noqa: S301 - our own
        pickle.dumps(bench.task(table(change(U, 20, 1, "b")), fills=(fill,)))
    )

    written = pickle.loads(pickle.dumps(run_merge(task)))  # noqa: S301

    bench.commit(written)
    assert bench.rows() == {1: "b"}


def test_a_turn_needs_neither_spark_nor_deltalake() -> None:
    code = (
        "import sys, pipeline.tables.delta.merge, pipeline.tables.delta.rewrite; "
        "sys.exit(bool({'pyspark', 'deltalake'} & set(sys.modules)))"
    )
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[4])}

    done = subprocess.run([sys.executable, "-c", code], env=env, timeout=60, check=False)

    assert done.returncode == 0


def test_a_column_that_was_added_is_filled_in_changes_older_than_it(bench: TurnBench) -> None:
    bench.play(change(C, 10, 1, "a"))
    more = Column("more", "INT")
    adding = actions.alter_metadata(bench.snapshot, pa.schema([("more", pa.int32())]), {})
    bench.snapshot = commit_actions(bench.store, bench.snapshot, adding, operation="ADD", clock=NOW)
    rows = table(change(U, 20, 1, after='{"id":1,"name":"b","more":7}'), change(C, 15, 2, "old"))
    fill = Fill("more", A, order(18), pa.scalar(3, pa.int32()))

    bench.run(rows, columns=(*bench.columns, more), fills=(fill,))

    found = {row["id"]: (row["name"], row["more"]) for row in bench.elsewhere()}
    assert found == {1: ("b", 7), 2: ("old", 3)}


def test_names_that_parquet_does_not_take_are_mapped(tmp_path: Path) -> None:
    columns = (Column("the id", "BIGINT"), Column("a.b", "VARCHAR", 9), Column("a", "INT"))
    bench = TurnBench(tmp_path / "mirror", columns=columns, key=("the id", "a.b"))

    def row(op: Op, pos: int, text: str, number: int) -> Row:
        image = f'{{"the id": 1, "a.b": "{text}", "a": {number}}}'
        return change(op, pos, text, **{"before" if op is D else "after": image})

    bench.play(row(C, 10, "x", 1), row(C, 11, "y", 2))
    bench.play(row(U, 20, "x", 3), row(D, 21, "y", 2))

    assert [{**row, "_sluice": 0} for row in bench.elsewhere()] == [
        {"the id": 1, "a.b": "x", "a": 3, "_sluice": 0}
    ]


def test_a_key_of_padded_text_is_refused(bench: TurnBench) -> None:
    metadata = bench.snapshot.metadata
    text = metadata.schema_string.replace(
        '"metadata":{}', '"metadata":{"__CHAR_VARCHAR_TYPE_STRING":"char(9)"}', 1
    )
    bench.snapshot = replace(bench.snapshot, metadata=replace(metadata, schema_string=text))

    with pytest.raises(HeldError, match="key_kind"):
        bench.play(change(C, 1, 1, "a"))


# --- laws: whatever the batches, the mirror is what all changes together say
Event = tuple[Op, Shard, int, int, Origin]  # op, shard, key, position


def event(drawn: Event) -> Row:
    """Equal places say equal things, so nothing contradicts itself."""
    op, shard, key, pos, origin = drawn
    if op in (T, S):
        return change(op, pos, None, of=shard)
    if op is not D:
        op = (C, U, R)[pos % 3]
    return change(op, pos, key, f"{shard.name}{pos}{origin}", of=shard, origin=int(origin))


def expected(rows: Iterable[Mapping[str, Any]]) -> set[tuple[str, str]]:
    """Of each shard's key the newest change, unless it is a delete or below the shard's floor."""
    floors: dict[str, int] = {}
    newest: dict[str, Mapping[str, Any]] = {}
    for row in rows:
        shard, pos = row["shard"], row["order"]["pos"]
        if row["op"] in (T, S):
            floors[shard] = max(pos, floors.get(shard, 0))
            continue
        known = newest.setdefault(row["key"], row)
        if (pos, row["origin"]) > (known["order"]["pos"], known["origin"]):
            newest[row["key"]] = row
    return {
        (row["shard"], row["after"])
        for row in newest.values()
        if row["op"] != D and row["order"]["pos"] >= floors.get(row["shard"], 0)
    }


def held_by(bench: TurnBench) -> set[tuple[str, str]]:
    """Shard and image of each row; fails on a duplicate."""
    found = bench.read().to_pylist()
    shards = [row["_sluice"]["shard"] for row in found]
    keys = {(None if bench.spanning else s, r["id"]) for s, r in zip(shards, found, strict=True)}
    assert len(keys) == len(found), "duplicates"
    images = [f'{{"id": {row["id"]}, "name": "{row["name"]}"}}' for row in found]
    return set(zip(shards, images, strict=True))


events = st.tuples(
    st.sampled_from([C, C, U, U, D, D, T, S]),
    st.sampled_from([A, B]),
    st.integers(1, 4),
    st.integers(1, 25),
    st.sampled_from([Origin.LIVE, Origin.LIVE, Origin.SNAPSHOT, Origin.REPAIR]),
)


def told_once(drawn: Sequence[Event]) -> list[Event]:
    """At one place of one key there is one op."""
    ops: dict[tuple[Any, ...], Op] = {}
    for op, *place in drawn:
        if op not in (T, S):
            ops.setdefault(tuple(place), op)
    return [(e[0] if e[0] in (T, S) else ops[e[1:]], *e[1:]) for e in drawn]


@FEW
@given(st.lists(st.lists(events, min_size=1, max_size=8), min_size=1, max_size=6), st.data())
def test_any_batches_in_any_order_come_to_what_all_changes_say(
    drawn: list[list[Event]], data: st.DataObject
) -> None:
    flat = iter(told_once([one for batch in drawn for one in batch]))
    batches = [[event(next(flat)) for _ in batch] for batch in drawn]
    with tempfile.TemporaryDirectory() as folder:
        bench = TurnBench(Path(folder) / "mirror", shards=(A, B))
        for number, batch in enumerate(batches, start=1):
            bench.play(*batch, *data.draw(st.lists(st.sampled_from(batch), max_size=3)))

            assert held_by(bench) == expected(row for some in batches[:number] for row in some)

        before = held_by(bench)
        start = data.draw(st.integers(0, len(batches) - 1))
        for batch in batches[start:]:
            bench.play(*batch)
        assert held_by(bench) == before, "a replayed suffix changed something"


@st.composite
def stays(draw: st.DrawFn) -> list[Row]:
    """A key's stays in one shard after the other: created, updated, deleted, in rising order."""
    rows: list[Row] = []
    for key in range(draw(st.integers(1, 3))):
        pos = 0
        for _ in range(draw(st.integers(1, 3))):
            shard = draw(st.sampled_from([A, B]))
            for op in (C, *[U] * draw(st.integers(0, 1)), D):
                pos += draw(st.integers(1, 3))
                rows.append(change(op, pos, key, f"{shard.name}{pos}", of=shard))
        if draw(st.booleans()):
            rows.pop()
    return rows


@FEW
@given(stays(), st.data())
def test_keys_that_wander_between_shards_come_to_where_they_are_last(
    rows: list[Row], data: st.DataObject
) -> None:
    shuffled = data.draw(st.permutations(rows))
    cuts = sorted(data.draw(st.sets(st.integers(0, len(rows)), max_size=4)) | {0, len(rows)})
    by_place = sorted(rows, key=lambda row: row["order"]["pos"])
    last = {unique(row)["key"]: row for row in by_place}
    wanted = {(row["shard"], row["after"]) for row in last.values() if row["op"] != D}
    with tempfile.TemporaryDirectory() as folder:
        bench = TurnBench(Path(folder) / "mirror", shards=(A, B), spanning=True)
        for start, end in pairwise(cuts):
            bench.play(*shuffled[start:end])

        assert held_by(bench) == wanted
        for start, end in pairwise(cuts):
            bench.play(*shuffled[start:end])
        assert held_by(bench) == wanted, "replayed"


def test_the_newest_version_read_again_is_what_was_committed(bench: TurnBench) -> None:
    bench.play(change(C, 10, 1, "a"))
    bench.play(change(U, 20, 1, "b"))

    again = load_snapshot(bench.store)

    assert again is not None
    assert dict(again.files) == dict(bench.snapshot.files)


def test_a_mirror_never_applied_asks_for_no_deletes(bench: TurnBench) -> None:
    def asked(_: pa.StringArray) -> pa.Table:
        raise AssertionError

    bench.play(change(R, 10, 1, "a"), known=None, deletes=asked)
    bench.play(
        change(C, 20, 2, "b"),
        known=AppliedBefore({TopicPartition("s.db.a", 0): order(15)}),
        deletes=asked,
    )

    assert bench.rows() == {1: "a", 2: "b"}
    assert mirror_schema(bench.columns).names == bench.read().column_names


def lines(*actions: dict[str, Any]) -> list[str]:
    return [json.dumps(action) for action in actions]


def info(operation: str, note: str | None = None) -> dict[str, Any]:
    told = {"timestamp": 1_700_000_000_000, "operation": operation}
    return {"commitInfo": told | ({"userMetadata": note} if note else {})}


ADD = {"add": {"path": "a", "dataChange": True}}
MOVED = {"add": {"path": "a", "dataChange": False}}
GONE = {"remove": {"path": "b", "dataChange": True}}
TXN = {"txn": {"appId": "sluice:main", "version": 7}}
OWN = '{"sluice": {"after": 4}}'


@pytest.mark.parametrize(
    ("actions", "foreign"),
    [
        pytest.param([info("MERGE", OWN), TXN, ADD], False, id="noted, right after its own"),
        pytest.param([info("MERGE", OWN), TXN, GONE], False, id="noted delete"),
        pytest.param([info("WRITE"), ADD], True, id="no note"),
        pytest.param([info("DELETE", "by hand"), GONE], True, id="somebody else's note"),
        pytest.param([info("WRITE", "[1]"), ADD], True, id="a note of another shape"),
        pytest.param([info("RESTORE"), TXN, ADD], True, id="restore keeps transaction ids"),
        pytest.param([info("OPTIMIZE"), MOVED], False, id="compaction changes no data"),
        pytest.param([info("SET TBLPROPERTIES"), {"metaData": {}}], False, id="properties only"),
    ],
)
def test_a_commit_is_foreign_if_it_changed_data_without_our_note(
    actions: list[dict[str, Any]], foreign: bool
) -> None:
    assert (find_intrusion([read_commit(5, lines(*actions))])[0] is not None) is foreign


def test_a_commit_tells_what_it_was() -> None:
    told = read_commit(5, [*lines(info("MERGE", OWN), TXN, {"metaData": {}}, ADD), ""])

    assert (told.version, told.operation, told.at.year) == (5, "MERGE", 2023)
    assert (told.data_changing, told.after) == (True, 4)


def test_a_log_without_information_is_a_foreign_commit() -> None:
    assert find_intrusion([read_commit(0, lines(ADD))])[0] is not None
    assert find_intrusion([read_commit(0, [])])[0] is None
