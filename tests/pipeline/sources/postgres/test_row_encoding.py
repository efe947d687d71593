"""A value that a query returned is written as the log would send it."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from pipeline.sources.postgres.row_encoding import ReadColumn, read_columns, to_wire_texts
from pipeline.sources.postgres.values import parse_array
from pipeline.sources.row_reader import encode_rows


def read_column(kind: str, modifier: int = -1, **other: Any) -> ReadColumn:
    row = {
        "name": "c",
        "type": kind,
        "made": "b",
        "own": kind.upper(),
        "modifier": modifier,
        "domain": False,
        "filled": False,
        "default": None,
        "ordered": True,
        "element": kind.removeprefix("_") if kind.startswith("_") else None,
        "element_made": "b",
    }
    (made,) = read_columns([{**row, **other}])
    return made


def images(columns: Sequence[ReadColumn], raw: list[tuple[str | None, ...]]) -> list[str]:
    arrays = [pa.array(values, pa.string()) for values in raw]
    texts = [to_wire_texts(one, raw) for one, raw in zip(columns, arrays, strict=True)]
    rows = encode_rows([one.name for one in columns], texts)
    return [str(text) for text in rows.to_pylist()]


@pytest.mark.parametrize(
    ("kind", "modifier", "server", "sent"),
    [
        ("bool", -1, "t", True),
        ("int8", -1, "9007199254740993", 9007199254740993),
        ("numeric", -1, "NaN", "NAN"),
        ("numeric", -1, "-Infinity", "NEGATIVE_INFINITY"),
        ("numeric", -1, "0.10", "0.10"),
        ("float4", -1, "1e-45", 1e-45),
        ("float8", -1, "NaN", "NaN"),
        ("float8", -1, "-Infinity", "-Infinity"),
        ("bpchar", 9, "ü😀 x ", "ü😀 x "),
        ("char", -1, "z", "z"),
        ("bytea", -1, r"\x00ff80", "AP+A"),
        ("bytea", -1, r"\x", ""),
        ("date", -1, "0001-01-01", -719162),
        ("date", -1, "9999-12-31", 2932896),
        ("date", -1, "infinity", -2147472692),
        ("time", -1, "24:00:00", 86400000000),
        ("time", -1, "00:00:00.001", 1000),
        ("timetz", -1, "00:00:00+14", "10:00:00Z"),
        ("timetz", -1, "00:00:00.120001-05:30", "05:30:00.120001Z"),
        ("timetz", -1, "12:34:56.7+00", "12:34:56.7Z"),
        ("timestamp", -1, "1969-12-31 23:59:59.999999", -1),
        ("timestamp", 3, "0001-01-01 00:00:00.001", -62135596799999),
        ("timestamp", -1, "0044-03-15 00:00:00 BC", -63517824000000000),
        ("timestamp", -1, "10000-01-01 00:00:00", 253402300800000000),
        ("timestamp", -1, "294276-12-31 23:59:59", 9223372036854775807),
        ("timestamp", -1, "infinity", 9223372036825200000),
        ("timestamp", -1, "-infinity", -9223372036832400000),
        ("timestamptz", -1, "2024-02-29 10:00:00.1+00", "2024-02-29T10:00:00.100000Z"),
        ("timestamptz", 0, "1970-01-01 03:29:59+00", "1970-01-01T03:29:59Z"),
        ("timestamptz", -1, "0044-03-15 00:00:00+00 BC", "-0043-03-15T00:00:00.000000Z"),
        ("timestamptz", -1, "10000-01-01 00:00:00+00", "+10000-01-01T00:00:00.000000Z"),
        ("timestamptz", -1, "-infinity", "-infinity"),
        ("interval", -1, "P-1Y-2M3DT-4H-5M-6.789S", "P-1Y-2M3DT-4H-5M-6.789S"),
        ("interval", -1, "PT-0.5S", "P0Y0M0DT0H0M-0.5S"),
        ("interval", -1, "PT1000000H1.000001S", "P0Y0M0DT1000000H0M1.000001S"),
        ("bit", 1, "1", True),
        ("bit", 12, "100000000001", "AQg="),
        ("varbit", 20, "00000000000000000001", "AQ=="),
        ("varbit", 20, "", ""),
        ("money", -1, "-92233720368547758.08", "-92233720368547758.08"),
        ("jsonb", -1, '{"a": 1}', '{"a": 1}'),
        (
            "point",
            -1,
            "(1.5,-2)",
            {"x": 1.5, "y": -2.0, "wkb": "AQEAAAAAAAAAAAD4PwAAAAAAAADA", "srid": None},
        ),
        ("box", -1, "(1,1),(0,0)", "KDEuMCwxLjApLCgwLjAsMC4wKQ=="),
        ("pg_lsn", -1, "16/B374D848", "MTYvQjM3NEQ4NDg="),
        ("pair", -1, '(2,"y,z")', "KDIsInkseiIp"),
        ("_int4", -1, "{1,NULL,-3}", [1, None, -3]),
        ("_int4", -1, "{{1,2},{3,4}}", [None, None]),
        ("_int4", -1, "[0:1]={1,2}", [1, 2]),
        ("_text", -1, '{"a,b",NULL,"q\\"",é}', ["a,b", None, 'q"', "é"]),
        ("_text", -1, '{"","NULL",null}', ["", "NULL", None]),
        ("_bpchar", 7, '{"a  ","bc "}', ["a  ", "bc "]),
        ("_timestamp", -1, '{"2024-02-29 12:00:00.123456"}', [1709208000123456]),
        ("_bytea", -1, '{"\\\\x00ff"}', ["AP8="]),
        ("_float4", -1, "{0.1,1e+10,NaN}", [0.1, 1e10, "NaN"]),
        ("_bit", 3, "{101}", None),
    ],
)
def test_a_value_is_as_the_log_sends_it(kind: str, modifier: int, server: str, sent: Any) -> None:
    (text, nothing) = images([read_column(kind, modifier)], [(server, None)])

    assert json.loads(text) == {"c": sent}
    assert json.loads(nothing) == {"c": None}


def test_a_time_is_in_the_unit_that_rows_of_the_log_have_told() -> None:
    """Wrong by a thousand else: the connector's own default sends time(3) in milliseconds."""
    one = read_column("time", 3)
    (text,) = images(
        [replace(one, column=replace(one.column, sent="time.Time"))], [("00:00:00.5",)]
    )

    assert json.loads(text) == {"c": 500}


