"""What is written is a config without a fault, and says what the proposal says."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.commands.init import TEMPLATE
from monitor.config.file import parse_config
from monitor.config.model import Config
from monitor.onboarding import (
    Proposal,
    SeenTable,
    fill_template,
    parse_address,
    propose_rules,
    require_database,
)
from pipeline.build import source_options
from pipeline.errors import ConfigError
from pipeline.settings import Router

SERVER = "mysql://sluice@mysql-1:3307"


ENVIRONMENT = {"SHOP_PASSWORD": "hush-hush"}


def text_of(*seen: SeenTable, address: str = SERVER, name: str = "shop") -> str:
    source = parse_address(address, name, "SHOP_PASSWORD", ENVIRONMENT)
    return fill_template(TEMPLATE.read_text("utf-8"), source, propose_rules(seen))


def parse(text: str) -> Config:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHOP_PASSWORD", "hush-hush")
        return parse_config(text, Path("sluice.yaml"))


def test_the_server_and_its_rules_are_in_a_config_without_a_fault() -> None:
    shards = [SeenTable(f"a_{n}.orders_{n}", ("id",), ("id",), 500) for n in range(3)]
    text = text_of(*shards, SeenTable("a.people", ("id",), (), None))

    config = parse(text)

    (source,) = config.sources
    assert (source.host, source.port, source.user, source.kind) == (
        "mysql-1",
        3307,
        "sluice",
        "mysql",
    )
    assert [(rule.shards, rule.table) for rule in config.tables] == [
        (r"a_\d+\.orders_\d+", "a.orders")
    ]
    assert "# 3 shards, about 1,500 rows, key id" in text
    assert "#   a.people: rows not known, key none" in text
    assert "hush" not in text


def test_a_server_without_tables_has_no_rules() -> None:
    assert parse(text_of()).tables == ()


def test_odd_words_are_read_back_as_they_are() -> None:
    text = text_of(address="mariadb://o'no%3A@10.0.0.1:3306", name="on")

    (source,) = parse(text).sources

    assert (source.kind, source.user, source.host) == ("mariadb", "o'no:", "10.0.0.1")
    assert source.name == source.prefix == source.collector.connector == "on"


def test_of_many_tables_few_are_named() -> None:
    text = text_of(*(SeenTable(f"s.{'ab'[n % 2] * (n + 1)}", ("x",), ()) for n in range(50)))

    assert "# Tables under their own names (50):" in text
    assert text.count("and 30 more") == 2


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("mysql-1", r"is not an address; write KIND://USER@HOST:PORT\[/DATABASE\]"),
        ("mysql://mysql-1:3306", "is not an address"),
        ("mysql://u@h", "is not an address"),
        ("mysql://u@h:port", "Port could not be cast"),
        ("postgres://u@h:5432/a/b", "has more than an address; write"),
        ("postgres://u@h:5432/a?sslmode=require", "has more than an address; write"),
        ("mysql://u:secret@h:3306", "export it, and name the variable by --password-env"),
    ],
)
def test_what_is_no_address_is_refused(address: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told) as refused:
        parse_address(address, "shop", None, ENVIRONMENT)

    assert "secret" not in str(refused.value)


def test_a_password_that_is_not_there_is_asked_for() -> None:
    with pytest.raises(ConfigError, match=r"\$SHOP_PASSWORD is not set; export"):
        parse_address(SERVER, "shop", None, {})


@given(st.lists(st.text(min_size=1, max_size=6), unique=True, max_size=8))
def test_whatever_tables_are_called_the_config_is_read(names: list[str]) -> None:
    seen = [SeenTable(f"d.{name}", ("x",), ("x",), 1) for name in names]
    source = parse_address(SERVER, "shop", "SHOP_PASSWORD", ENVIRONMENT)
    proposal = propose_rules(seen)

    config = parse(fill_template(TEMPLATE.read_text("utf-8"), source, proposal))

    assert config.tables == tuple(one.rule for one in proposal.rules)


@pytest.mark.parametrize("scheme", ["postgres", "postgresql"])
def test_f182_the_database_of_an_address_is_an_option_of_the_source(scheme: str) -> None:
    (source,) = parse(text_of(address=f"{scheme}://sluice@pg-1:5432/sh%20op")).sources

    assert (source.kind, source.options) == ("postgres", {"database": "sh op"})


def test_f182_only_a_kind_that_is_one_database_needs_its_name() -> None:
    missing = parse_address("postgres://u@h:5432", "shop", None, ENVIRONMENT).settings
    needless = parse_address("mysql://u@h:3306/shop", "shop", None, ENVIRONMENT).settings
    right = parse_address("postgres://u@h:5432/shop", "shop", None, ENVIRONMENT).settings

    with pytest.raises(ConfigError, match=r"one database; write postgres://USER@HOST:PORT/DATA"):
        require_database(missing, source_options(missing))
    with pytest.raises(ConfigError, match=r"all databases of its server; write mysql://USER@"):
        require_database(needless, source_options(needless))
    require_database(right, source_options(right))


ID = ("id int",)


def seen_table(name: str, columns: tuple[str, ...] = ID, rows: int | None = 10) -> SeenTable:
    return SeenTable(name, columns, ("id",), rows)


def proposed_rules(proposal: Proposal) -> list[tuple[str, str, int]]:
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
    proposal = propose_rules(map(seen_table, names))

    assert (shards, table) in [one[:2] for one in proposed_rules(proposal)]


def test_tables_of_other_columns_or_keys_are_told_and_left_alone() -> None:
    others = [seen_table("s.a_1"), seen_table("s.a_2", ("id int", "more int"))]
    keys = [seen_table("s.b_1"), SeenTable("s.b_2", ID, ("other",))]

    proposal = propose_rules([*others, *keys])

    assert proposal.rules == ()
    assert proposal.unlike == {
        "s.a_#": "s.a_1 and s.a_2 have different columns",
        "s.b_#": "s.b_1 and s.b_2 have different keys",
    }
    assert [one.name for one in proposal.alone] == ["s.a_1", "s.a_2", "s.b_1", "s.b_2"]


def test_logs_and_archives_wait_behind_the_others() -> None:
    proposal = propose_rules(
        [seen_table("s.audit_log"), seen_table("s.orders"), seen_table("s.catalog")]
    )

    assert [(one.rule.shards, one.rule.tier) for one in proposal.rules] == [(r"s\.audit_log", 2)]
    assert [one.name for one in proposal.alone] == ["s.catalog", "s.orders"]


def test_tables_without_a_key_are_named() -> None:
    proposal = propose_rules(
        [SeenTable("s.b", ID, ()), seen_table("s.a"), SeenTable("s.x_log", ID, ())]
    )

    assert proposal.keyless == ("s.b", "s.x_log")


def test_the_largest_comes_first_and_unknown_rows_count_as_none() -> None:
    few = [seen_table("s.a_1", rows=None), seen_table("s.a_2", rows=3)]
    many = [seen_table("s.b_1"), seen_table("s.b_2")]

    assert [(one.rule.table, one.rows) for one in propose_rules([*few, *many]).rules] == [
        ("s.b", 20),
        ("s.a", 3),
    ]


NAMES = st.from_regex(r"[ab1_\u0661]{1,4}\.[ab2_$-]{1,4}", fullmatch=True)


@given(st.sets(NAMES, max_size=12))
def test_every_table_goes_where_the_proposal_says(names: set[str]) -> None:
    proposal = propose_rules(map(seen_table, names))
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
