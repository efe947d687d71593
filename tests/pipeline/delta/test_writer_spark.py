"""pipeline/lake's writer as Spark sees it: what one writes, the other reads, and writes on."""

import re
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from pipeline.delta import actions, deletion_vectors, maintenance, protocol, statistics
from pipeline.delta.log import entry_name, load_snapshot
from pipeline.errors import HeldError
from tests.pipeline.delta.tables import Writer, found, log_files, numbers, queried
from tests.pipeline.delta.test_statistics import EXTREMES

pytestmark = pytest.mark.spark

TYPES = {
    "i": "bigint",
    "unsigned": "decimal(20,0)",
    "d": "decimal(38,10)",
    "day": "date",
    "at": "timestamp",
}
FEATURES = ["deletionVectors", "v2Checkpoint"]
META = pa.struct([("order", pa.struct([("epoch", pa.int64()), ("pos", pa.int64())]))])
ODD = pa.schema(
    [
        pa.field("Order.Id", pa.int64(), nullable=False),
        ("a b", pa.string()),
        ("x,;{}()=y", pa.decimal128(38, 10)),
        ("tab\tnew\nline", pa.timestamp("us")),
        ("at", pa.timestamp("us", "UTC")),
        ("_sluice", META),
    ]
)


def odd_rows(low: int, high: int) -> pa.Table:
    rows = [
        {
            "Order.Id": i,
            "a b": f"text {i}",
            "x,;{}()=y": Decimal(i) / 4,
            "tab\tnew\nline": datetime(2026, 1, 1, 0, 0, i % 60),  # noqa: DTZ001
            "at": datetime(2026, 1, 1, 0, 0, i % 60, 999_999, tzinfo=UTC),
            "_sluice": {"order": {"epoch": 1, "pos": i}},
        }
        for i in range(low, high)
    ]
    return pa.Table.from_pylist(rows, schema=ODD)


def sparks(spark: SparkSession, folder: Path, where: str = "true") -> list[Any]:
    rows = spark.read.format("delta").load(str(folder)).where(where).toArrow().to_pylist()
    return sorted(rows, key=lambda row: str(next(iter(row.values()))))


def test_both_readers_see_odd_column_names_and_rows_that_went_by_vectors(
    spark: SparkSession, tmp_path: Path
) -> None:
    writer = Writer.make(tmp_path / "t", ODD)
    first = writer.append(odd_rows(0, 100))
    writer.append(odd_rows(100, 150))
    writer.delete(first, [0, 50, 99])
    writer.delete(first, [7])
    gone = {0, 50, 99, 7}
    wanted = [row for row in odd_rows(0, 150).to_pylist() if row["Order.Id"] not in gone]

    by_spark = spark.read.format("delta").load(str(tmp_path / "t"))
    by_deltalake = queried(tmp_path / "t", 'select * from t order by "Order.Id"')

    assert by_spark.count() == 146  # from the log's statistics and cardinalities alone
    assert by_spark.orderBy("`Order.Id`").toArrow().to_pylist() == wanted
    assert by_deltalake == wanted
    assert sparks(spark, tmp_path / "t", "`a b` = 'text 60'") == [wanted[57]]
    assert sparks(spark, tmp_path / "t", "_sluice.order.pos = 120") == [wanted[116]]


def test_rule_17_no_value_is_passed_over_by_spark(spark: SparkSession, tmp_path: Path) -> None:
    schema = pa.schema([(name, kind) for name, (kind, _) in EXTREMES.items()])
    writer = Writer.make(tmp_path / "t", schema)
    for number in range(3):  # a file each, so that a wrong bound hides its values
        row = {name: values[number] for name, (_, values) in EXTREMES.items()}
        writer.append(pa.Table.from_pylist([row], schema=schema))
    spark.read.format("delta").load(str(tmp_path / "t")).createOrReplaceTempView("extremes")

    for name, (_, values) in EXTREMES.items():
        texts = [format(one, "f") if isinstance(one, Decimal) else str(one) for one in values]
        typed = ", ".join(f"CAST('{text}' AS {TYPES.get(name, 'string')})" for text in texts)
        seen = spark.sql(f"SELECT i FROM extremes WHERE {name} IN ({typed})").collect()
        assert {row["i"] for row in seen} == set(EXTREMES["i"][1]), name


def test_history_of_our_commits_can_be_described(spark: SparkSession, tmp_path: Path) -> None:
    writer = Writer.make(tmp_path / "t")
    add = writer.file(numbers(0, 3))
    writer.commit(
        [add], note={"sluice": {"after": 0}}, txn=("app", 7), metrics={"numOutputRows": 3}
    )

    newest = spark.sql(f"DESCRIBE HISTORY delta.`{tmp_path}/t`").first()

    assert newest is not None
    assert newest["operationMetrics"] == {"numOutputRows": "3"}
    assert newest["userMetadata"] == '{"sluice":{"after":0}}'
    assert (newest["readVersion"], newest["isBlindAppend"]) == (0, False)


