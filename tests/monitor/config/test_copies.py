"""What the section `copies` says, and what is wrong with it."""

import json
import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from monitor.config.file import config_schema, load_config
from monitor.config.plans import CopyPlan
from pipeline.copies.copy import known_copies
from pipeline.copies.postgres import PostgresCopy
from pipeline.errors import ConfigError
from tests.monitor.config.test_invariants import LEAST
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
