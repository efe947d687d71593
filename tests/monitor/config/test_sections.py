"""Sections that name plug-ins are built, and each fault names its key."""

import json
import os
import subprocess
import sys
from dataclasses import make_dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from examples.json_lines import JsonLines
from monitor.config.file import config_schema, load_config, parse_config
from monitor.config.plans import CopyPlan, SectionPlace, build_section
from monitor.config.sections import has_placeholder_address, plugin_faults, with_placeholder_address
from monitor.spark.requests import Request, Verb, dump_request, load_request
from pipeline.archive import ArchiveWindow
from pipeline.build import open_table_format, open_transport
from pipeline.copies.copy import known_copies
from pipeline.copies.postgres import PostgresCopy
from pipeline.errors import ConfigError
from pipeline.invariants.changed_at_most import ChangedAtMost
from pipeline.invariants.column_loss import ColumnLoss
from pipeline.invariants.invariant import known_invariants as known
from pipeline.invariants.not_null import NotNull
from pipeline.invariants.range import Range, ValueBounds
from pipeline.invariants.referenced import ForeignKey, Referenced
from pipeline.invariants.unique import Unique
from pipeline.settings import InvariantRule, StandardRule
from pipeline.standards.hash import KeyedHash
from pipeline.transports.kafka import KafkaTransport
from pipeline.transports.per_source import TransportsBySource
from tests.monitor.config.plain import cases
from tests.monitor.config.test_config import MINIMAL, PLACE, faults, parse_text
from tests.toy.copy import FileCopy

PG = "kind: postgres, host: h, database: d, user: u"


def copies(folder: Path, section: str) -> tuple[CopyPlan, ...]:
    path = folder / "sluice.yaml"
    path.write_text(f"{LEAST}copies:\n  {section}")
    return load_config(path).copied


def test_reading_a_config_loads_nothing_that_only_rows_need() -> None:
    code = (
        "import sys, monitor.config.file; "
        "sys.exit(bool({'pandas', 'pyspark', 'psycopg', 'cryptography'} & set(sys.modules)))"
    )
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}

    done = subprocess.run([sys.executable, "-c", code], env=env, timeout=60, check=False)

    assert done.returncode == 0


