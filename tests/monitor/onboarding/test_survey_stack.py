"""What a real server's catalogue says becomes a config; covers survey.py and commands/init.py."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from demo.postgres import Postgres
from demo.servers import Servers
from monitor.commands import init
from monitor.config.file import load_config
from pipeline.errors import ConfigError, UnreachableError
from pipeline.settings import Router

pytestmark = pytest.mark.stack

PASSWORD = ["--password-env", "SURVEY_PASSWORD"]


@pytest.fixture(autouse=True)
def _password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SURVEY_PASSWORD", "sluice")


def test_a_whole_server_is_proposed_and_the_config_is_good(
    servers: Servers, tmp_path: Path
) -> None:
    made = [f"CREATE DATABASE survey_{n}" for n in range(3)]
    made += [
        f"CREATE TABLE survey_{n}.orders_{m:02} (id BIGINT UNSIGNED PRIMARY KEY, `na'me` TEXT)"
        for n in range(3)
        for m in range(4)
    ]
    made += [f"CREATE TABLE survey_0.`odd\u00e9 'x'_{n}` (a INT)" for n in range(2)]
    made.append("CREATE VIEW survey_0.orders_99 AS SELECT 1 AS id")
    servers.mysql.execute(*made)
    path = tmp_path / "sluice.yaml"
    address = f"mysql://sluice@127.0.0.1:{servers.mysql.port}"

    ran = CliRunner().invoke(
        init.COMMAND, ["--config", str(path), "--from-source", address, *PASSWORD]
    )

    assert ran.exit_code == 0, ran.output
    config = load_config(path)
    router = Router(config.tables)
    shards = {f"survey_{n}.orders_{m:02}" for n in range(3) for m in range(4)}
    assert {router.table(name) for name in shards} == {"survey.orders"}
    text = path.read_text("utf-8")
    assert "# 12 shards, about 0 rows, key id" in text
    assert router.table("survey_0.odd\u00e9 'x'_1") == "survey_0.odd\u00e9 'x'"
    assert "# 2 shards, about 0 rows, key none" in text
    assert "sluice.heartbeat" in text  # as the template's comment says, and nowhere else
    assert "#   sluice.heartbeat" not in text


def test_a_server_that_is_down_or_refuses_leaves_no_file(servers: Servers, tmp_path: Path) -> None:
    path = tmp_path / "sluice.yaml"
    down = ["--config", str(path), "--from-source", "mysql://sluice@127.0.0.1:1", *PASSWORD]
    stranger = f"mysql://nobody@127.0.0.1:{servers.mysql.port}"
    refused = ["--config", str(path), "--from-source", stranger, *PASSWORD]

    assert isinstance(CliRunner().invoke(init.COMMAND, down).exception, UnreachableError)
    assert isinstance(CliRunner().invoke(init.COMMAND, refused).exception, ConfigError)
    assert not path.exists()


def test_f182_a_postgres_database_is_proposed_and_the_config_is_good(
    postgres: Postgres, tmp_path: Path
) -> None:
    database = f"survey_{postgres.version}"
    made = [f"CREATE TABLE orders_{n} (id BIGINT PRIMARY KEY, note TEXT)" for n in range(3)]
    postgres.create_database(database, *made, "CREATE TABLE people (name TEXT)")
    path = tmp_path / "sluice.yaml"
    address = f"postgres://sluice@127.0.0.1:{postgres.port}"
    options = ["--config", str(path), *PASSWORD, "--from-source"]

    nowhere = CliRunner().invoke(init.COMMAND, [*options, address])
    ran = CliRunner().invoke(init.COMMAND, [*options, f"{address}/{database}"])

    assert "one database; write postgres://" in str(nowhere.exception)
    assert ran.exit_code == 0, (ran.output, ran.exception)
    config = load_config(path)
    assert config.sources[0].options == {"database": database}
    assert {Router(config.tables).table(f"public.orders_{n}") for n in range(3)} == {
        "public.orders"
    }
    assert "#   public.people: " in path.read_text("utf-8")
