"""Tables whose names differ in numbers become one, if they are alike."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.onboarding import Proposal, SeenTable, propose_rules
from pipeline.settings import Router

ID = ("id int",)


def seen(name: str, columns: tuple[str, ...] = ID, rows: int | None = 10) -> SeenTable:
    return SeenTable(name, columns, ("id",), rows)


def folded(proposal: Proposal) -> list[tuple[str, str, int]]:
    return [(one.rule.shards, one.rule.table, len(one.of)) for one in proposal.rules]


@pytest.mark.parametrize(
    ("names", "shards", "table"),
    [
        pytest.param(
            [f"shop_{d:02}.orders_{t:02}" for d in range(3) for t in range(4)],
            r"shop_\d+\.orders_\d+",
            "shop.orders",
            id="databases and tables are numbered",
        ),
        pytest.param(["shop.a_1", "shop.a_2"], r"shop\.a_\d+", "shop.a", id="tables are"),
        pytest.param(["db1.t", "db2.t"], r"db\d+\.t", "db.t", id="databases are"),
        pytest.param(
            ["v2.x_1", "v2.x_2"], r"v2\.x_\d+", "v2.x", id="a number that they share stays"
        ),
        pytest.param(["1.1", "1.2"], r"1\.\d+", "1.shards", id="nothing but numbers"),
        pytest.param(
            ["s.a_1_b", "s.a_2_b", "s.a_b"], r"s\.a_\d+_b", "s.a_b_all", id="the name is taken"
        ),
        pytest.param(
            ["worker.1", "worker.2"], r"worker\.\d+", "worker.shards", id="a word of ours"
        ),
    ],
)
def test_names_that_differ_in_numbers_are_shards_of_one(
    names: list[str], shards: str, table: str
) -> None:
    proposal = propose_rules(map(seen, names))

    assert (shards, table) in [one[:2] for one in folded(proposal)]


def test_tables_of_other_columns_or_keys_are_told_and_left_alone() -> None:
    others = [seen("s.a_1"), seen("s.a_2", ("id int", "more int"))]
    keys = [seen("s.b_1"), SeenTable("s.b_2", ID, ("other",))]

    proposal = propose_rules([*others, *keys])

    assert proposal.rules == ()
    assert proposal.unlike == {
        "s.a_#": "s.a_1 and s.a_2 have different columns",
        "s.b_#": "s.b_1 and s.b_2 have different keys",
    }
    assert [one.name for one in proposal.alone] == ["s.a_1", "s.a_2", "s.b_1", "s.b_2"]


def test_logs_and_archives_wait_behind_the_others() -> None:
    proposal = propose_rules([seen("s.audit_log"), seen("s.orders"), seen("s.catalog")])

    assert [(one.rule.shards, one.rule.tier) for one in proposal.rules] == [(r"s\.audit_log", 2)]
    assert [one.name for one in proposal.alone] == ["s.catalog", "s.orders"]


def test_tables_without_a_key_are_named() -> None:
    proposal = propose_rules([SeenTable("s.b", ID, ()), seen("s.a"), SeenTable("s.x_log", ID, ())])

    assert proposal.keyless == ("s.b", "s.x_log")


def test_the_largest_comes_first_and_unknown_rows_count_as_none() -> None:
    few = [seen("s.a_1", rows=None), seen("s.a_2", rows=3)]
    many = [seen("s.b_1"), seen("s.b_2")]

    assert [(one.rule.table, one.rows) for one in propose_rules([*few, *many]).rules] == [
        ("s.b", 20),
        ("s.a", 3),
    ]


NAMES = st.from_regex(r"[ab1_\u0661]{1,4}\.[ab2_$-]{1,4}", fullmatch=True)


@given(st.sets(NAMES, max_size=12))
def test_every_table_goes_where_the_proposal_says(names: set[str]) -> None:
    proposal = propose_rules(map(seen, names))
    router = Router(tuple(one.rule for one in proposal.rules))
    owners: dict[str, str] = {}

    for one in proposal.rules:
        for table in one.of:
            owners[table.name] = router.table(table.name) or ""
            assert router.rule(table.name) == one.rule
    for table in proposal.alone:
        owners[table.name] = router.table(table.name) or ""
        assert router.rule(table.name) is None

    assert owners.keys() == names
    tables = [router.table(one.of[0].name) for one in proposal.rules]
    assert len({*tables, *(owners[one.name] for one in proposal.alone)}) == len(tables) + len(
        proposal.alone
    )
