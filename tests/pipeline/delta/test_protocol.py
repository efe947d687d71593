"""pipeline/delta/protocol.py and delta_types.py."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.delta import actions as alterations
from pipeline.delta import protocol, statistics, types
from pipeline.delta.log import Metadata, Snapshot
from pipeline.delta.types import to_arrow
from pipeline.errors import HeldError
from tests.pipeline.delta.tables import PLAIN, Writer, numbers, queried, to_delta

VECTORS = {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}


@pytest.fixture
def table(tmp_path: Path) -> Snapshot:
    return Writer.make(tmp_path / "t").snapshot


def listing(table: Snapshot, *, reader: list[str], writer: list[str]) -> Snapshot:
    told = {"minReaderVersion": 3, "minWriterVersion": 7}
    return replace(
        table, protocol={**told, "readerFeatures": reader, "writerFeatures": [*reader, *writer]}
    )


def having(table: Snapshot, **action: Any) -> Snapshot:
    return replace(table, metadata=Metadata.of({**table.metadata.action, **action}))


def with_field(table: Snapshot, kind: object = "long", **metadata: object) -> Snapshot:
    schema = json.loads(table.metadata.schema_string)
    schema["fields"][1] |= {"type": kind, "metadata": metadata}
    return having(table, schemaString=json.dumps(schema))


def test_a_table_of_ours_is_ours(table: Snapshot) -> None:
    protocol.require_writable(table)
    assert protocol.list_columns(table) == PLAIN
    assert protocol.writes_vectors(table)


@pytest.mark.parametrize(
    "feature",
    [
        *("rowTracking", "inCommitTimestamp", "catalogManaged", "catalogOwned-preview"),
        *("coordinatedCommits-preview", "icebergCompatV1", "icebergCompatV2", "icebergCompatV3"),
        *("redirectReaderWriter-preview", "clustering", "domainMetadata", "typeWidening"),
        *("typeWidening-preview", "variantType", "allowColumnDefaults", "collations", "a new one"),
        *("icebergWriterCompatV1", "checkpointProtection", "materializePartitionColumns"),
    ],
)
def test_rule_7_every_feature_that_is_not_known_is_refused_by_name(
    table: Snapshot, feature: str
) -> None:
    for reader, writer in ([feature], []), ([], [feature]):
        with pytest.raises(HeldError, match=f"table feature {feature}") as held:
            protocol.require_writable(
                listing(table, reader=["deletionVectors", *reader], writer=writer)
            )
        assert held.value.reason == "protocol"


@pytest.mark.parametrize(
    "feature",
    ["appendOnly", "invariants", "checkConstraints", "changeDataFeed", "identityColumns"],
)
def test_rule_7_old_features_are_harmless_while_nobody_uses_them(
    table: Snapshot, feature: str
) -> None:
    protocol.require_writable(listing(table, reader=["deletionVectors"], writer=[feature]))


@pytest.mark.parametrize("version", range(2, 7))
def test_rule_7_tables_of_the_old_protocols_are_refused_by_use_only(
    table: Snapshot, version: int
) -> None:
    old = replace(table, protocol={"minReaderVersion": 1, "minWriterVersion": version})

    protocol.require_writable(old)
    with pytest.raises(HeldError, match=r"delta\.appendOnly"):
        protocol.require_writable(having(old, configuration={"delta.appendOnly": "true"}))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("delta.appendOnly", "true"),
        ("delta.enableChangeDataFeed", "TRUE"),
        ("delta.enableRowTracking", "true"),
        ("delta.enableInCommitTimestamps", "true"),
        ("delta.enableIcebergCompatV2", "true"),
        ("delta.universalFormat.enabledFormats", "iceberg"),
        ("delta.constraints.positive", "id > 0"),
        ("delta.coordinatedCommits.commitCoordinator-preview", "dynamodb"),
        ("delta.redirectReaderWriter-preview", "{}"),
        ("delta.columnMapping.mode", "id"),
        pytest.param("delta.setTransactionRetentionDuration", "interval 1 days", id="rule 8"),
    ],
)
def test_rule_7_a_property_in_use_is_refused_by_name(
    table: Snapshot, name: str, value: str
) -> None:
    with pytest.raises(HeldError, match=name):
        protocol.require_writable(having(table, configuration={name: value}))


def test_a_switch_that_is_off_is_no_reason(table: Snapshot) -> None:
    off = {"delta.appendOnly": "false", "delta.enableChangeDataFeed": "False"}

    protocol.require_writable(having(table, configuration=off))


@pytest.mark.parametrize(
    "name",
    [
        *("delta.invariants", "delta.generationExpression", "delta.identity.start"),
        *("delta.typeChanges", "CURRENT_DEFAULT"),
    ],
)
def test_rule_7_a_column_with_a_rule_of_its_own_is_refused_by_name(
    table: Snapshot, name: str
) -> None:
    with pytest.raises(HeldError, match=rf"column v .*{name}"):
        protocol.require_writable(with_field(table, **{name: "x"}))
    inner = {"name": "in", "nullable": True, "type": "long", "metadata": {name: "x"}}
    nested = {"type": "struct", "fields": [inner]}
    with pytest.raises(HeldError, match=rf"column in .*{name}"):
        protocol.require_writable(with_field(table, {"type": "array", "elementType": nested}))


@pytest.mark.parametrize("kind", ["variant", "interval year", {"type": "udt"}])
def test_a_type_that_is_not_known_is_refused(table: Snapshot, kind: object) -> None:
    with pytest.raises(HeldError, match="a column has type"):
        protocol.require_writable(with_field(table, kind))


def test_a_newer_protocol_and_partitions_of_other_types_are_refused(table: Snapshot) -> None:
    with pytest.raises(HeldError, match="protocol is reader 4, writer 8; "):
        protocol.require_writable(
            replace(table, protocol={"minReaderVersion": 4, "minWriterVersion": 8})
        )
    with pytest.raises(HeldError, match="partitioned by v, a double"):
        protocol.require_writable(having(with_field(table, "double"), partitionColumns=["v"]))


def test_columns_mapped_without_a_name_in_files_are_refused(table: Snapshot) -> None:
    with pytest.raises(HeldError, match="has no name in files"):
        protocol.require_writable(having(table, configuration={"delta.columnMapping.mode": "name"}))


@pytest.mark.parametrize(
    ("features", "property_", "heeded"),
    [
        pytest.param(VECTORS, "true", True, id="feature and property"),
        pytest.param(VECTORS, "false", False, id="property off"),
        pytest.param({**VECTORS, "readerFeatures": []}, "true", False, id="writers only"),
        pytest.param({}, "true", False, id="no feature"),
    ],
)
def test_rule_6_vectors_are_heeded_with_feature_and_property_only(
    table: Snapshot, features: dict[str, Any], property_: str, heeded: bool
) -> None:
    told = having(table, configuration={"delta.enableDeletionVectors": property_})

    assert protocol.writes_vectors(replace(told, protocol=features)) is heeded


NTZ = pa.timestamp("us")


@pytest.mark.parametrize(
    ("schema", "configuration", "features"),
    [
        pytest.param(PLAIN, {}, ["deletionVectors"], id="plain"),
        pytest.param(
            pa.schema([("a", pa.struct([("b", pa.list_(NTZ))]))]),
            {},
            ["deletionVectors", "timestampNtz"],
            id="a clock's time, deep inside",
        ),
        pytest.param(
            pa.schema([("a b", pa.int64())]),
            {},
            ["columnMapping", "deletionVectors"],
            id="odd name",
        ),
        pytest.param(PLAIN, {"delta.enableDeletionVectors": "false"}, None, id="no vectors"),
    ],
)
def test_a_table_lists_what_its_columns_and_properties_need(
    schema: pa.Schema, configuration: dict[str, str], features: list[str] | None, tmp_path: Path
) -> None:
    made = Writer.make(tmp_path / "t", schema, configuration=configuration).snapshot

    assert made.protocol.get("readerFeatures") == features
    assert set(features or ()) <= set(made.protocol.get("writerFeatures", ()))


def test_columns_come_with_data_in_one_commit(tmp_path: Path) -> None:
    writer = Writer.make(tmp_path / "t")
    writer.append(numbers(0, 1))
    new = pa.schema([("n", pa.int64()), ("a b", NTZ)])

    writer.commit(alterations.alter_metadata(writer.snapshot, new, {}))

    assert protocol.list_columns(writer.snapshot).names == ["id", "v", "n", "a b"]
    assert {"columnMapping", "timestampNtz"} <= set(writer.snapshot.protocol["readerFeatures"])
    assert alterations.alter_metadata(writer.snapshot, new, {}) == ()
    ids = {
        field["name"]: field["metadata"]["delta.columnMapping.id"]
        for field in json.loads(writer.snapshot.metadata.schema_string)["fields"]
    }
    assert ids == {"id": 1, "v": 2, "n": 3, "a b": 4}
    assert writer.snapshot.metadata.configuration["delta.columnMapping.maxColumnId"] == "4"
    assert queried(tmp_path / "t", "select * from t") == [
        {"id": 0, "v": "v0", "n": None, "a b": None}
    ]


@pytest.mark.parametrize(
    ("new", "says"),
    [
        pytest.param(pa.field("n", pa.int64(), nullable=False), "lack n", id="not null"),
        pytest.param(pa.field("ID", pa.int64()), "id and ID differ in case only", id="case"),
    ],
)
def test_a_column_that_does_not_fit_the_rows_is_not_added(
    table: Snapshot, new: pa.Field, says: str
) -> None:
    with pytest.raises(HeldError, match=says):
        alterations.alter_metadata(table, pa.schema([new]), {})


def test_a_property_is_set_once_and_an_old_protocol_keeps_what_it_stood_for(
    table: Snapshot,
) -> None:
    old = replace(table, protocol={"minReaderVersion": 1, "minWriterVersion": 4})
    old = having(old, configuration={"a": "b"})

    actions = alterations.with_properties(old, {"delta.enableDeletionVectors": "true"})

    (upgrade, described) = actions
    assert upgrade["protocol"]["readerFeatures"] == ["deletionVectors"]
    assert upgrade["protocol"]["writerFeatures"] == [
        *("appendOnly", "changeDataFeed", "checkConstraints", "deletionVectors"),
        *("generatedColumns", "invariants"),
    ]
    assert described["metaData"]["configuration"] == {
        "a": "b",
        "delta.enableDeletionVectors": "true",
    }
    assert alterations.with_properties(old, {"a": "b"}) == ()


def test_rule_21_columns_that_spark_pads_are_told(table: Snapshot) -> None:
    mark = "__CHAR_VARCHAR_TYPE_STRING"

    assert protocol.padded_columns(with_field(table, "string", **{mark: "char(9)"})) == {"v"}
    assert (
        protocol.padded_columns(with_field(table, "string", **{mark: "varchar(9)"})) == frozenset()
    )


def test_rule_21_a_file_with_int96_or_the_legacy_calendar_is_refused(tmp_path: Path) -> None:
    times = pa.table({"t": pa.array([0], pa.timestamp("ns")), "n": [1]})
    pq.write_table(times, tmp_path / "int96", use_deprecated_int96_timestamps=True)
    key = {"org.apache.spark.legacyDateTime": ""}
    pq.write_table(times.replace_schema_metadata(key), tmp_path / "legacy")
    pq.write_table(times, tmp_path / "good")

    statistics.footer_fits(pq.read_metadata(tmp_path / "good"), "good")
    with pytest.raises(HeldError, match="int96: column t holds INT96 times"):
        statistics.footer_fits(pq.read_metadata(tmp_path / "int96"), "int96")
    with pytest.raises(HeldError, match="legacy calendar"):
        statistics.footer_fits(pq.read_metadata(tmp_path / "legacy"), "legacy")


EVERY = pa.schema(
    [
        pa.field("s", pa.string(), nullable=False),
        *[(f"i{n}", kind) for n, kind in enumerate((pa.int8(), pa.int16(), pa.int32(), "int64"))],
        ("f", pa.float32()),
        ("d", pa.float64()),
        ("b", pa.bool_()),
        ("x", pa.binary()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("clock", pa.timestamp("us")),
        ("dec", pa.decimal128(38, 10)),
        ("st", pa.struct([pa.field("in", pa.list_(pa.int64()), nullable=False)])),
        ("m", pa.map_(pa.string(), pa.field("value", pa.int64(), nullable=False))),
        ("l", pa.list_(pa.field("element", pa.string(), nullable=False))),
    ]
)


def metadata(schema: pa.Schema, **configuration: str) -> Metadata:
    text, told = protocol.describe_table(
        schema, {k.replace("_", "."): v for k, v in configuration.items()}
    )
    return Metadata.of({"id": "x", "schemaString": text, "configuration": told})


def test_every_type_survives_deltas_json() -> None:
    assert to_arrow(to_delta(EVERY)) == EVERY


def test_types_that_arrow_spells_in_several_ways_are_one_for_delta() -> None:
    kinds = [pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())]
    schema = pa.schema([(f"c{i}", kind) for i, kind in enumerate(kinds)])

    assert {one["type"] for one in json.loads(to_delta(schema))["fields"]} == {"string"}


@pytest.mark.parametrize(
    "kind", [pa.timestamp("ns"), pa.uint64(), pa.time64("us"), pa.decimal256(50, 2)]
)
def test_rule_22_a_type_that_delta_does_not_have_is_refused(kind: pa.DataType) -> None:
    with pytest.raises(HeldError, match="Delta has no column type"):
        to_delta(pa.schema([("c", kind)]))


def test_columns_that_differ_in_case_only_are_refused() -> None:
    with pytest.raises(HeldError, match="Id and ID differ in case only"):
        metadata(pa.schema([("Id", pa.int64()), ("ID", pa.int64())]))


@pytest.mark.parametrize("name", list(" ,;{}()\n\t="))
def test_f58_a_name_that_parquet_readers_do_not_take_is_mapped(name: str) -> None:
    inner = pa.schema([("a", pa.struct([(f"x{name}y", pa.int64())]))])

    assert protocol.mapping_needed(pa.schema([(f"x{name}y", pa.int64())]))
    assert protocol.mapping_needed(inner)
    assert not protocol.mapping_needed(pa.schema([("Order.Id`'\"é-/", pa.int64())]))


def test_rule_22_a_file_has_the_tables_names_types_and_ids(tmp_path: Path) -> None:
    nested = pa.struct([("order", pa.struct([("e f", pa.int64())]))])
    schema = pa.schema(
        [pa.field("id", pa.int32(), nullable=False), ("a b", pa.string()), ("s", nested)]
    )
    writer = Writer.make(tmp_path / "t", schema)
    rows = pa.table(
        {
            "s": pa.array([{"order": {"e f": 1}}, None], nested),
            "a b": pa.array(["x", None], pa.string_view()),
            "id": pa.array([1, 2], pa.int64()),
        }
    )

    path = writer.append(rows)
    file = pq.ParquetFile(tmp_path / "t" / path)
    written = file.schema_arrow

    fields = protocol.fields_in_files(writer.snapshot.metadata)
    names = {one["name"]: types.physical_name(one) for one in fields}
    assert written.names == [names["id"], names["a b"], names["s"]] == ["id", names["a b"], "s"]
    assert names["a b"].startswith("col-")
    assert written.field("id").type == pa.int32()
    assert not written.field("id").nullable
    assert [written.field(i).metadata for i in range(3)] == [
        {b"PARQUET:field_id": b"1"},
        {b"PARQUET:field_id": b"2"},
        {b"PARQUET:field_id": b"3"},
    ]
    order = written.field("s").type.field("order")
    assert order.metadata == {b"PARQUET:field_id": b"4"}
    assert order.type.field(0).metadata == {b"PARQUET:field_id": b"5"}
    assert order.type.field(0).name.startswith("col-")
    assert file.read()["s"].to_pylist() == [{"order": {order.type.field(0).name: 1}}, None]


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        pytest.param({"id": [1]}, r"\['v'\]", id="a column is missing"),
        pytest.param({"id": [1], "v": ["x"], "w": [1]}, r"\['w'\]", id="one too many"),
        pytest.param({"ID": [1], "v": ["x"]}, r"\['ID', 'id'\]", id="another case"),
        pytest.param({"id": [None], "v": ["x"]}, "id is NOT NULL", id="a NULL"),
        pytest.param({"id": ["x"], "v": ["x"]}, "id does not fit", id="no number"),
        pytest.param({"id": [2**40], "v": ["x"]}, "id does not fit", id="a number too large"),
    ],
)
def test_rule_22_rows_that_do_not_fit_the_table_are_not_written(
    rows: dict[str, list[Any]], says: str
) -> None:
    table = metadata(pa.schema([pa.field("id", pa.int32(), nullable=False), ("v", pa.string())]))

    with pytest.raises(HeldError, match=says):
        protocol.fit_rows(pa.table(rows), table)


def test_partition_columns_are_not_in_files() -> None:
    schema = pa.schema([("id", pa.int64()), ("dt", pa.date32())])
    action = {"id": "x", "schemaString": to_delta(schema), "partitionColumns": ["dt"]}

    assert protocol.file_schema(Metadata.of(action)).names == ["id"]
    assert protocol.partition_names(Metadata.of(action)) == {"dt"}
