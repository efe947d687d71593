"""pipeline/delta/log.py, entries.py and checkpoint_reader.py."""

import json
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from pipeline.delta import actions, maintenance
from pipeline.delta.log import ActiveFile, entry_digest, load_snapshot, shape_of
from pipeline.delta.store import open_store
from pipeline.errors import HeldError
from tests.pipeline.delta.tables import NOW, Writer, found, numbers

ADD = {"path": "a", "partitionValues": {}, "size": 1, "modificationTime": 0, "dataChange": True}
VECTOR = {"storageType": "u", "pathOrInlineDv": "x" * 20, "sizeInBytes": 1, "cardinality": 1}


@pytest.fixture
def writer(tmp_path: Path) -> Writer:
    return Writer.make(tmp_path / "t")


def log(writer: Writer) -> Path:
    return Path(writer.store.uri) / "_delta_log"


def log_entry(writer: Writer, version: int) -> Path:
    return log(writer) / f"{version:020d}.json"


def foreign(writer: Writer, *lines: dict[str, Any]) -> None:
    """The next version, by a writer who looks at nothing."""
    text = "\n".join(json.dumps(line) for line in lines)
    log_entry(writer, found(writer.store).version + 1).write_text(text)


def write_commits(writer: Writer, commits: int) -> None:
    for version in range(commits):
        add = actions.add_file(f"f{version}", size=1, at=NOW, stats={"numRecords": 1})
        foreign(writer, {"commitInfo": {"txnId": str(uuid.uuid4())}}, dict(add))


def test_a_folder_without_a_log_is_no_table(tmp_path: Path) -> None:
    assert load_snapshot(open_store(str(tmp_path / "none"))) is None
    (tmp_path / "_delta_log").mkdir()
    assert load_snapshot(open_store(str(tmp_path))) is None


def test_what_a_commit_returns_is_what_the_log_says(writer: Writer) -> None:
    first = writer.append(numbers(0, 10))
    known = writer.snapshot
    writer.delete(first, [1, 2])
    writer.append(numbers(10, 20))
    writer.commit([], txn=("sluice:main", 9))

    assert found(writer.store) == writer.snapshot
    assert load_snapshot(writer.store, known) == writer.snapshot
    assert load_snapshot(writer.store, writer.snapshot) == writer.snapshot
    assert writer.snapshot.transactions == {"sluice:main": 9}


def test_a_table_of_another_writer_is_read(tmp_path: Path) -> None:
    write_deltalake(
        tmp_path, numbers(0, 10), configuration={"delta.appendOnly": "false"}, partition_by=["v"]
    )
    write_deltalake(tmp_path, numbers(10, 12), mode="append")

    snapshot = found(open_store(str(tmp_path)))

    assert (snapshot.version, snapshot.commit_id) == (1, None)
    assert snapshot.metadata.partition_columns == ("v",)
    assert snapshot.metadata.configuration == {"delta.appendOnly": "false"}
    assert sum(file.records or 0 for file in snapshot.files.values()) == 12
    assert {file.partition["v"] for file in snapshot.files.values()} == {f"v{i}" for i in range(12)}


def test_rule_10_a_hole_stops_the_reader(writer: Writer) -> None:
    write_commits(writer, 3)
    known = found(writer.store)
    write_commits(writer, 2)
    log_entry(writer, 4).unlink()

    for before in (None, known):
        with pytest.raises(HeldError, match="log_damaged") as held:
            load_snapshot(writer.store, before)
        assert log_entry(writer, 4).name in str(held.value)


def test_rule_10_only_names_of_twenty_digits_are_entries(writer: Writer) -> None:
    write_commits(writer, 1)
    for name in ("7.json", f"{'2':0>19}.json", f"{'2':0>20}.json.tmp", f"{'9':0>20}.crc"):
        (log(writer) / name).write_text("{}")
    (log(writer) / f"{0:020d}.{1:020d}.compacted.json").write_text("{}")

    assert found(writer.store).version == 1