def test_spark_writes_on_in_our_table_and_we_in_what_it_made_of_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = tmp_path / "t"
    writer = Writer.make(folder)
    path = writer.append(numbers(0, 1_000))
    spark.sql(f"DELETE FROM delta.`{folder}` WHERE id % 100 = 7")

    snapshot = load_snapshot(writer.store, writer.snapshot)

    assert snapshot is not None
    file = snapshot.files[path]
    assert file.vector is not None
    assert list(deletion_vectors.read_vector(writer.store, file.vector)) == list(
        range(7, 1_000, 100)
    )
    protocol.require_writable(snapshot)
    writer.snapshot = snapshot
    writer.delete(path, range(0, 1_000, 2))
    wanted = [i for i in range(1, 1_000, 2) if i % 100 != 7]
    assert [row["id"] for row in queried(folder, "select id from t order by id")] == wanted
    seen = spark.read.format("delta").load(str(folder)).orderBy("id").toArrow()["id"]
    assert seen.to_pylist() == wanted


def test_a_vacuum_of_spark_leaves_our_vectors_in_use(spark: SparkSession, tmp_path: Path) -> None:
    writer = Writer.make(tmp_path / "t")
    path = writer.append(numbers(0, 10))
    writer.delete(path, [1])
    check = "spark.databricks.delta.retentionDurationCheck.enabled"

    spark.conf.set(check, "false")
    try:
        spark.sql(f"VACUUM delta.`{tmp_path}/t` RETAIN 0 HOURS")
    finally:
        spark.conf.set(check, "true")

    assert {tmp_path / "t" / name for name in writer.snapshot.vector_files} == set(
        (tmp_path / "t" / "_v").iterdir()
    )
    assert len(sparks(spark, tmp_path / "t")) == 9


def test_a_table_partitioned_by_date_text_and_number_is_read_by_its_partitions(
    spark: SparkSession, tmp_path: Path
) -> None:
    schema = pa.schema(
        [("id", pa.int64()), ("dt", pa.date32()), ("k", pa.string()), ("n", "int32")]
    )
    writer = Writer.make(tmp_path / "t", schema, partition_columns=("dt", "k", "n"))
    ids = [pa.table({"id": pa.array([i], pa.int64())}) for i in range(3)]
    writer.append(
        ids[0], partition={"dt": "2026-11-01", "k": "a b/%", "n": "-5"}, folder="dt=2026-11-01/"
    )
    writer.append(ids[1], partition={"dt": "2026-11-02", "k": None, "n": "7"}, folder="é %25/")
    writer.append(ids[2], partition={"dt": None, "k": "ä", "n": None})

    one = sparks(spark, tmp_path / "t", "dt = DATE'2026-11-01' AND k = 'a b/%' AND n = -5")
    other = queried(tmp_path / "t", "select id from t where dt = DATE '2026-11-02' and k is null")

    assert one == [{"id": 0, "dt": date(2026, 11, 1), "k": "a b/%", "n": -5}]
    assert other == [{"id": 1}]
    assert len(sparks(spark, tmp_path / "t")) == 3


def test_a_name_in_mapped_partitions_is_the_one_in_files(
    spark: SparkSession, tmp_path: Path
) -> None:
    schema = pa.schema([("a b", pa.int64()), ("the day", pa.date32())])
    writer = Writer.make(tmp_path / "t", schema, partition_columns=("the day",))
    (name,) = protocol.partition_names(writer.snapshot.metadata)
    writer.append(pa.table({"a b": [1]}), partition={name: "2026-11-01"})

    wanted = [{"a b": 1, "the day": date(2026, 11, 1)}]

    assert sparks(spark, tmp_path / "t", "`the day` = DATE'2026-11-01'") == wanted
    assert queried(tmp_path / "t", "select * from t") == wanted


