"""What the section `invariants` demands, and what is wrong with it."""

from pathlib import Path
from typing import Any

import pytest

from monitor.config.file import config_schema, load_config
from pipeline.errors import ConfigError
from pipeline.invariants.changed_at_most import ChangedAtMost
from pipeline.invariants.column_loss import ColumnLoss
from pipeline.invariants.invariant import known_invariants as known
from pipeline.invariants.not_null import NotNull
from pipeline.invariants.range import Range, ValueBounds
from pipeline.invariants.referenced import ForeignKey, Referenced
from pipeline.invariants.unique import Unique
from pipeline.settings import InvariantRule

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