def test_rule_10_the_newest_checkpoint_is_found_without_last_checkpoint(writer: Writer) -> None:
    write_commits(writer, 3)
    maintenance.write_checkpoint(writer.store)
    old = (log(writer) / "_last_checkpoint").read_text()
    removed = actions.remove_file(found(writer.store).files["f0"], at=NOW)
    foreign(writer, dict(removed))
    maintenance.write_checkpoint(writer.store)
    foreign(writer, {"txn": {"appId": "a", "version": 3}})
    for version in range(5):
        log_entry(writer, version).unlink()

    for told in (old, None):
        (log(writer) / "_last_checkpoint").unlink()
        if told is not None:
            (log(writer) / "_last_checkpoint").write_text(told)
        snapshot = found(writer.store)
        assert (snapshot.version, set(snapshot.files)) == (5, {"f1", "f2"})
        (log(writer) / "_last_checkpoint").touch()


def test_rule_10_a_part_that_is_missing_makes_no_checkpoint(writer: Writer) -> None:
    write_commits(writer, 3)
    rows = pq.read_table(_checkpoint(writer))
    added = rows["add"].is_valid()
    for part, half in ((1, rows.filter(pc.invert(added))), (2, rows.filter(added))):
        name = f"{3:020d}.checkpoint.{part:010d}.{2:010d}.parquet"
        pq.write_table(half, log(writer) / name)
    _checkpoint(writer).unlink()
    for version in range(3):
        log_entry(writer, version).unlink()

    assert set(found(writer.store).files) == {"f0", "f1", "f2"}
    (log(writer) / f"{3:020d}.checkpoint.{2:010d}.{2:010d}.parquet").unlink()
    with pytest.raises(HeldError, match="log_damaged"):
        found(writer.store)


def test_a_checkpoint_cut_by_a_power_failure_is_passed_over(writer: Writer) -> None:
    write_commits(writer, 3)
    whole = found(writer.store)
    _checkpoint(writer).write_bytes(b"")

    assert found(writer.store) == whole


def test_a_checkpoint_says_what_its_entries_said(writer: Writer) -> None:
    path = writer.append(numbers(0, 10))
    writer.delete(path, [3])
    writer.append(numbers(10, 20))
    writer.commit([], txn=("sluice:main", 9))
    _checkpoint(writer)
    for version in range(writer.snapshot.version):
        log_entry(writer, version).unlink()

    read = found(writer.store)

    for path, file in writer.snapshot.files.items():
        assert {**read.files[path].action, "dataChange": True} == file.action
    assert (read.transactions, read.protocol) == ({"sluice:main": 9}, writer.snapshot.protocol)
    assert read.metadata == writer.snapshot.metadata
    assert read.entry == writer.snapshot.entry


def test_rule_11_an_add_is_kept_letter_by_letter_and_decoded_to_open_the_file(
    writer: Writer,
) -> None:
    text = '{"numRecords":2,"maxValues":{"d":1.10,"n":123456789012345678901234567890}}'
    add = {**ADD, "path": "a%20b/%25é%3D.parquet", "stats": text, "tags": {"T": ""}, "odd": [1]}
    foreign(writer, {"add": add})

    (file,) = found(writer.store).files.values()

    assert file.action == add
    assert file.path == "a b/%é=.parquet"
    assert file.stats is not None
    assert str(file.stats["maxValues"]["d"]) == "1.10"
    assert file.stats["maxValues"]["n"] == 123456789012345678901234567890


@pytest.mark.parametrize(
    "stats", [None, "", "{", "[]", '{"numRecords":"x"}', '{"maxValues":{"x":NaN}}']
)
def test_statistics_that_make_no_sense_are_none(stats: str | None) -> None:
    assert ActiveFile({**ADD, "stats": stats}).records is None


@pytest.mark.parametrize("path", ["file:/other/a", "/other/a", "s3://b/a"])
def test_a_file_of_a_shallow_clone_is_not_opened(path: str) -> None:
    with pytest.raises(HeldError, match="shallow clone"):
        _ = ActiveFile({**ADD, "path": path}).path


