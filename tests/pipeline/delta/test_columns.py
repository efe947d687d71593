"""pipeline/delta/protocol.py and delta_types.py."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.delta import protocol, types
from pipeline.delta.log import Metadata
from pipeline.delta.types import to_arrow
from pipeline.errors import HeldError
from tests.pipeline.delta.tables import Writer, to_delta

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
