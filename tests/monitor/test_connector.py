"""The verb prints a complete config, registers it, and says what that changed."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from monitor.commands.connector import COMMAND
from pipeline.errors import ConfigError
from tests.pipeline.collectors.connect.fake_connect import FakeConnect, fake_connect

CONFIG = """\
lake: lake
kafka: 127.0.0.1:9
sources:
  - {{name: shop, host: db, port: 3306, user: sluice, prefix: shop,
      kind: mysql, format: debezium_json,
      collector: {{url: "{url}", connector: shop-1, {more}}}}}
"""


@pytest.fixture
def connect() -> Iterator[FakeConnect]:
    with fake_connect() as fake:
        yield fake


@pytest.fixture
def sluice(connect: FakeConnect, tmp_path: Path) -> Callable[..., Result]:
    def run(*words: str, url: str = "", more: str = "") -> Result:
        path = tmp_path / "sluice.yaml"
        path.write_text(CONFIG.format(url=url or connect.url, more=more), encoding="utf-8")
        return CliRunner().invoke(COMMAND, [*words, "--config", str(path)])

    return run


def test_f52_the_whole_config_is_printed_and_nobody_is_asked(sluice: Callable[..., Result]) -> None:
    result = sluice("shop", url="http://127.0.0.1:9")

    config = json.loads(result.output)
    assert config["topic.prefix"] == "shop"
    assert config["database.password"] == "${env:SHOP_DEBEZIUM_PASSWORD}"
    assert list(config) == sorted(config)


def test_f52_apply_registers_what_was_printed(
    connect: FakeConnect, sluice: Callable[..., Result]
) -> None:
    printed = json.loads(sluice("shop").output)

    first, second = sluice("shop", "--apply"), sluice("shop", "--apply")

    assert connect.registered["shop-1"] == {**printed, "name": "shop-1"}
    assert "+ topic.prefix=shop\n" in first.output
    assert first.output.endswith("\nregistered\n")
    assert second.output == "the connector has these settings already; nothing was changed\n"
    assert connect.changes == 1


def test_f52_apply_tells_what_it_changes_and_keeps_what_a_person_chose(
    connect: FakeConnect, sluice: Callable[..., Result]
) -> None:
    sluice("shop", "--apply")
    connect.registered["shop-1"] |= {
        "database.password": "raw",
        "max.batch.size": "9",
        "skipped.operations": "t",
    }

    result = sluice("shop", "--apply")

    assert result.output == "~ skipped.operations: t -> none\nchanged\n"
    kept = connect.registered["shop-1"]
    assert (kept["database.password"], kept["max.batch.size"]) == ("raw", "9")
    assert kept["skipped.operations"] == "none"


def test_f186_apply_shows_no_secret_that_it_replaces(
    connect: FakeConnect, sluice: Callable[..., Result]
) -> None:
    secrets = {
        "value.converter.basic.auth.user.info": "sluice:hunter2",
        "producer.override.ssl.keystore.key": "hunter2",
        "value.converter.schema.registry.url": "http://sluice:hunter2@b",
        "database.password": "${env:X}hunter2",
    }
    own = ", ".join(f'"{name}": "${{env:{n}:X}}"' for n, name in enumerate(secrets))
    for words in ([], ["--json"]):
        sluice("shop", "--apply")
        connect.registered["shop-1"] |= secrets

        result = sluice("shop", "--apply", *words, more=f"options: {{settings: {{{own}}}}}")

        assert [name for name in secrets if name not in result.output] == []
        assert "hunter2" not in result.output
        assert result.output.count("(hidden)") == len(secrets)


def test_f164_apply_tells_what_it_takes_away(
    connect: FakeConnect, sluice: Callable[..., Result]
) -> None:
    sluice("shop", "--apply")
    for words, told in (
        ([], "- driver.sslMode=DISABLED\nchanged\n"),
        (["--json"], '{"name": "driver.sslMode", "before": "DISABLED", "after": null}'),
    ):
        connect.registered["shop-1"]["driver.sslMode"] = "DISABLED"

        result = sluice("shop", "--apply", *words)

        assert told in result.output
        assert "driver.sslMode" not in connect.registered["shop-1"]


def test_f52_programs_are_told_the_changes(
    connect: FakeConnect, sluice: Callable[..., Result]
) -> None:
    sluice("shop", "--apply")
    del connect.registered["shop-1"]["tasks.max"]

    told = json.loads(sluice("shop", "--apply", "--json").output)

    change = {"name": "tasks.max", "before": None, "after": "1"}
    assert told == {"new": False, "changes": [change]}


def test_f52_without_connect_it_is_one_sentence(sluice: Callable[..., Result]) -> None:
    result = sluice("shop", "--apply", url="http://127.0.0.1:9")

    assert result.exit_code == 3
    assert "connector shop-1 at 127.0.0.1:9" in result.stderr


def test_f52_what_connect_refuses_is_told_in_its_words_on_one_line(
    connect: FakeConnect, sluice: Callable[..., Result]
) -> None:
    connect.refusal = "Connector configuration is invalid:\nUnable to connect: Access denied"

    result = sluice("shop", "--apply")

    assert isinstance(result.exception, ConfigError)
    assert "is invalid: Unable to connect: Access denied; " in str(result.exception)
    assert "resolve ${env:SHOP_DEBEZIUM_PASSWORD}: set" in str(result.exception), "f186"
    assert "EnvVarConfigProvider" in str(result.exception)
    assert connect.registered == {}


def test_settings_of_the_config_go_before(
    connect: FakeConnect, sluice: Callable[..., Result]
) -> None:
    sluice("shop", "--apply")

    result = sluice("shop", "--apply", more='options: {settings: {snapshot.mode: "initial"}}')

    assert "~ snapshot.mode: when_needed -> initial" in result.output
    assert connect.registered["shop-1"]["snapshot.mode"] == "initial"


@pytest.mark.parametrize(
    ("source", "more", "said"),
    [
        pytest.param("nobody", "", "no source 'nobody'; known: shop", id="no such source"),
        pytest.param(
            "shop",
            "kind: tests.toy.collector",
            "has no settings that Sluice can register",
            id="a collector that is set up elsewhere",
        ),
    ],
)
def test_f51_a_source_that_cannot_be_registered_is_refused_with_why(
    sluice: Callable[..., Result], source: str, more: str, said: str
) -> None:
    result = sluice(source, more=more)

    assert isinstance(result.exception, ConfigError)
    assert said in str(result.exception)


def test_f197_a_registered_address_that_is_not_the_configs_is_shown_and_applied(
    connect: FakeConnect, sluice: Callable[..., Result]
) -> None:
    sluice("shop", "--apply")
    connect.registered["shop-1"] |= {"database.hostname": "old", "database.port": "3307"}

    result = sluice("shop", "--apply")

    assert "~ database.hostname: old -> db\n" in result.output
    assert "~ database.port: 3307 -> 3306\n" in result.output
    assert connect.registered["shop-1"]["database.hostname"] == "db"


def test_f140_a_connector_is_registered_with_room_for_large_rows(
    sluice: Callable[..., Result],
) -> None:
    printed = json.loads(sluice("shop").output)

    assert int(printed["producer.override.max.request.size"]) >= 64 * 1024**2
    most = int(printed["producer.override.max.request.size"])
    assert int(printed["producer.override.buffer.memory"]) > most