@pytest.mark.parametrize(
    ("lines", "vector"),
    [
        pytest.param(
            [{"remove": {"path": "a"}}, {"add": {**ADD, "deletionVector": VECTOR}}],
            VECTOR,
            id="a vector comes",
        ),
        pytest.param(
            [{"add": {**ADD, "deletionVector": VECTOR}}, {"remove": {"path": "a"}}],
            VECTOR,
            id="whatever their order",
        ),
        pytest.param([{"add": {**ADD, "size": 1}}], None, id="the same file again"),
        pytest.param(
            [{"remove": {"path": "a", "deletionVector": VECTOR}}],
            None,
            id="a remove of another state",
        ),
    ],
)
def test_rule_12_a_file_is_its_path_and_its_vector(
    writer: Writer, lines: list[dict[str, Any]], vector: dict[str, Any] | None
) -> None:
    foreign(writer, {"add": ADD})
    foreign(writer, *lines)

    (file,) = found(writer.store).files.values()

    assert file.vector == vector


def test_rule_12_a_file_beside_itself_with_another_vector_stops_the_reader(writer: Writer) -> None:
    foreign(writer, {"add": ADD})
    foreign_version = found(writer.store).version + 1
    log_entry(writer, foreign_version).write_text(
        json.dumps({"add": {**ADD, "deletionVector": VECTOR}})
    )

    with pytest.raises(HeldError, match="twice, with two deletion vectors"):
        found(writer.store)


def test_a_remove_that_spells_the_path_in_another_way_is_heeded(writer: Writer) -> None:
    foreign(writer, {"add": {**ADD, "path": "dt=a%20b/x%3Dy"}})
    foreign(writer, {"remove": {"path": "dt%3Da%20b/x=y"}})

    assert found(writer.store).files == {}


def test_rule_9_a_new_protocol_and_new_properties_are_seen_at_every_reload(writer: Writer) -> None:
    known = found(writer.store)
    protocol = {**known.protocol, "writerFeatures": ["deletionVectors", "rowTracking"]}
    described = {**known.metadata.action, "configuration": {"delta.appendOnly": "true"}}
    foreign(writer, {"protocol": protocol}, {"metaData": described})

    newer = load_snapshot(writer.store, known)

    assert newer is not None
    assert newer.protocol == protocol
    assert newer.metadata.configuration == {"delta.appendOnly": "true"}


def test_rule_3_our_newest_commit_is_known_by_its_id(writer: Writer) -> None:
    writer.append(numbers(0, 1))
    ours = writer.snapshot.commit_id
    foreign(writer, {"commitInfo": {"engineInfo": "Apache-Spark/4.0.4", "txnId": "theirs"}})

    assert ours is not None
    assert found(writer.store).commit_id == ours


def test_rule_4_another_table_in_the_old_folder_is_not_taken_for_it(
    writer: Writer, tmp_path: Path
) -> None:
    write_commits(writer, 2)
    known = found(writer.store)
    log(writer).rename(tmp_path / "old")

    with pytest.raises(HeldError, match="table_replaced"):
        load_snapshot(writer.store, known)
    write_commits(Writer.make(tmp_path / "t"), 4)
    with pytest.raises(HeldError, match="table_replaced"):
        load_snapshot(writer.store, known)


def test_what_is_known_is_read_anew_once_its_entries_were_cleaned_away(writer: Writer) -> None:
    write_commits(writer, 2)
    known = found(writer.store)
    write_commits(writer, 3)
    _checkpoint(writer)
    for version in range(5):
        log_entry(writer, version).unlink()

    newer = load_snapshot(writer.store, known)

    assert newer is not None
    assert newer.version == 5


def test_an_entry_that_is_no_json_stops_the_reader(writer: Writer) -> None:
    log_entry(writer, 1).write_bytes(b'{"add": {"pa')

    with pytest.raises(HeldError, match="log_damaged"):
        found(writer.store)


