import json
import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.delta import maintenance, statistics
from pipeline.delta.log import Metadata, load_snapshot
from tests.pipeline.delta.tables import Writer, queried, to_delta

DEC = pa.decimal128(38, 10)
INSTANT = pa.timestamp("us", "UTC")
CLOCK = pa.timestamp("us")
NULL = "NULL"


def metadata(schema: pa.Schema, configuration: dict[str, str] | None = None) -> Metadata:
    action = {"id": "x", "schemaString": to_delta(schema), "configuration": configuration or {}}
    return Metadata.of(action)


def statistics_of(values: list[Any], kind: pa.DataType) -> dict[str, Any]:
    """Statistics of one column ``c``, as they stand in the log."""
    table = pa.table({"c": pa.array(values, kind)})
    told: dict[str, Any] = json.loads(
        statistics.encode_statistics(statistics.collect_statistics(table, metadata(table.schema))),
        parse_float=Decimal,
    )
    return told


def bounds(values: list[Any], kind: pa.DataType) -> tuple[Any, Any]:
    told = statistics_of(values, kind)
    return told["minValues"].get("c"), told["maxValues"].get("c")


@pytest.mark.parametrize(
    ("values", "kind", "wanted"),
    [
        pytest.param([5, None, -(2**63)], pa.int64(), (-(2**63), 5), id="integers"),
        pytest.param(["b", "a", None], pa.string(), ("a", "b"), id="texts"),
        pytest.param(["é", "z", "😀"], pa.string(), ("z", "😀"), id="texts by their bytes"),
        pytest.param(["x" * 40], pa.string(), ("x" * 32, "x" * 32 + "\U0010ffff"), id="long text"),
        pytest.param(["\U0010ffff" * 33], pa.string(), ("\U0010ffff" * 32, None), id="last text"),
        pytest.param(["x"], pa.dictionary(pa.int32(), pa.string()), ("x", "x"), id="dictionary"),
        pytest.param([date(1, 1, 1)], pa.date32(), ("0001-01-01", "0001-01-01"), id="dates"),
        pytest.param([1.5, -0.5], pa.float64(), (Decimal("-0.5"), Decimal("1.5")), id="floats"),
        pytest.param([True, False], pa.bool_(), (None, None), id="rule 19: yes and no"),
        pytest.param([b"a"], pa.binary(), (None, None), id="rule 19: bytes"),
        pytest.param([["a"]], pa.list_(pa.string()), (None, None), id="lists"),
        pytest.param([1.0, math.nan], pa.float64(), (None, None), id="rule 19: not a number"),
        pytest.param([1.0, -math.inf], pa.float32(), (None, None), id="rule 19: infinity"),
        pytest.param([None], pa.int64(), (None, None), id="nothing but NULL"),
        pytest.param([None], INSTANT, (None, None), id="no instant but NULL"),
        pytest.param([], pa.string(), (None, None), id="no row"),
        pytest.param([], pa.float64(), (None, None), id="no row of floats"),
    ],
)
def test_bounds_are_told_where_they_can_be(
    values: list[Any], kind: pa.DataType, wanted: tuple[Any, Any]
) -> None:
    assert bounds(values, kind) == wanted


def test_rule_19_decimals_are_exact_numbers() -> None:
    low, high = Decimal("-9999999999999999999999999999.9999999999"), Decimal(0)
    table = pa.table({"c": pa.array([low, high], DEC)})

    text = statistics.encode_statistics(
        statistics.collect_statistics(table, metadata(table.schema))
    )

    assert '"minValues":{"c":-9999999999999999999999999999.9999999999}' in text
    assert '"maxValues":{"c":0.0000000000}' in text


@pytest.mark.parametrize(
    ("at", "wanted"),
    [
        pytest.param(
            datetime(2026, 1, 1, 0, 0, 0, 999_999, UTC),
            ("2026-01-01T00:00:00.999Z", "2026-01-01T00:00:01.000Z"),
            id="cut below, one more above",
        ),
        pytest.param(
            datetime(1969, 12, 31, 23, 59, 59, 999_500, UTC),
            ("1969-12-31T23:59:59.999Z", "1970-01-01T00:00:00.000Z"),
            id="before 1970 as well",
        ),
        pytest.param(
            datetime(1, 1, 1, tzinfo=UTC),
            ("0001-01-01T00:00:00.000Z", "0001-01-01T00:00:00.001Z"),
            id="the first",
        ),
        pytest.param(
            datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC),
            ("9999-12-31T23:59:59.999Z", None),
            id="the last has no bound",
        ),
    ],
)
def test_rule_18_instants_are_cut_to_milliseconds_and_never_past_a_value(
    at: datetime, wanted: tuple[str | None, str | None]
) -> None:
    local = [None if one is None else one.removesuffix("Z") for one in wanted]

    assert bounds([at], INSTANT) == wanted
    assert bounds([at.replace(tzinfo=None)], CLOCK) == tuple(local)


@given(st.lists(st.text(max_size=40), min_size=1))
def test_bounds_of_texts_enclose_every_text(texts: list[str]) -> None:
    low, high = bounds(texts, pa.string())

    for one in texts:
        assert low.encode() <= one.encode()
        assert high is None or one.encode() <= high.encode()


@given(st.lists(st.datetimes(timezones=st.just(UTC)), min_size=1))
def test_bounds_of_instants_enclose_every_instant(times: list[datetime]) -> None:
    low, high = bounds(times, INSTANT)

    assert datetime.fromisoformat(low) <= min(times)
    assert datetime.fromisoformat(low) + timedelta(milliseconds=1) > min(times)
    assert high is None or datetime.fromisoformat(high) > max(times)


