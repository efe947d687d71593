"""What is written is a config without a fault, and says what the proposal says."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.commands.init import TEMPLATE
from monitor.config.file import parse_config
from monitor.config.model import Config
from monitor.onboarding import (
    SeenTable,
    fill_template,
    parse_address,
    propose_rules,
    require_database,
)
from pipeline.build import source_options
from pipeline.errors import ConfigError

SERVER = "mysql://sluice@mysql-1:3307"


ENVIRONMENT = {"SHOP_PASSWORD": "hush-hush"}


def text_of(*seen: SeenTable, address: str = SERVER, name: str = "shop") -> str:
    source = parse_address(address, name, "SHOP_PASSWORD", ENVIRONMENT)
    return fill_template(TEMPLATE.read_text("utf-8"), source, propose_rules(seen))


def read(text: str) -> Config:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHOP_PASSWORD", "hush-hush")
        return parse_config(text, Path("sluice.yaml"))


def test_the_server_and_its_rules_are_in_a_config_without_a_fault() -> None:
    shards = [SeenTable(f"a_{n}.orders_{n}", ("id",), ("id",), 500) for n in range(3)]
    text = text_of(*shards, SeenTable("a.people", ("id",), (), None))

    config = read(text)

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
    assert read(text_of()).tables == ()


def test_odd_words_are_read_back_as_they_are() -> None:
    text = text_of(address="mariadb://o'no%3A@10.0.0.1:3306", name="on")

    (source,) = read(text).sources

    assert (source.kind, source.user, source.host) == ("mariadb", "o'no:", "10.0.0.1")
    assert source.name == source.prefix == source.collector.connector == "on"


def test_of_many_tables_few_are_named() -> None:
    text = text_of(*(SeenTable(f"s.{'ab'[n % 2] * (n + 1)}", ("x",), ()) for n in range(50)))

    assert "# Tables under their own names (50):" in text
    assert text.count("and 30 more") == 2


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("mysql-1", r"is no address; write KIND://USER@HOST:PORT\[/DATABASE\]"),
        ("mysql://mysql-1:3306", "is no address"),
        ("mysql://u@h", "is no address"),
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

    config = read(fill_template(TEMPLATE.read_text("utf-8"), source, proposal))

    assert config.tables == tuple(one.rule for one in proposal.rules)


@pytest.mark.parametrize("scheme", ["postgres", "postgresql"])
def test_f182_the_database_of_an_address_is_an_option_of_the_source(scheme: str) -> None:
    (source,) = read(text_of(address=f"{scheme}://sluice@pg-1:5432/sh%20op")).sources

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
