"""What the section `copies` says, and what is wrong with it."""

import json
import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from monitor.config.file import config_schema, load_config
from monitor.config.plans import CopyPlan
from monitor.config.sections import has_placeholder_address, with_placeholder_address
from monitor.spark.protocol import Request, Verb, dump_request, load_request
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
from tests.toy.copy import FileCopy

PG = "kind: postgres, host: h, database: d, user: u"


def copies(folder: Path, section: str) -> tuple[CopyPlan, ...]:
    path = folder / "sluice.yaml"
    path.write_text(f"{LEAST}copies:\n{section}")
    return load_config(path).copied


def test_reading_a_config_loads_nothing_that_only_rows_need() -> None:
    code = (
        "import sys, monitor.config.file; "
        "sys.exit(bool({'pandas', 'pyspark', 'psycopg', 'cryptography'} & set(sys.modules)))"
    )
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}

    done = subprocess.run([sys.executable, "-c", code], env=env, timeout=60, check=False)

    assert done.returncode == 0


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
        pytest.param("  [a]", "copies: must be a mapping of copy names", id="a list"),
        pytest.param("  a: 7", "copies.a: must be a mapping of settings", id="a number"),
        pytest.param(f"  a: {{{PG}}}", "copies.a.tables: is required", id="no tables"),
        pytest.param(
            f"  a: {{{PG}, tables: orders}}",
            "copies.a.tables: 'orders' matches no table; write database.table",
            id="what can be no table",
        ),
        pytest.param(
            "  a: {tables: x.y}", "copies.a.kind: is required; known: postgres", id="no kind"
        ),
        pytest.param("  a: {tables: x.y, kind: oracle}", "no copy 'oracle'", id="an unknown kind"),
        pytest.param(
            f"  a: {{{PG}, tables: x.y, hots: h}}", "copies.a.hots: unknown key", id="a wrong key"
        ),
        pytest.param(
            "  a: {kind: postgres, tables: x.y, database: d, user: u}",
            "copies.a.host: is required",
            id="a key that lacks",
        ),
        pytest.param(
            f"  a: {{{PG}, tables: x.y, password: abc}}",
            "copies.a.password: a secret must not be written here",
            id="a secret",
        ),
        pytest.param(
            f"  a: {{{PG}, tables: x.y}}\n  b: {{{PG}, tables: x.z}}",
            (
                "copies.b: copy a also writes to postgres://h:5432/d; use a target of its"
                " own for each copy"
            ),
            id="one place for two",
        ),
        pytest.param(
            "  a: {kind: redis, host: 'r:6379', tables: x.y}",
            (
                "copies.a.host: 'r:6379' is not a host; write a name or an address, and"
                " the port in `port`"
            ),
            id="a host with its port",
        ),
        pytest.param(
            f"  a: {{{PG}, port: 65536, tables: x.y}}",
            "copies.a.port: 65536 is not a port",
            id="a port that is none",
        ),
        pytest.param(
            f"  a: {{{PG}, patience: PT0S, tables: x.y}}",
            "copies.a.patience: must be longer than 0s",
            id="no patience",
        ),
        pytest.param(
            "  a: {kind: redis, host: r, database: -1, tables: x.y}",
            "copies.a: database: -1 is none; write 0 or more",
            id="a database that is none",
        ),
        pytest.param(
            "  a: {kind: redis, host: r, prefix: ' ', tables: x.y}",
            "copies.a: prefix: is empty; write what all keys of the copy begin with",
            id="no prefix",
        ),
        pytest.param(
            f"  a b: {{{PG}, tables: x.y}}",
            "'a b' is not a copy name; use at most 30 letters",
            id="an odd name",
        ),
    ],
)
def test_what_is_wrong_is_told_by_its_place(tmp_path: Path, section: str, fault: str) -> None:
    with pytest.raises(ConfigError) as told:
        copies(tmp_path, section)

    assert fault in str(told.value)


