"""A connector's settings tell of a column whether it is sent as its source has it."""

import pytest

from pipeline.collectors.connect.table_filter import find_column_settings

SALTED = "column.mask.hash.v2.SHA-256.with.salt.CzQMA0cB5K"


@pytest.mark.parametrize(
    ("config", "column", "by"),
    [
        ({"column.exclude.list": r"s\.users\.ssn,s\.t\.x"}, "s.users.ssn", "column.exclude.list"),
        ({"column.exclude.list": r"s\.users\.ssn"}, "s.users.ssn2", ""),
        ({"column.include.list": r"s\.users\.(id|name)"}, "s.users.ssn", "column.include.list"),
        ({"column.include.list": r"s\.users\.(id|name)"}, "s.users.NAME", ""),
        ({"column.mask.with.12.chars": r".*\.ssn"}, "s.users.ssn", "column.mask.*"),
        ({SALTED: r".*\.ssn"}, "s.users.ssn", "column.mask.*"),
        ({"column.truncate.to.20.chars": r".*\.note"}, "s.t.note", "column.truncate.to.*"),
        ({"column.mask.with.1.chars": "(?#no)x"}, "s.t.id", "column.mask.*"),
        ({"column.include.list": "(?#no)x"}, "s.t.id", "column.include.list"),
        ({"column.exclude.list": r"s\.([a-z_]+)+!"}, "s.t.id", "column.exclude.list"),
        ({"column.mask.with.1.chars": "(" * 500 + ")" * 500}, "s.t.id", "column.mask.*"),
    ],
)
def test_a_column_is_altered_by(config: dict[str, str], column: str, by: str) -> None:
    told = find_column_settings(config)

    assert told is not None
    assert told(column) == by


@pytest.mark.parametrize("config", [{}, {"column.exclude.list": " "}, {"table.include.list": "x"}])
def test_without_such_lists_nobody_is_asked(config: dict[str, str]) -> None:
    assert find_column_settings(config) is None