def test_a_map_is_sent_as_json() -> None:
    text = r'"a"=>"1", "b"=>NULL, "q\"x"=>"é\\"'

    (row,) = images([read_column("hstore")], [(text,)])

    assert json.loads(json.loads(row)["c"]) == {"a": "1", "b": None, 'q"x': "é\\"}


def test_an_array_of_a_domain_is_sent_as_bytes_and_one_of_intervals_not_at_all() -> None:
    (row,) = images([read_column("_posint", element_made="d")], [("{1,2}",)])

    assert json.loads(row) == {"c": ["MQ==", "Mg=="]}
    row_of_intervals = {"name": "c", "element": "interval"}
    assert read_columns([row_of_intervals]) == ()


def test_elements_of_more_than_one_dimension_are_lists() -> None:
    assert parse_array('{{a,"b}"},{NULL,d}}') == [["a", "b}"], [None, "d"]]


def test_names_of_columns_may_hold_anything() -> None:
    row = {**dict.fromkeys(("made", "own"), "b"), "type": "int4", "modifier": -1, "domain": False}
    odd = {**row, "filled": True, "default": None, "ordered": True, "element": None}
    (found,) = images(read_columns([{**odd, "name": 'o"%s'}]), [("1",)])

    assert json.loads(found) == {'o"%s': 1}