def test_nulls_are_counted_inside_of_structs_that_are_null_too() -> None:
    kind = pa.struct([("order", pa.struct([("pos", pa.int64())])), ("op", pa.string())])
    rows = [{"order": {"pos": 3}, "op": None}, {"order": None, "op": "u"}, None]

    told = statistics_of(rows, kind)

    assert told["numRecords"] == 3
    assert told["nullCount"] == {"c": {"order": {"pos": 2}, "op": 2}}
    assert told["minValues"] == {"c": {"order": {"pos": 3}, "op": "u"}}
    assert told["tightBounds"] is True


WIDE = pa.schema(
    [("a", "int64"), ("s", pa.struct([("x", pa.int64()), ("y", pa.int64())])), ("b`.c", "int64")]
)


@pytest.mark.parametrize(
    ("configuration", "wanted"),
    [
        pytest.param({}, {"a": 0, "s": {"x": 0, "y": 0}, "b`.c": 0}, id="32 by default"),
        pytest.param({"NumIndexedCols": "2"}, {"a": 0, "s": {"x": 0}}, id="leaves are counted"),
        pytest.param({"NumIndexedCols": "0"}, {}, id="none"),
        pytest.param(
            {"NumIndexedCols": "-1"}, {"a": 0, "s": {"x": 0, "y": 0}, "b`.c": 0}, id="all"
        ),
        pytest.param({"StatsColumns": "a, s.y"}, {"a": 0, "s": {"y": 0}}, id="named"),
        pytest.param({"StatsColumns": "s"}, {"s": {"x": 0, "y": 0}}, id="all of a struct"),
        pytest.param({"StatsColumns": "`b``.c`,`s`.`x`"}, {"s": {"x": 0}, "b`.c": 0}, id="quoted"),
        pytest.param(
            {"StatsColumns": "a", "NumIndexedCols": "0"}, {"a": 0}, id="names before numbers"
        ),
    ],
)
def test_only_columns_that_the_properties_name_have_statistics(
    configuration: dict[str, str], wanted: dict[str, Any]
) -> None:
    told = {f"delta.dataSkipping{name}": value for name, value in configuration.items()}
    row = [{"a": 1, "s": {"x": 1, "y": 1}, "b`.c": 1}]

    stats = statistics.collect_statistics(
        pa.Table.from_pylist(row, schema=WIDE), metadata(WIDE, told)
    )

    assert stats["nullCount"] == wanted


def test_33_columns_leave_the_last_without_statistics() -> None:
    schema = pa.schema([(f"c{i}", pa.int64()) for i in range(33)])
    table = schema.empty_table()

    assert (
        list(statistics.collect_statistics(table, metadata(schema))["nullCount"])
        == schema.names[:32]
    )


def test_rule_15_bounds_beside_a_vector_are_not_tight_and_rows_are_those_of_the_file() -> None:
    told = statistics.loosen_statistics({"numRecords": 5, "minValues": {"c": 1}}, 5)

    assert told == {"numRecords": 5, "minValues": {"c": 1}, "tightBounds": False}


EXTREMES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "i": (pa.int64(), [-(2**63), 2**63 - 1, 0]),
    "unsigned": (pa.decimal128(20, 0), [Decimal(2**64 - 1), Decimal(2**63), Decimal(0)]),
    "d": (
        DEC,
        [Decimal("9999999999999999999999999999.0000000001"), Decimal("-0.0000000001"), Decimal(7)],
    ),
    "t": (pa.string(), ["x" * 33 + "é", "", "😀" * 40]),
    "day": (pa.date32(), [date(1, 1, 1), date(9999, 12, 31), date(1582, 10, 4)]),
    "at": (
        INSTANT,
        [
            datetime(1, 1, 1, tzinfo=UTC),
            datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC),
            datetime(2026, 1, 1, 0, 0, 0, 999_999, UTC),
        ],
    ),
}


@pytest.mark.parametrize("column", EXTREMES)
def test_rule_17_no_value_is_passed_over_by_deltalake(column: str, tmp_path: Path) -> None:
    kind, values = EXTREMES[column]
    writer = Writer.make(tmp_path / "t", pa.schema([("c", kind)]))
    for value in values:  # a file each, so that a wrong bound hides its value
        writer.append(pa.table({"c": pa.array([value], kind)}))

    maintenance.write_checkpoint(writer.store)  # deltalake's own copy of the bounds

    for value in values:
        text = format(value, "f") if isinstance(value, Decimal) else value
        wanted = f"arrow_cast('{text}', '{_datafusion(kind)}')"
        found = queried(tmp_path / "t", f"select c from t where c = {wanted}")
        assert [row["c"] for row in found] == [value]
    read = load_snapshot(writer.store)
    assert read is not None
    assert [file.stats for file in read.files.values()] == [
        writer.snapshot.files[path].stats for path in read.files
    ]


def _datafusion(kind: pa.DataType) -> str:
    if pa.types.is_decimal(kind):
        return f"Decimal128({kind.precision}, {kind.scale})"
    if pa.types.is_timestamp(kind):
        return 'Timestamp(Microsecond, Some("UTC"))'
    return {pa.int64(): "Int64", pa.string(): "Utf8", pa.date32(): "Date32"}[kind]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20)
@given(st.lists(st.decimals(-(10**28) + 1, 10**28 - 1, places=10), min_size=1, max_size=5))
def test_decimals_in_the_log_are_the_numbers_of_the_file(values: list[Decimal]) -> None:
    assert bounds(values, DEC) == (min(values), max(values))