def test_a_route_may_name_a_copy_that_there_is(tmp_path: Path) -> None:
    section = f"  a: {{{PG}, tables: x.y}}\nalerts: {{routes: [{{tables: 'copy:%s', owner: me}}]}}"

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
    path.write_text(f"{LEAST}invariants:\n{section}")
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
    [
        pytest.param("  not_null: {}", "invariants: must be a list", id="no list"),
        pytest.param("  - {not_null: {columns: [a]}}", "invariants[0].tables: is required", id="?"),
        pytest.param("  - {tables: shop.x}", "invariants[0]: has no invariant; known: ", id="none"),
        pytest.param(
            "  - {tables: shop.x, notnull: {}}", "no invariant 'notnull'", id="an unknown one"
        ),
        pytest.param(
            "  - {tables: shop.x, not_null: {column: [a]}}",
            "invariants[0].not_null.column: ",
            id="an unknown setting",
        ),
        pytest.param(
            "  - {tables: shop.x, not_null: [a]}",
            "invariants[0].not_null: must be a map",
            id="list",
        ),
        pytest.param(
            "  - {tables: orders, not_null: {columns: [a]}}",
            "invariants[0].tables: 'orders' matches no table",
            id="a name that no table has",
        ),
        pytest.param(
            "  - {tables: shop.x, range: {columns: {a: {least: 2, most: 1}}}}",
            "no value lies between 2 and 1",
            id="bounds that nothing lies between",
        ),
        pytest.param(
            "  - {tables: shop.x, referenced: {keys: [{columns: [a], table: u, to: [id]}]}}",
            "invariants[0].referenced: 'u' is not a table name; write database.table",
            id="another table without its database",
        ),
        pytest.param(
            "  - {tables: shop.x, referenced: {keys: [{columns: [a], table: u.*, to: [id]}]}}",
            "invariants[0].referenced: 'u.*' is not a table name; write database.table",
            id="a pattern of other tables",
        ),
        pytest.param(
            "  - {tables: shop.x, referenced: {keys: []}}",
            "invariants[0].referenced: keys: names none",
            id="no foreign key",
        ),
        pytest.param(
            "  - {tables: shop.x, referenced: {keys: [{columns: [a, b], table: u.u, to: [id]}]}}",
            "columns and to must be lists of as many columns",
            id="columns that do not go together",
        ),
        pytest.param(
            "  - {tables: shop.x, changed_at_most: {share: 20}}", "write 0.2", id="no share"
        ),
    ],
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
        pytest.param(
            "{tables: t.t, key: [id], hash: {columns: [a], secret: open}}",
            "standards[0].hash.secret: a secret must not be written here",
            id="a_secret_in_the_file",
        ),
        pytest.param(
            "{tables: t.t, key: [id], hash: {columns: [a], secret: {env: NOT_SET}}}",
            "standards[0].hash.secret: environment variable NOT_SET is not set",
            id="a_secret_that_is_not_there",
        ),
        pytest.param(
            "{tables: users, key: [id], clear: '*', mask: {columns: [name]}}",
            "standards[0].tables: 'users' matches no table; write database.table",
            id="what_would_stay_in_the_clear",
        ),
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
        pytest.param(
            "{tables: t.t, mask: {columns: [a]}}",
            "standards[0].key: is required; list the key's columns",
            id="no_key",
        ),
        pytest.param(
            "{key: [id], mask: {columns: [a]}}", "standards[0].tables: is required", id="no_table"
        ),
        pytest.param(
            "{tables: t.t, key: [id]}", "standards[0]: has no standard; known: ", id="nothing"
        ),
        pytest.param(
            "{tables: t.t, key: [id], hide: {}}",
            "standards[0].hide: no standard 'hide' in pipeline/standards; known: cipher, hash",
            id="an_unknown_one",
        ),
        pytest.param(
            "{tables: t.t, key: [id], mask: {columns: [name]}}",
            "standards[0].clear: is required; list the columns that land unchanged",
            id="nothing_of_new_columns",
        ),
        pytest.param(
            "{tables: t.t, key: [id], mask: {columns: [name]}, clear: {id: true}}",
            "standards[0].clear: is not a list of names; list the columns",
            id="columns_by_their_names",
        ),
        pytest.param(
            "{tables: t.t, key: [id], mask: {columns: []}}",
            "standards[0].mask.columns: is empty; list the columns to change",
            id="no_column",
        ),
        pytest.param(
            "{tables: t.t, key: [id], mapping: {columns: [a], file: ids.csv}}",
            "standards[0].mapping: file: ids.csv must be a whole path",
            id="a_file_without_a_whole_path",
        ),
        pytest.param(
            "{tables: t.t, key: [id], clear: '*', mapping: {columns: [a], file: /not/ids.csv}}",
            "standards[0].mapping.file: mapping /not/ids.csv: No such file or directory",
            id="a_file_that_is_not_there",
        ),
        pytest.param(
            "{tables: t.t, key: [id], mask: 3}", "standards[0].mask: must be a mapping", id="odd"
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


def written(folder: Path, kind: str, more: str = "tls: false") -> Path:
    path = folder / "sluice.yaml"
    path.write_text(FILES.format(kind=kind, more=more))
    return path


@pytest.mark.parametrize("more", ["tls: false", "port: 1", "host: localhost"])
def test_a_source_of_files_needs_no_address(tmp_path: Path, more: str) -> None:
    (source,) = load_config(written(tmp_path, "files", more)).sources

    assert has_placeholder_address(source)


@pytest.mark.parametrize("kind", ["connect", "{env: KIND}", "none_of_this_name"])
def test_every_other_kind_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setenv("KIND", "connect")

    with pytest.raises(ConfigError, match=r"sources\[0\]\.host: is required"):
        load_config(written(tmp_path, kind))


def test_what_is_no_collector_is_told_by_whoever_reads_it() -> None:
    assert with_placeholder_address({"collector": "files"}) == {"collector": "files"}
    assert with_placeholder_address({}) == {}


def test_editors_do_not_ask_for_it() -> None:
    assert config_schema()["$defs"]["SourceSettings"]["required"] == ["name", "collector", "prefix"]
