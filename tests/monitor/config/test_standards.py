"""The section ``standards``: what it builds, and each mistake by its place."""

from pathlib import Path

import pytest

from monitor.config.file import config_schema, load_config
from monitor.spark.protocol import Request, Verb, dump_request, load_request
from pipeline.errors import ConfigError
from pipeline.settings import StandardRule
from pipeline.standards.hash import KeyedHash
from tests.monitor.config.test_invariants import LEAST

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