@pytest.mark.parametrize(
    "value", ["2020-01-01", "2020-01-01T10:00:00Z", "2020-01-01 10:00:00.5 +02:00"]
)
def test_a_date_without_quotes_is_the_text_that_it_is(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEAST", value)
    for written in (value, f"'{value}'", f"!!timestamp '{value}'", "{env: LEAST}"):
        bounds = f"range: {{columns: {{day: {{least: {written}}}}}}}"
        kwargs = f"{{column: day, value_set: [{written}], {value}: 1}}"
        suite = f"[{{type: expect_column_values_to_be_in_set, kwargs: {kwargs}}}]"
        more = f"""
invariants: [{{tables: shop.orders, {bounds}}}]
probes: {{day_counts: {{columns: [{written}]}}, expectations: {{suite: {suite}}}}}
"""
        config = parse_text(more)
        probes = {plan.name: plan.probe for plan in config.plans}

        assert config.invariants[0].invariants == (("range", Range({"day": ValueBounds(value)})),)
        assert probes["day_counts"].columns == (value,)
        assert probes["expectations"].suite[0].kwargs["value_set"] == [value]
        assert probes["expectations"].suite[0].kwargs[value] == 1


def test_a_value_that_json_cannot_write_is_no_traceback() -> None:
    found = faults(MINIMAL + "probes: {values: {within: !!binary aGk=, ranges: !!set {a}}}\n")

    assert [one.partition(": ")[0] for one in found] == [
        "probes.values.within",
        "probes.values.ranges",
    ]


def test_each_copy_is_its_kind_with_its_fields(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PASS", "s3cret")

    one, other = copies(
        tmp_path,
        f"""
  serving: {{{PG}, tables: [shop.orders, "shop.u*"], patience: PT1M, password: {{env: PASS}}}}
  diary: {{kind: tests.toy.copy, tables: "*", path: copy.json}}
""",
    )

    minute = timedelta(minutes=1)
    assert one.copy == PostgresCopy("h", "d", "u", password="s3cret", patience=minute)
    assert [one.serves(name) for name in ("shop.orders", "shop.users", "shop.x")] == [1, 1, 0]
    assert (other.name, other.copy) == ("diary", FileCopy("copy.json"))
    assert "s3cret" not in repr(one)


@pytest.mark.parametrize(
    ("section", "fault"),
    [
        *cases("""
    [a]
      copies: must be a mapping of copy names
    a: 7
      copies.a: must be a mapping of settings
    a: {kind: postgres, host: h, database: d, user: u}
      copies.a.tables: is required
    a: {kind: postgres, host: h, database: d, user: u, tables: orders}
      copies.a.tables: 'orders' matches no table; write database.table
    a: {tables: x.y}
      copies.a.kind: is required; known: postgres
    a: {tables: x.y, kind: oracle}
      no copy 'oracle'
    a: {kind: postgres, host: h, database: d, user: u, tables: x.y, hots: h}
      copies.a.hots: unknown key
    a: {kind: postgres, tables: x.y, database: d, user: u}
      copies.a.host: is required
    a: {kind: postgres, host: h, database: d, user: u, tables: x.y, password: abc}
      copies.a.password: a secret must not be written here
    a: {kind: redis, host: 'r:6379', tables: x.y}
      copies.a.host: 'r:6379' is not a host; write a name or an address, and the port in `port`
    a: {kind: postgres, host: h, database: d, user: u, port: 65536, tables: x.y}
      copies.a.port: 65536 is not a port
    a: {kind: postgres, host: h, database: d, user: u, patience: PT0S, tables: x.y}
      copies.a.patience: must be longer than 0s
    a: {kind: redis, host: r, database: -1, tables: x.y}
      copies.a.database: -1 is negative; write 0 or more
    a: {kind: redis, host: r, prefix: ' ', tables: x.y}
      copies.a.prefix: is empty; write what all keys of the copy begin with
    a b: {kind: postgres, host: h, database: d, user: u, tables: x.y}
      'a b' is not a copy name; use at most 30 of a-z
    """),
        pytest.param(
            f"a: {{{PG}, tables: x.y}}\n  b: {{{PG}, tables: x.z}}",
            (
                "copies.b: copy a also writes to postgres://h:5432/d; use a target of its"
                " own for each copy"
            ),
            id="one place for two",
        ),
        pytest.param(
            f"0x1: {{{PG}, tables: x.y}}\n  '1': {{{PG}, tables: x.y, port: 5433}}",
            "copies.1: 2 keys are read as the copy name '1'; rename one",
            id="one name for two",
        ),
    ],
)
def test_what_is_wrong_is_told_by_its_place(tmp_path: Path, section: str, fault: str) -> None:
    with pytest.raises(ConfigError) as told:
        copies(tmp_path, section)

    assert fault in str(told.value)


REDIS = "kind: redis, tables: x.y, prefix: s, host"


@pytest.mark.parametrize(
    ("host", "other", "place"),
    [
        ("Cache.example", "cache.example", "redis://cache.example:6379/0/s"),
        ("cache.example.", "cache.example", "redis://cache.example:6379/0/s"),
        ("localhost", "127.0.0.1", "redis://127.0.0.1:6379/0/s"),
        ("127.0.0.1", "'::1'", "redis://::1:6379/0/s"),
        ("'::ffff:10.0.0.1'", "10.0.0.1", "redis://10.0.0.1:6379/0/s"),
    ],
)
def test_two_spellings_of_a_host_are_one_place(
    tmp_path: Path, host: str, other: str, place: str
) -> None:
    with pytest.raises(ConfigError) as told:
        copies(tmp_path, f"\n  a: {{{REDIS}: {host}}}\n  b: {{{REDIS}: {other}}}")

    called = place.replace(other.strip("'"), host.strip("'"))
    why = f"copy a also writes to {place}, which it calls {called}; use a target of its own"
    assert f"copies.b: {why}" in str(told.value)


def test_copies_of_one_host_may_have_places_of_their_own(tmp_path: Path) -> None:
    found = copies(
        tmp_path,
        f"""
  a: {{{REDIS}: s}}
  b: {{{REDIS}: S, port: 6380}}
  c: {{{REDIS}: s, database: 1}}
  d: {{{REDIS}: s2}}
""",
    )

    assert [one.copy.place for one in found][:2] == ["redis://s:6379/0/s", "redis://S:6380/0/s"]


def test_a_route_may_name_a_copy_that_there_is(tmp_path: Path) -> None:
    section = f"a: {{{PG}, tables: x.y}}\nalerts: {{routes: [{{tables: 'copy:%s', owner: me}}]}}"

    assert copies(tmp_path, section % "a")
    with pytest.raises(ConfigError, match="no 'copy:b'"):
        copies(tmp_path, section % "b")


def test_the_schema_for_editors_knows_every_kind() -> None:
    told = json.dumps(config_schema()["properties"]["copies"])

    assert all(json.dumps(kind) in told for kind in known_copies())
    assert '"env"' in told


LEAST = """
lake: lake
kafka: k:9092
sources:
  - {name: shop, host: h, port: 3306, user: u, prefix: shop,
     collector: {url: "http://c:8083", connector: shop}}
"""


def demanded(folder: Path, section: str) -> tuple[InvariantRule, ...]:
    path = folder / "sluice.yaml"
    path.write_text(f"{LEAST}invariants:\n  {section}")
    return load_config(path).settings.invariants


def test_every_invariant_is_told_as_its_fields(tmp_path: Path) -> None:
    rules = demanded(
        tmp_path,
        """
  - tables: shop.orders
    not_null: {columns: [email]}
    range: {columns: {total: {least: 0, most: 9.5}, day: {least: "2020-01-01"}}}
    unique: {sets: [[email], [a, b]]}
    changed_at_most: {share: 0.2}
    column_loss: {share: 0.9, rows: 100}
    referenced: {keys: [{columns: [user_id], table: shop.users, to: [id]}]}
  - {tables: "shop.*", not_null: {columns: [id]}}
""",
    )

    first, second = rules
    assert (first.tables, second.tables) == ("shop.orders", "shop.*")
    assert dict(first.invariants) == {
        "not_null": NotNull(("email",)),
        "range": Range({"total": ValueBounds(0, 9.5), "day": ValueBounds("2020-01-01")}),
        "unique": Unique((("email",), ("a", "b"))),
        "changed_at_most": ChangedAtMost(0.2),
        "column_loss": ColumnLoss(0.9, 100),
        "referenced": Referenced((ForeignKey(("user_id",), "shop.users", ("id",)),)),
    }
    assert second.invariants == (("not_null", NotNull(("id",))),)


def test_all_that_matches_a_table_is_demanded_of_it(tmp_path: Path) -> None:
    path = tmp_path / "sluice.yaml"
    each = "{{tables: '{0}', not_null: {{columns: [{1}]}}}}"
    parts = ", ".join(each.format(*one) for one in (("shop.*", "a"), ("shop.x", "b"), ("u.*", "c")))
    path.write_text(f"{LEAST}invariants: [{parts}]")
    settings = load_config(path).settings

    assert [one.columns for _, one in settings.demanded("shop.x")] == [("a",), ("b",)]
    assert settings.demanded("v.x") == ()


@pytest.mark.parametrize(
    ("section", "fault"),
    cases("""
    not_null: {}
      invariants: must be a list
    - {not_null: {columns: [a]}}
      invariants[0].tables: is required
    - {tables: shop.x}
      invariants[0]: has no invariant; known:
    - {tables: shop.x, notnull: {}}
      no invariant 'notnull'
    - {tables: shop.x, not_null: {column: [a]}}
      invariants[0].not_null.column:
    - {tables: shop.x, not_null: [a]}
      invariants[0].not_null: must be a map
    - {tables: orders, not_null: {columns: [a]}}
      invariants[0].tables: 'orders' matches no table
    - {tables: shop.x, range: {columns: {a: {least: 2, most: 1}}}}
      no value lies between 2 and 1
    - {tables: shop.x, referenced: {keys: [{columns: [a], table: u, to: [id]}]}}
      invariants[0].referenced: 'u' is not a table name; write database.table
    - {tables: shop.x, referenced: {keys: [{columns: [a], table: u.*, to: [id]}]}}
      invariants[0].referenced: 'u.*' is not a table name; write database.table
    - {tables: shop.x, referenced: {keys: []}}
      invariants[0].referenced.keys: names none
    - {tables: shop.x, referenced: {keys: [{columns: [a, b], table: u.u, to: [id]}]}}
      columns and to must be lists of as many columns
    - {tables: shop.x, changed_at_most: {share: 20}}
      write 0.2
    """),
)
def test_what_is_wrong_is_told_with_its_place(tmp_path: Path, section: str, fault: str) -> None:
    with pytest.raises(ConfigError) as told:
        demanded(tmp_path, section)

    assert fault in str(told.value)


def test_editors_know_every_invariant() -> None:
    section: dict[str, Any] = config_schema()["properties"]["invariants"]

    properties = section["items"]["properties"]

    assert set(properties) == {"tables", *known()}
    assert set(properties["column_loss"]["properties"]) == {
        "share", "rows", "columns", "placeholders",
    }  # fmt: skip


SECRET = "0123456789abcdef"
HASH = "hash: {columns: [phone], secret: {env: HASH_KEY}}"
GOOD = f"{{tables: shop.orders, key: [id], clear: [id, '*_at'], {HASH}}}"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HASH_KEY", SECRET)
    return tmp_path / "sluice.yaml"


def _written(file: Path, *parts: str) -> Path:
    lines = "".join(f"  - {part}\n" for part in parts)
    file.write_text(f"{LEAST}standards:\n{lines}", encoding="utf-8")
    return file


def test_it_reaches_the_pipeline_and_its_process_whole(file: Path) -> None:
    settings = load_config(_written(file, GOOD)).settings

    standards = (("hash", KeyedHash(("phone",), SECRET)),)
    wanted = StandardRule("shop.orders", ("id",), standards, ("id", "*_at"))
    assert settings.standards == (wanted,)
    there = load_request(dump_request(Request(0, Verb.OPEN, settings=settings)))
    assert there.settings == settings
    assert SECRET not in repr(settings)


@pytest.mark.parametrize(
    ("part", "fault"),
    [
        *cases("""
    {tables: t.t, key: [id], hash: {columns: [a], secret: open}}
      standards[0].hash.secret: a secret must not be written here
    {tables: t.t, key: [id], hash: {columns: [a], secret: {env: NOT_SET}}}
      standards[0].hash.secret: environment variable NOT_SET is not set
    {tables: users, key: [id], clear: '*', mask: {columns: [name]}}
      standards[0].tables: 'users' matches no table; write database.table
    {tables: t.t, mask: {columns: [a]}}
      standards[0].key: is required; list the key's columns
    {key: [id], mask: {columns: [a]}}
      standards[0].tables: is required
    {tables: t.t, key: [id]}
      standards[0]: has no standard; known:
    {tables: t.t, key: [id], hide: {}}
      standards[0].hide: no standard 'hide' in pipeline/standards; known: cipher, hash
    {tables: t.t, key: [id], mask: {columns: [name]}}
      standards[0].clear: is required; list the columns that land unchanged
    {tables: t.t, key: [id], mask: {columns: [name]}, clear: {id: true}}
      standards[0].clear: is not a list of names; list the columns
    {tables: t.t, key: [id], mask: {columns: []}}
      standards[0].mask.columns: is empty; list the columns to change
    {tables: t.t, key: [id], mapping: {columns: [a], file: ids.csv}}
      standards[0].mapping.file: ids.csv must be a whole path
    {tables: t.t, key: [id], clear: '*', mapping: {columns: [a], file: /not/ids.csv}}
      standards[0].mapping.file: mapping /not/ids.csv: No such file or directory
    {tables: t.t, key: [id], mask: 3}
      standards[0].mask: must be a mapping
    """),
        pytest.param(
            "{tables: t.t, key: [id], mask: {columns: [id]}}",
            (
                "standards[0].mask.columns: id is in the key, and this standard may make"
                " two keys equal; use another standard"
            ),
            id="a_masked_key",
        ),
        pytest.param(
            "{tables: t.t, key: [id], mapping: {columns: [id], file: /ids.csv, unmapped: 'null'}}",
            (
                "standards[0].mapping.columns: id is in the key, and this standard may"
                " make two keys equal; use another standard"
            ),
            id="a_key_that_may_become_null",
        ),
    ],
)
def test_a_mistake_is_told_by_its_place(file: Path, part: str, fault: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load_config(_written(file, part))

    assert fault in str(refused.value)


@pytest.mark.parametrize(
    ("part", "clear"),
    [
        ("mask: {columns: [name]}, clear: '*'", ("*",)),
        ("mask: {columns: [name]}, clear: [id, '*']", ("*",)),
        ("mask: {columns: [name]}, clear: []", ()),
        ("mapping: {columns: [city], file: FILE, hides: false}", ("*",)),
    ],
    ids=["all", "all_among_others", "none", "nothing_is_hidden"],
)
def test_what_lands_as_it_is_is_said_where_something_is_hidden(
    file: Path, part: str, clear: tuple[str, ...]
) -> None:
    ids = file.with_name("ids.csv")
    ids.write_text("source,standard\n")
    part = part.replace("FILE", str(ids))
    (rule,) = load_config(_written(file, f"{{tables: t.t, key: [id], {part}}}")).settings.standards

    assert rule.clear == clear


def test_what_is_no_list_is_refused(file: Path) -> None:
    file.write_text(f"{LEAST}standards: {GOOD}\n", encoding="utf-8")

    with pytest.raises(ConfigError, match="standards: must be a list"):
        load_config(file)


def test_editors_know_its_fields() -> None:
    part = config_schema()["properties"]["standards"]["items"]

    assert {"tables", "key", "clear", "hash", "mask", "mapping", "cipher"} <= part[
        "properties"
    ].keys()
    assert "oneOf" in part["properties"]["hash"]["properties"]["secret"]


FILES = """
lake: lake
store: store.db
sources:
  - name: logs
    prefix: logs
    transport: files
    {more}
    collector: {{kind: {kind}, url: /data/logs, connector: logs, options: {{ledger: /x.db}}}}
tables: [{{shards: 'logs[.]clicks', table: logs.clicks}}]
"""


def write_config(folder: Path, kind: str, more: str = "tls: false") -> Path:
    path = folder / "sluice.yaml"
    path.write_text(FILES.format(kind=kind, more=more))
    return path


@pytest.mark.parametrize("more", ["tls: false", "port: 1", "host: localhost"])
def test_a_source_of_files_needs_no_address(tmp_path: Path, more: str) -> None:
    (source,) = load_config(write_config(tmp_path, "files", more)).sources

    assert has_placeholder_address(source)


@pytest.mark.parametrize("kind", ["connect", "{env: KIND}", "none_of_this_name"])
def test_every_other_kind_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setenv("KIND", "connect")

    with pytest.raises(ConfigError, match=r"sources\[0\]\.host: is required"):
        load_config(write_config(tmp_path, kind))


def test_what_is_no_collector_is_told_by_whoever_reads_it() -> None:
    assert with_placeholder_address({"collector": "files"}) == {"collector": "files"}
    assert with_placeholder_address({}) == {}


def test_editors_do_not_ask_for_it() -> None:
    assert config_schema()["$defs"]["SourceSettings"]["required"] == ["name", "collector", "prefix"]


def test_windows_are_read_with_their_moments() -> None:
    window = '{since: "2026-03-28T01:00:00Z", until: "2026-03-28T05:00:00+01:00", column: day'
    config = parse_text(f"archive: [{{tables: shop.*, windows: [{window}, before: '2025'}}]}}]\n")

    (rule,) = config.settings.archive
    (one,) = rule.windows
    assert isinstance(one, ArchiveWindow)
    assert (rule.tables, one.column, one.before) == ("shop.*", "day", "2025")
    assert one.until - one.since == timedelta(hours=3)


@pytest.mark.parametrize(
    ("window", "told"),
    cases("""
    {since: "2026-03-28T05:00:00Z", until: "2026-03-28T01:00:00Z"}
      is not after
    {since: "2026-03-28T05:00:00", until: "2026-03-28T06:00:00"}
      since has no offset; write 2026-03-28T05:00:00Z for UTC
    {since: "2026-03-28", until: "2026-03-28T06:00:00Z"}
      since: is not an instant; write it with its offset, such as 2026-03-28T01:00:00Z
    """),
)
def test_a_window_that_holds_nothing_is_told_by_its_place(window: str, told: str) -> None:
    (line,) = faults(MINIMAL + f"archive: [{{tables: shop.*, windows: [{window}]}}]\n")

    assert line.startswith("archive[0].windows[0]")
    assert told in line


WINDOW = '{since: "2026-03-28T01:00:00Z", until: "2026-03-28T05:00:00Z"}'


@pytest.mark.parametrize(
    ("rule", "told"),
    cases("""
    {tables: orders, windows: [{since: "2026-03-28T01:00:00Z", until: "2026-03-28T05:00:00Z"}]}
      archive[0].tables: 'orders' matches no table; write database.table
    {tables: shop.*, markers: [{table: runs}]}
      archive[0].markers[0].table: 'runs' is not a table name; write database.table
    {tables: shop.*, markers: [{table: ops.runs, column: who}]}
      archive[0].markers[0]: `column` needs `values`; add it
    {tables: shop.*, markers: [{table: ops.runs, values: [me]}]}
      archive[0].markers[0]: `values` needs `column`; add it
    {tables: shop.*}
      archive[0]: has neither windows nor markers; add one
    """),
)
def test_a_rule_that_would_keep_nothing_is_told_by_its_place(rule: str, told: str) -> None:
    (line,) = faults(f"{MINIMAL}archive: [{rule}]\n")

    assert line.startswith(told)


def test_a_source_names_only_plug_ins_that_can_be_built() -> None:
    source = "    kind: mysqll\n    format: avro\n    format_options: {a: 1}\n"
    text = MINIMAL.replace("{url:", "{kind: debezium, url:") + source

    assert [line.partition(";")[0] for line in faults(text, plugin_faults)] == [
        "sources[0].collector.kind: no collector 'debezium' in pipeline/collectors",
        "sources[0].kind: no source 'mysqll' in pipeline/sources",
        "sources[0].format: no format 'avro' in pipeline/formats",
    ]


@pytest.mark.parametrize(
    ("old", "new", "line"),
    cases(r"""
    prefix: shop => prefix: shop\n    format_options: {registry: x}
      sources[0].format_options.registry: unknown key; known: unavailable
    connector: shop} => connector: shop, options: {pace: 3}}
      sources[0].collector.options.pace: unknown key; known: settings, timeout
    http://127.0.0.1:8083 => 127.0.0.1:8083
      sources[0].collector.url: '127.0.0.1:8083' is not an address; write http://host:port
    http://127.0.0.1:8083 => http://
      sources[0].collector.url: 'http://' is not an address; write http://host:port
    """),
)
def test_what_a_plug_in_refuses_is_told_in_its_place(old: str, new: str, line: str) -> None:
    assert faults(MINIMAL.replace(old, new), plugin_faults) == [line]


def test_what_cannot_be_built_is_told_together_with_what_is_wrong_otherwise() -> None:
    text = MINIMAL.replace("prefix: shop", "prefix: shop\n    format: avro") + "time_zone: UTC\n"

    first, second = faults(text.replace("9092", "many"), plugin_faults)

    assert first.startswith("kafka: ")
    assert second.startswith("sources[0].format: ")


def test_who_only_wants_to_read_the_file_is_not_kept_waiting_for_plug_ins(tmp_path: Path) -> None:
    place = tmp_path / "sluice.yaml"
    place.write_text(MINIMAL.replace("prefix: shop", "prefix: shop\n    format: avro"))

    assert load_config(place).sources[0].format == "avro"


def test_mirrors_are_delta_where_nothing_is_said() -> None:
    found = open_table_format(parse_config(MINIMAL, PLACE, plugin_faults).settings)

    assert type(found).__module__ == "pipeline.tables.delta.table_format"


@pytest.mark.parametrize(
    ("more", "line"),
    cases(r"""
    table_format: iceberg
      table_format: no table_format 'iceberg' in
    table_format_options: {spark: 1}
      table_format_options.spark: unknown key; known: none
    table_format: examples.parquet_versions\ntable_format_options: {compression: 3}
      table_format_options.compression:
    """),
)
def test_a_table_format_that_cannot_be_built_is_refused(more: str, line: str) -> None:
    assert faults(f"{MINIMAL}{more}\n", plugin_faults)[0].startswith(line)


def test_another_transport_needs_no_kafka() -> None:
    text = MINIMAL.replace("kafka: 127.0.0.1:9092\n", "transport: examples.json_lines\n")

    config = parse_config(text + "transport_options: {folder: /spool}\n", PLACE)

    assert config.settings.kafka_fields == {}
    assert open_transport(config.settings) == JsonLines("/spool")


@pytest.mark.parametrize(
    ("kafka", "line"),
    [
        *cases(r"""
    kafka: k:1\ntransport: pulsar
      transport: no transport 'pulsar' in
    transport: examples.json_lines
      transport_options.folder: is required
    kafka: k:1\ntransport_options: {timeout: soon}
      transport_options.timeout: soon is not a duration; write it as 30s
    kafka: k:1\ntransport: examples.json_lines\ntransport_options: {folder: x}
      kafka: transport examples.json_lines has no use for it; remove it
    kafka_security: {protocol: SSL}\ntransport: examples.json_lines\ntransport_options: {folder: x}
      kafka_security: has no effect without `kafka`; remove it, or set `kafka`
    kafka: k:1\ntransport_options: {bootstrp: 'x:1'}
      transport_options.bootstrp: unknown key; known: timeout
    kafka: k:1\ntransport_options: {bootstrap: 'x:1'}
      transport_options.bootstrap: unknown key; known: timeout
    """),
        pytest.param("", "kafka: is required; write host:port", id="no kafka"),
    ],
)
def test_a_transport_that_cannot_be_built_is_refused(kafka: str, line: str) -> None:
    text = MINIMAL.replace("kafka: 127.0.0.1:9092", kafka)

    assert faults(text, plugin_faults)[0].startswith(line)


OWN = """    transport: examples.json_lines
    transport_options: {folder: /spool}
"""


def test_a_source_may_have_a_transport_of_its_own_beside_kafka() -> None:
    second = MINIMAL.partition("sources:\n")[2].replace("shop", "logs")

    config = parse_config(f"{MINIMAL}{second}{OWN}", PLACE, plugin_faults)

    made = open_transport(config.settings)
    assert isinstance(made, TransportsBySource)
    assert [one.transport for one in made.own] == [JsonLines("/spool")]
    assert [made.own[0].holds(one) for one in ("logs", "logs.d.t", "shop")] == [True, True, False]
    assert isinstance(made.usual, KafkaTransport)


def test_no_kafka_is_needed_where_every_source_has_its_own() -> None:
    config = parse_config(
        MINIMAL.replace("kafka: 127.0.0.1:9092\n", "") + OWN, PLACE, plugin_faults
    )

    made = open_transport(config.settings)

    assert isinstance(made, TransportsBySource)
    assert made.usual is None


def test_a_transport_of_its_own_that_cannot_be_built_is_told_at_its_source() -> None:
    with pytest.raises(ConfigError) as told:
        parse_config(MINIMAL + "    transport: examples.json_lines\n", PLACE, plugin_faults)

    at = f"{PLACE}:5: sources[0].transport_options.folder: is required"
    assert str(told.value).startswith(at)


@pytest.mark.parametrize(
    ("section", "runs"),
    [
        pytest.param("{}", False, id="not named"),
        pytest.param("{values: {}}", True, id="named"),
        pytest.param("{values: {enabled: false}}", False, id="switched off"),
    ],
)
def test_the_comparison_of_values_runs_only_where_it_is_named(
    tmp_path: Path, section: str, *, runs: bool
) -> None:
    path = tmp_path / "sluice.yaml"
    path.write_text(f"{LEAST}probes: {section}\n")

    names = {plan.name for plan in load_config(path).plans}

    assert ("values" in names) is runs
    assert "range_counts" in names


def test_a_plug_in_whose_field_has_no_type_is_a_fault_of_its_section() -> None:
    kind = make_dataclass("Odd", [("least", [int])])

    value, faults = build_section(kind, {"least": 1}, SectionPlace("probes.odd", Path()))

    assert value is None
    (fault,) = faults
    assert fault.startswith("probes.odd: Odd has a field whose type is no setting: ")


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        pytest.param(
            "within: 1s, every: 20s",
            "within: 1s is shorter than 7 times `every` (20s); increase it to 140s",
            id="less than a cycle",
        ),
        pytest.param(
            "every: 1d, within: 1h",
            "within: 1h is shorter than 7 times `every` (1d); increase it to 7d",
            id="a slow pace",
        ),
        pytest.param(
            "within: 30s, rotating: 2",
            "within: 30s is shorter than 2 times `every` (20s); increase it to 40s",
            id="the usual pace",
        ),
        pytest.param(
            "overrides: [{tables: shop.a, within: 1m}]",
            "overrides[0].within: 1m is shorter than 7 times `every` (20s); increase it to 140s",
            id="some tables",
        ),
        pytest.param("every: 1d", None, id="a day, and the usual promise"),
        pytest.param("within: 140s", None, id="seven cycles"),
        pytest.param("within: 1s, ranges: 0", None, id="no lap"),
    ],
)
def test_a_lap_of_values_is_no_shorter_than_its_cycles_allow(
    settings: str, told: str | None
) -> None:
    found = faults(MINIMAL + f"probes: {{values: {{{settings}}}}}\n")

    assert found == ([f"probes.values.{told}, or decrease `every`"] if told else [])