def test_a_checkpoint_of_deltalake_is_read_by_spark_and_no_stale_sum_stays(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = tmp_path / "t"
    writer = Writer.make(folder, configuration={"delta.checkpointInterval": "2"})
    path = writer.append(numbers(0, 10))
    spark.sql(f"INSERT INTO delta.`{folder}` VALUES (100, 'spark')")  # leaves its sum
    assert "._last_checkpoint.crc" in log_files(folder)
    writer.snapshot = found(writer.store)
    writer.delete(path, [3])

    maintenance.write_checkpoint(writer.store)
    writer.append(numbers(20, 25))

    assert [name for name in log_files(folder) if name.startswith("._last")] == []
    assert found(writer.store).files == writer.snapshot.files
    spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # type: ignore[union-attr]
    assert len(sparks(spark, folder)) == 15


@pytest.mark.parametrize(
    ("properties", "confs", "made"),
    [
        pytest.param({}, {}, r"\d{20}\.checkpoint\.parquet", id="classic"),
        pytest.param(
            {},
            {"spark.databricks.delta.checkpoint.partSize": "2"},
            r"\d{20}\.checkpoint\.0000000001\.0000000002\.parquet",
            id="in parts",
        ),
        pytest.param({"delta.checkpointPolicy": "v2"}, {}, "_sidecars", id="v2 with sidecars"),
        pytest.param(
            {
                "delta.checkpoint.writeStatsAsJson": "false",
                "delta.checkpoint.writeStatsAsStruct": "true",
            },
            {},
            r"\d{20}\.checkpoint\.parquet",
            id="statistics parsed only",
        ),
    ],
)
def test_every_kind_of_sparks_checkpoints_is_read_without_the_entries_below(
    spark: SparkSession,
    tmp_path: Path,
    properties: dict[str, str],
    confs: dict[str, str],
    made: str,
) -> None:
    writer = Writer.make(tmp_path / "t", configuration=properties)
    if "delta.checkpointPolicy" in properties:
        listed = {"readerFeatures": FEATURES, "writerFeatures": [*FEATURES, "invariants"]}
        writer.commit([{"protocol": {**writer.snapshot.protocol, **listed}}])
    paths = [writer.append(numbers(low, low + 10)) for low in (0, 10, 20)]
    writer.delete(paths[1], [5])
    writer.commit([], txn=("app", 3))
    checkpoint_by(spark, tmp_path / "t", confs)
    for version in range(writer.snapshot.version):
        writer.store.remove(entry_name(version))
    writer.store.remove("_delta_log/_last_checkpoint")

    read = found(writer.store)

    assert any(re.fullmatch(made, name) for name in log_files(tmp_path / "t"))
    assert {
        path: (file.size, file.vector, file.records, (file.stats or {})["minValues"])
        for path, file in read.files.items()
    } == {
        path: (file.size, file.vector, file.records, (file.stats or {})["minValues"])
        for path, file in writer.snapshot.files.items()
    }
    assert replace(read, files={}) == replace(writer.snapshot, files={}, commit_id=read.commit_id)


def checkpoint_by(spark: SparkSession, folder: Path, confs: dict[str, str]) -> None:
    for name, value in confs.items():
        spark.conf.set(name, value)
    jvm: Any = spark._jvm
    jvm.SparkSession.setActiveSession(spark._jsparkSession)  # Delta asks this one for its settings
    deltas: Any = jvm.org.apache.spark.sql.delta
    deltas.DeltaLog.forTable(spark._jsparkSession, str(folder)).checkpoint()
    for name in confs:
        spark.conf.unset(name)


def test_columns_and_properties_that_we_add_are_seen_by_both(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = tmp_path / "t"
    writer = Writer.make(folder)
    writer.append(numbers(0, 2))
    new = pa.schema([("a b", pa.timestamp("us")), ("plain", pa.decimal128(20, 0))])
    altered = actions.alter_metadata(writer.snapshot, new, {})
    altered_too = actions.with_properties(writer.snapshot, {"delta.checkpointInterval": "20"})

    writer.commit([*altered], operation="ADD COLUMNS")
    at = datetime(2026, 1, 1)  # noqa: DTZ001
    more = [{"id": 5, "v": "x", "a b": at, "plain": Decimal(2**64)}]
    writer.append(pa.Table.from_pylist(more, schema=protocol.list_columns(writer.snapshot)))

    assert altered_too != ()
    wanted = [{"id": i, "v": f"v{i}", "a b": None, "plain": None} for i in (0, 1)] + more
    assert sparks(spark, folder) == wanted
    assert queried(folder, "select * from t order by id") == wanted


def test_files_of_legacy_spark_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.sql("SELECT DATE'1400-01-01' d, TIMESTAMP'1600-01-01 00:00:00' t")
    for mode, kind in (("LEGACY", "TIMESTAMP_MICROS"), ("CORRECTED", "INT96")):
        spark.conf.set("spark.sql.parquet.datetimeRebaseModeInWrite", mode)
        spark.conf.set("spark.sql.parquet.outputTimestampType", kind)
        frame.write.parquet(str(tmp_path / kind))
        spark.conf.unset("spark.sql.parquet.datetimeRebaseModeInWrite")
        spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
        (file,) = (tmp_path / kind).glob("*.parquet")

        with pytest.raises(HeldError, match=r"legacy calendar|column t holds INT96"):
            statistics.footer_fits(pq.read_metadata(file), file.name)
