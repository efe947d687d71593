"""pipeline/delta/commit.py, checked.py, actions.py and checkpoints.py."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from obstore.store import MemoryStore

from pipeline.delta import actions, deletion_vectors, maintenance
from pipeline.delta.commit import create_table
from pipeline.delta.local import LEFTOVER, Folder
from pipeline.delta.log import Action, empty_snapshot, encode_entry, entry_name, load_snapshot
from pipeline.delta.object_store import Bucket
from pipeline.errors import HeldError, LostRaceError, UnreachableError
from tests.pipeline.delta.tables import NOW, PLAIN, Writer, found, log_files, numbers, queried


@pytest.fixture
def writer(tmp_path: Path) -> Writer:
    return Writer.make(tmp_path / "t")


@dataclass(eq=False)
class Unsteady(Folder):
    """A folder whose answers get lost after, or before, it has done what was asked."""

    fails: str = ""

    def put_new(self, name: str, data: bytes) -> None:
        if self.fails != "before":
            super().put_new(name, data)
        if self.fails == "after":
            raise TimeoutError("no answer")
        if self.fails == "twice":
            super().put_new(name, data)
        if self.fails == "before":
            raise UnreachableError("no answer")


def lines(writer: Writer) -> list[dict[str, Any]]:
    text = writer.store.read(entry_name(writer.snapshot.version)).decode()
    return [json.loads(line) for line in text.splitlines()]


def last_info(writer: Writer) -> dict[str, Any]:
    told: dict[str, Any] = lines(writer)[0]["commitInfo"]
    return told


def test_rule_13_an_entry_begins_with_who_wrote_it_in_flat_texts(writer: Writer) -> None:
    at = datetime(2026, 11, 21, 12, 0, 0, 123_456, UTC)
    writer.commit(
        [writer.file(numbers(0, 1))],
        operation="MERGE",
        clock=at,
        note={"sluice": {"after": 0}},
        txn=("sluice:main", 4),
        metrics={"numTargetRowsInserted": 1},
        parameters={"predicate": "[]"},
    )

    info = last_info(writer)

    assert info.pop("txnId") == writer.snapshot.commit_id
    assert info == {
        "timestamp": 1_795_262_400_123,
        "operation": "MERGE",
        "operationParameters": {"predicate": "[]"},
        "readVersion": 0,
        "isolationLevel": "Serializable",
        "isBlindAppend": False,
        "operationMetrics": {"numTargetRowsInserted": "1"},
        "userMetadata": '{"sluice":{"after":0}}',
        "engineInfo": "Sluice",
    }
    assert [next(iter(line)) for line in lines(writer)] == ["commitInfo", "txn", "add"]
    assert lines(writer)[1]["txn"]["version"] == 4


def test_actions_stand_in_the_order_of_their_kinds(writer: Writer) -> None:
    path = writer.append(numbers(0, 5))
    gone = writer.without(writer.snapshot.files[path], [1], 5)
    new = actions.alter_metadata(writer.snapshot, pa.schema([("a b", pa.timestamp("us"))]), {})

    writer.commit([*reversed(gone), *reversed(new)], txn=("a", 1))

    kinds = [next(iter(line)) for line in lines(writer)]
    assert kinds == ["commitInfo", "txn", "protocol", "metaData", "remove", "add"]
    assert queried(Path(writer.store.uri), "select count(*) n from t") == [{"n": 4}]


def test_rule_3_every_commit_has_an_id_of_its_own(writer: Writer) -> None:
    ids = {writer.snapshot.commit_id, *(writer.commit([]).commit_id for _ in range(5))}

    assert len(ids) == 6


def test_rule_3_a_second_writer_of_a_version_learns_that_it_lost(writer: Writer) -> None:
    late = Writer(writer.store, writer.snapshot)
    writer.append(numbers(0, 3))
    before = found(writer.store)

    with pytest.raises(LostRaceError, match="another commit is version 1"):
        late.append(numbers(3, 6))

    assert found(writer.store) == before


@pytest.mark.parametrize("fails", ["after", "twice"])
def test_rule_3_a_lost_answer_is_looked_up(tmp_path: Path, fails: str) -> None:
    writer = Writer.make(tmp_path / "t")
    writer.store = Unsteady(writer.store.uri, fails=fails)

    writer.append(numbers(0, 3))

    assert found(writer.store) == writer.snapshot


def test_rule_3_an_answer_lost_while_another_won_is_a_lost_race(tmp_path: Path) -> None:
    writer = Writer.make(tmp_path / "t")
    late = Writer(Unsteady(writer.store.uri, fails="before"), writer.snapshot)
    add = late.file(numbers(0, 1))
    writer.append(numbers(0, 3))

    with pytest.raises(LostRaceError):
        late.commit([add])


def test_rule_3_what_is_not_known_is_not_called_lost(tmp_path: Path) -> None:
    writer = Writer.make(tmp_path / "t")
    writer.store = Unsteady(writer.store.uri, fails="before")

    with pytest.raises(UnreachableError, match="is not known") as unknown:
        writer.append(numbers(0, 3))

    assert not isinstance(unknown.value, LostRaceError)


@pytest.mark.parametrize("left", ["nothing", "an empty log", "another table"])
def test_rule_4_a_late_writer_makes_nothing_where_its_table_was(
    writer: Writer, tmp_path: Path, left: str
) -> None:
    writer.append(numbers(0, 3))
    add = writer.file(numbers(3, 4))
    (tmp_path / "t").rename(tmp_path / "old")
    if left == "an empty log":
        (tmp_path / "t" / "_delta_log").mkdir(parents=True)
    elif left == "another table":
        Writer.make(tmp_path / "t").append(numbers(0, 3))
    if left != "nothing":
        name = add["add"]["path"]
        (tmp_path / "t" / name).write_bytes((tmp_path / "old" / name).read_bytes())
    before = {path.name for path in tmp_path.glob("t/_delta_log/*")}

    with pytest.raises(HeldError, match=r"table_replaced|missing_file"):
        writer.commit([add])

    assert {path.name for path in tmp_path.glob("t/_delta_log/*")} == before
    assert (tmp_path / "t").exists() == (left != "nothing")


def test_rule_4_a_table_is_not_made_where_one_is_or_was(writer: Writer, tmp_path: Path) -> None:
    with pytest.raises(HeldError, match="table_exists"):
        create_table(writer.store, PLAIN, clock=NOW)
    writer.append(numbers(0, 1))
    maintenance.write_checkpoint(writer.store)
    for path in (tmp_path / "t" / "_delta_log").glob("*.json"):
        path.unlink()
    with pytest.raises(HeldError, match="table_exists"):
        create_table(writer.store, PLAIN, clock=NOW)


def test_rule_6_no_vector_goes_into_a_table_whose_readers_pass_over_it(tmp_path: Path) -> None:
    off = {"delta.enableDeletionVectors": "false"}
    writer = Writer.make(tmp_path / "t", configuration=off)
    path = writer.append(numbers(0, 5))

    with pytest.raises(HeldError, match="deletion vectors are not switched on"):
        writer.delete(path, [1])
    on = {"delta.enableDeletionVectors": "true"}
    writer.commit(actions.with_properties(writer.snapshot, on))
    writer.delete(path, [1])

    assert queried(tmp_path / "t", "select count(*) n from t") == [{"n": 4}]


def test_rule_9_a_table_that_became_anothers_is_refused_at_the_commit(writer: Writer) -> None:
    told = {**writer.snapshot.metadata.action, "configuration": {"delta.appendOnly": "true"}}

    with pytest.raises(HeldError, match=r"delta\.appendOnly"):
        writer.commit([{"metaData": told}])
    text = json.dumps({"metaData": told})
    writer.store.put_new(entry_name(1), text.encode())
    writer.snapshot = found(writer.store)
    with pytest.raises(HeldError, match=r"delta\.appendOnly"):
        writer.commit([])


def test_rule_11_a_file_added_again_keeps_every_field(writer: Writer) -> None:
    path = writer.append(numbers(0, 5))
    odd = {"tags": {"T": "1"}, "baseRowId": 7, "clusteringProvider": "x", "unknown": [None]}
    old = writer.snapshot.files[path]
    told = {**old.action, **odd, "path": path.replace("part", "%70art")}
    lines_ = [actions.remove_file(old, at=NOW), {"add": told}]
    writer.store.put_new(entry_name(2), encode_entry(lines_))
    writer.snapshot = found(writer.store)
    file = writer.snapshot.files[told["path"]]

    writer.delete(told["path"], [1])

    kept = writer.snapshot.files[told["path"]].action
    changed = {"stats", "deletionVector"}
    assert {k: v for k, v in kept.items() if k not in changed} == {
        k: v for k, v in file.action.items() if k not in changed
    }
    assert (
        next(line["remove"]["path"] for line in lines(writer) if "remove" in line) == told["path"]
    )


def _field_lost(add: dict[str, Any], _: dict[str, Any]) -> None:
    del add["modificationTime"]


def _old_vector_lost(_: dict[str, Any], remove: dict[str, Any]) -> None:
    del remove["deletionVector"]


def _other_vector(_: dict[str, Any], remove: dict[str, Any]) -> None:
    remove["deletionVector"] = {**remove["deletionVector"], "cardinality": 2}


def _tight(add: dict[str, Any], _: dict[str, Any]) -> None:
    add["stats"] = add["stats"].replace('"tightBounds":false', '"tightBounds":true')


def _uncounted(add: dict[str, Any], _: dict[str, Any]) -> None:
    del add["stats"]


def _too_many_gone(add: dict[str, Any], _: dict[str, Any]) -> None:
    add["deletionVector"]["cardinality"] = 6


def _partitioned(add: dict[str, Any], remove: dict[str, Any]) -> None:
    add["path"], add["partitionValues"] = "new", {"dt": "2026-11-01"}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        pytest.param(_field_lost, "keep every field", id="rule 11"),
        pytest.param(_old_vector_lost, "another vector than it has", id="rule 12: none"),
        pytest.param(_other_vector, "another vector than it has", id="rule 12: another"),
        pytest.param(_tight, "are not tight", id="rule 15: tight bounds"),
        pytest.param(_uncounted, "needs numRecords", id="rule 15: no count"),
        pytest.param(_too_many_gone, "no more rows", id="rule 15: more than there are"),
        pytest.param(_partitioned, "other partition columns", id="partitions"),
    ],
)
def test_actions_that_make_rows_count_twice_or_wrongly_are_refused(
    writer: Writer, change: Callable[[dict[str, Any], dict[str, Any]], None], says: str
) -> None:
    path = writer.append(numbers(0, 5))
    writer.delete(path, [0])
    remove, add = json.loads(json.dumps(writer.without(writer.snapshot.files[path], [1], 5)))
    change(add["add"], remove["remove"])

    with pytest.raises(ValueError, match=says):
        writer.commit([remove, add])


def test_rule_12_no_file_is_added_beside_itself(writer: Writer) -> None:
    path = writer.append(numbers(0, 5))
    remove, add = writer.without(writer.snapshot.files[path], [1], 5)
    wrong: list[tuple[list[Action], str]] = [
        ([add], "without a remove"),
        ([remove, add, add], "two actions of one kind"),
        ([remove, remove], "two actions of one kind"),
        ([{"remove": {"path": "x"}}], "which is not in version 1"),
        ([{"cdc": {}}], "an action is one of"),
        ([{"metaData": {"id": "x"}}], "metaData of another table"),
    ]

    for what, says in wrong:
        with pytest.raises(ValueError, match=says):
            writer.commit(what)
    assert writer.snapshot.version == 1


def test_a_file_that_was_vacuumed_or_cut_meanwhile_is_not_committed(
    writer: Writer, tmp_path: Path
) -> None:
    for left, says in ((None, "is gone"), (b"x", "has 1 bytes instead of")):
        add = writer.file(numbers(0, 3))
        path = tmp_path / "t" / add["add"]["path"]
        path.unlink()
        if left is not None:
            path.write_bytes(left)
        with pytest.raises(HeldError, match=says) as held:
            writer.commit([add])
        assert held.value.reason == "missing_file"
    assert writer.snapshot.version == 0


def test_rule_23_a_vector_whose_file_is_gone_is_not_committed(writer: Writer) -> None:
    path = writer.append(numbers(0, 5))
    what = writer.without(writer.snapshot.files[path], [1], 5)
    writer.store.remove(str(deletion_vectors.file_name(what[1]["add"]["deletionVector"])))

    with pytest.raises(HeldError, match="missing_file"):
        writer.commit(what)


def test_rule_15_a_count_that_is_not_the_files_is_refused(writer: Writer) -> None:
    path = writer.append(numbers(0, 5))
    file = writer.snapshot.files[path]

    for records, cardinality in ((4, 1), (5, 6), (5, 0)):
        with pytest.raises(HeldError, match="rebuild the table"):
            actions.add_vector(file, {"cardinality": cardinality}, records=records)


def test_a_name_is_encoded_in_the_log_and_found_again(writer: Writer, tmp_path: Path) -> None:
    (tmp_path / "t" / "k=a b%2F é").mkdir()
    path = writer.append(numbers(0, 2), folder="k=a b%2F é/")

    assert path.startswith("k=a%20b%252F%20%C3%A9/part-")
    assert writer.snapshot.files[path].path.startswith("k=a b%2F é/part-")
    assert len(queried(tmp_path / "t", "select * from t")) == 2


def test_a_bucket_takes_the_same_turns() -> None:
    store = Bucket("s3://lake/t", MemoryStore())
    writer = Writer(store, create_table(store, PLAIN, clock=NOW))
    late = Writer(store, writer.snapshot)
    path = writer.append(numbers(0, 10))
    writer.delete(path, [3])

    assert load_snapshot(store) == load_snapshot(store, late.snapshot) == writer.snapshot
    with pytest.raises(LostRaceError):
        late.append(numbers(10, 12))
    with pytest.raises(HeldError, match="missing_file"):
        late.commit([actions.add_file("none", size=1, at=NOW, stats={"numRecords": 1})])


def test_what_a_killed_writer_leaves_disturbs_nobody_and_is_swept(
    writer: Writer, tmp_path: Path
) -> None:
    path = writer.append(numbers(0, 5))
    code = (
        "import os, sys\nfrom tests.pipeline.delta.tables import Writer, numbers\n"
        "from pathlib import Path\nw = Writer.open(Path(sys.argv[1]))\n"
        "os.link = lambda *_: os._exit(9)\nw.append(numbers(5, 9))"
    )
    killed = subprocess.run([sys.executable, "-c", code, str(tmp_path / "t")], check=False)
    assert killed.returncode == 9
    left = [name for name in log_files(tmp_path / "t") if name.startswith(LEFTOVER)]
    assert len(left) == 1

    writer.delete(path, [0])

    assert found(writer.store) == writer.snapshot
    assert queried(tmp_path / "t", "select count(*) n from t") == [{"n": 4}]
    assert maintenance.sweep_files(writer.store, datetime.now(UTC) - timedelta(hours=1)) == 0
    assert maintenance.sweep_files(writer.store, datetime.now(UTC) + timedelta(hours=1)) == 1
    assert not log_files(tmp_path / "t") & set(left)


def test_rule_14_sums_of_what_a_checkpoint_replaced_go(writer: Writer, tmp_path: Path) -> None:
    writer.append(numbers(0, 5))
    log = tmp_path / "t" / "_delta_log"
    for name in ("._last_checkpoint.crc", f".{1:020d}.checkpoint.parquet.crc", ".other.crc"):
        (log / name).write_bytes(b"stale")

    maintenance.write_checkpoint(writer.store)

    assert {name for name in log_files(tmp_path / "t") if name.startswith(".")} == {".other.crc"}


def test_a_checkpoint_is_due_fifteen_versions_after_the_one_before() -> None:
    then = replace(empty_snapshot("t"), version=40, checkpoint=20)

    assert [known for known in (-1, 25, 26) if maintenance.is_checkpoint_due(then, known)] == [
        -1,
        25,
    ]
    assert not maintenance.is_checkpoint_due(replace(then, checkpoint=26), -1)


def test_entries_older_than_the_retention_go_once_a_checkpoint_holds_them(
    tmp_path: Path,
) -> None:
    retention = {"delta.logRetentionDuration": "interval 1 days"}
    writer = Writer.make(tmp_path / "t", configuration=retention)
    for low in range(4):
        writer.append(numbers(low, low + 1))
    for name in log_files(tmp_path / "t"):
        old = datetime.now(UTC).timestamp() - 3 * 86_400
        os.utime(tmp_path / "t" / "_delta_log" / name, (old, old))
    maintenance.write_checkpoint(writer.store)

    maintenance.clean_log(writer.store)

    assert f"{0:020d}.json" not in log_files(tmp_path / "t")
    assert replace(found(writer.store), files={}) == replace(writer.snapshot, files={})
    assert found(writer.store).commit_id is not None
    writer.append(numbers(9, 10))
    assert DeltaTable(tmp_path / "t").version() == 5


def test_a_table_that_deltalake_cannot_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(HeldError, match="no checkpoint"):
        maintenance.write_checkpoint(Folder(str(tmp_path)))


def test_writing_loads_neither_deltalake_nor_obstore() -> None:
    code = (
        "import sys, pipeline.delta.commit, pipeline.delta.maintenance, pipeline.delta.actions\n"
        "import pipeline.delta.statistics\n"
        "sys.exit(bool({'deltalake', 'obstore', 'pyspark'} & set(sys.modules)))"
    )

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