@pytest.mark.thorough
def test_a_change_log_of_4000_files_loads_from_a_checkpoint_and_more(
    writer: Writer,
) -> None:
    stats = {"numRecords": 5, "minValues": {"table": "x" * 30, "batch": 4}}
    adds = [actions.add_file(f"dt=1/{i}", size=1, at=NOW, stats=stats) for i in range(4_000)]
    foreign(writer, *[dict(add) for add in adds])
    _checkpoint(writer)
    write_commits(writer, 15)

    assert len(found(writer.store).files) == 4_015


def test_the_digest_tells_one_entry_from_another() -> None:
    assert entry_digest(b"a") == entry_digest(b"a") != entry_digest(b"b")


def _checkpoint(writer: Writer) -> Path:
    DeltaTable(writer.store.uri).create_checkpoint()
    return log(writer) / f"{found(writer.store).version:020d}.checkpoint.parquet"


PART = {"name": "at", "type": "timestamp", "nullable": True, "metadata": {}}
STRUCT = {"type": "struct", "fields": [PART]}


def field(name: str, kind: Any, *, nullable: bool = True, **metadata: Any) -> dict[str, Any]:
    told = {one.replace("_", "."): value for one, value in metadata.items()}
    return {"name": name, "type": kind, "nullable": nullable, "metadata": told}


FIELDS = (field("id", "long"), field("price", "decimal(10,2)"), field("meta", STRUCT))


def metadata_action(*fields: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    text = json.dumps({"type": "struct", "fields": fields or FIELDS})
    known = {"id": "t", "schemaString": text, "partitionColumns": []}
    return {**known, "configuration": {"sluice.floors": "{}"}, **more}


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(metadata_action(name="orders", description="of the shop"), id="a name"),
        pytest.param(metadata_action(*FIELDS[::-1]), id="columns in another order"),
        pytest.param(
            metadata_action(field("id", "long", comment="the key"), *FIELDS[1:]), id="a comment"
        ),
        pytest.param(
            metadata_action(field("id", "long", nullable=False), *FIELDS[1:]), id="not null"
        ),
        pytest.param(
            metadata_action(FIELDS[0], field("price", "decimal(10, 2)"), FIELDS[2]),
            id="spelled with blanks",
        ),
        pytest.param(
            metadata_action(
                field("id", "long", delta_columnMapping_physicalName="id"), *FIELDS[1:]
            ),
            id="mapped to the name it has",
        ),
        pytest.param(
            metadata_action(configuration={"sluice.floors": "{}", "delta.appendOnly": "false"}),
            id="a setting",
        ),
    ],
)
def test_what_reads_the_same_rows_has_the_same_shape(other: Mapping[str, Any]) -> None:
    assert shape_of(other) == shape_of(metadata_action())


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(metadata_action(*FIELDS[:-1]), id="a column less"),
        pytest.param(metadata_action(*FIELDS, field("new", "string")), id="a column more"),
        pytest.param(metadata_action(field("ID", "long"), *FIELDS[1:]), id="another name"),
        pytest.param(metadata_action(field("id", "integer"), *FIELDS[1:]), id="another type"),
        pytest.param(
            metadata_action(
                field("id", "long", delta_columnMapping_physicalName="col-1"), *FIELDS[1:]
            ),
            id="another name in files, as of a column dropped and added",
        ),
        pytest.param(
            metadata_action(
                *FIELDS[:2], field("meta", {**STRUCT, "fields": [{**PART, "name": "on"}]})
            ),
            id="another name inside of a column",
        ),
        pytest.param(metadata_action(configuration={}), id="what Sluice remembers is gone"),
        pytest.param(metadata_action(id="u"), id="another table"),
        pytest.param(metadata_action(partitionColumns=["id"]), id="other partitions"),
    ],
)
def test_what_reads_other_rows_has_another_shape(other: Mapping[str, Any]) -> None:
    assert shape_of(other) != shape_of(metadata_action())
