"""What a drill on servers of the user decides: what it may use, and what it removes."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import httpx
import psycopg
import pymysql
import pytest
from click.testing import CliRunner

from demo.connect import ConnectClient, RemoteConnect
from demo.drill.external import (
    Cleanup,
    ExternalServers,
    MadeThing,
    RefusedError,
    RemoteKafka,
    ServerAddresses,
    own_topics,
    read_addresses,
)
from demo.drill.external_databases import describe_rights, missing_rights, open_database
from demo.drill.outages import NOT_OURS, OUTAGES
from demo.drill.run import Drill, DrillPlan, drill
from demo.drill.tables import DrillSource
from demo.story.screen import Screen
from monitor.config.file import load_config
from pipeline.errors import ConfigError, UnreachableError
from pipeline.sources.mysql.facts import parse_grant

NAME = "sluice_drill_1"
GIVEN = {
    "mysql": "db-1:3306",
    "user": "drill",
    "password_env": "PW",
    "kafka": "kafka-1:9092,kafka-2:9092",
    "connect": "http://connect-1:8083",
    "name": NAME,
}


def addresses(**given: Any) -> ServerAddresses:
    """Those that the options name, with a password."""
    found = read_addresses({**GIVEN, **given}, {"PW": "secret"})
    assert found is not None
    return found


@pytest.mark.parametrize("text", ["db-1", "::1:3306", "mysql://db-1:3306", "a:1,b:2"])
@pytest.mark.parametrize(
    ("option", "shown"), [("mysql", "--mysql"), ("database_seen", "--database-seen")]
)
def test_what_is_no_host_and_port_is_refused_with_its_option(
    option: str, shown: str, text: str
) -> None:
    with pytest.raises(ConfigError, match=rf"^{shown}: .* is not host:port; write for example"):
        addresses(**{option: text})


def test_a_server_may_have_an_address_of_ipv6_in_brackets() -> None:
    found = addresses(mysql="[::1]:3307", database_seen="db-1:3306")

    assert (found.host, found.port, found.seen) == ("::1", 3307, ("db-1", 3306))


def test_without_an_option_the_drill_starts_its_own_servers() -> None:
    assert read_addresses({"mysql": None, "tls": None, "kafka": None}, {}) is None


def test_the_variable_of_connect_counts_only_beside_other_options() -> None:
    variable = {"DRILL_CONNECT": "http://connect-2:8083", "PW": "secret"}
    found = read_addresses({**GIVEN, "connect": None}, variable)
    option = read_addresses(GIVEN, variable)

    assert read_addresses({"mysql": None, "connect": None}, variable) is None
    assert found is not None
    assert option is not None
    assert (found.connect, option.connect) == ("http://connect-2:8083", GIVEN["connect"])
    with pytest.raises(ConfigError, match="missing: --connect or the variable DRILL_CONNECT; add"):
        read_addresses({**GIVEN, "connect": None}, {"PW": "secret"})
    with pytest.raises(ConfigError, match=r"^DRILL_CONNECT: 'c:8083' is not an address"):
        read_addresses({**GIVEN, "connect": ""}, {"DRILL_CONNECT": "c:8083"})


def test_a_plain_drill_does_not_look_at_the_variable_of_connect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRILL_CONNECT", "http://connect-1:8083")

    refused = CliRunner().invoke(drill, ["--outage=no such", f"--dir={tmp_path / 'home'}"])

    assert "options of your own servers" not in f"{refused.exception}{refused.output}"


def test_options_name_the_servers_and_the_password_is_shown_nowhere() -> None:
    found = addresses(connect="http://me:hidden@connect-1:8083")

    assert (found.kind, found.host, found.port, found.name) == ("mysql", "db-1", 3306, NAME)
    assert (found.password, found.connector_password) == ("secret", "secret")
    assert "secret" not in repr(found)
    assert "hidden" not in repr(found)


def test_names_that_are_not_given_are_random() -> None:
    names = {addresses(name=None).name for _ in range(2)}

    assert len(names) == 2
    assert all(name.startswith("sluice_drill_") for name in names)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        pytest.param({"mysql": None}, "missing: --mysql or --postgres; add", id="no database"),
        pytest.param({"kafka": None, "user": ""}, "missing: --user, --kafka; add", id="others"),
        pytest.param({"postgres": "db-2:5432"}, "name one server", id="two databases"),
        pytest.param({"password_env": "NO"}, "NO is not set in the environment", id="no password"),
        pytest.param({"name": "a-b"}, "--name: 'a-b' cannot be used", id="a name"),
        pytest.param({"name": "x" * 41}, "cannot be used", id="a long name"),
        pytest.param({"connect": "connect-1:8083"}, "--connect: 'connect-1:8083' is", id="no URL"),
        pytest.param({"connect": "http://a:212321"}, "is not an address", id="no port"),
        pytest.param({"database_seen": "db"}, "--database-seen: 'db' is not", id="seen"),
    ],
)
def test_options_that_cannot_be_used_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        addresses(**given)


def test_the_command_refuses_them_before_it_makes_a_folder(tmp_path: Path) -> None:
    refused = CliRunner().invoke(drill, ["--kafka=a:1", f"--dir={tmp_path / 'home'}"])

    assert isinstance(refused.exception, ConfigError)
    assert not (tmp_path / "home").exists()


def test_topics_of_the_connector_are_those_of_its_prefix_alone() -> None:
    own = [
        f"__debezium-heartbeat.{NAME}",
        f"__schema-history.{NAME}",
        NAME,
        f"{NAME}.drill.few_00",
        f"{NAME}.transaction",
    ]
    others = [f"{NAME}0", f"x{NAME}", f"x.{NAME}.t", f"__schema-history.{NAME}1", "orders"]

    assert own_topics([*others, *reversed(own)], NAME) == own


ALLOWED = (
    r"GRANT ALL PRIVILEGES ON `sluice\_drill\_%`.* TO `drill`@`%`",
    "GRANT RELOAD, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO `drill`@`%`",
    "GRANT SESSION_VARIABLES_ADMIN ON *.* TO `drill`@`%`",
)


@pytest.mark.parametrize(
    ("lines", "own", "everywhere"),
    [
        pytest.param(ALLOWED, [], [], id="all"),
        pytest.param(["GRANT ALL PRIVILEGES ON *.* TO `root`@`%`"], [], [], id="an administrator"),
        pytest.param(ALLOWED[:2], [], ["SESSION_VARIABLES_ADMIN"], id="none to hide a change"),
        pytest.param(
            [*ALLOWED[:2], "GRANT SUPER ON *.* TO `drill`@`%`"], [], [], id="SUPER hides, too"
        ),
        pytest.param(
            ["GRANT SELECT, CREATE, DROP, INSERT ON `other`.* TO `drill`@`%`", *ALLOWED[1:]],
            ["CREATE", "DROP", "SELECT", "INSERT", "UPDATE", "DELETE", "LOCK TABLES"],
            [],
            id="another database",
        ),
    ],
)
def test_missing_rights_are_found(
    lines: Sequence[str], own: list[str], everywhere: list[str]
) -> None:
    grants = [grant for line in lines if (grant := parse_grant(line))]

    assert missing_rights(grants, NAME) == (own, everywhere)


def test_missing_rights_are_named_with_their_statements() -> None:
    said = describe_rights("drill@%", NAME, ["DROP"], ["RELOAD", "SESSION_VARIABLES_ADMIN"])

    assert "SESSION_VARIABLES_ADMIN is for sql_log_bin=0" in said
    assert r"GRANT DROP ON `sluice\_drill\_%`.* TO 'drill'@'%';" in said
    assert said.endswith("GRANT RELOAD, SESSION_VARIABLES_ADMIN ON *.* TO 'drill'@'%'")
    assert "GRANT DROP ON `mine`.*" in describe_rights("drill@%", "mine", ["DROP"], [])
    assert describe_rights("drill@%", NAME, [], []) == ""


def test_rights_on_a_named_database_are_asked_for_that_one_alone() -> None:
    said = describe_rights("drill@%", "my_drill", ["DROP"], [])

    assert r"GRANT DROP ON `my\_drill`.* TO" in said
    allowed = parse_grant(r"GRANT ALL PRIVILEGES ON `my\_drill`.* TO `drill`@`%`")
    assert allowed is not None
    assert missing_rights([allowed], "my_drill")[0] == []


def test_the_command_that_drops_a_database_of_mysql_uses_its_port_on_localhost_too() -> None:
    (database,) = open_database(addresses(mysql="localhost:3307")).things()

    assert database.command.startswith("mysql --protocol=TCP -h localhost -P 3307 ")


def made(name: str, log: list[str], error: Exception | None = None) -> MadeThing:
    """Something whose removal is written into *log*, or fails."""

    def remove() -> None:
        if error is not None:
            raise error
        log.append(name)

    return MadeThing(f"the {name}", f"drop {name}", remove)


def test_what_was_made_is_removed_newest_first_and_noted_until_then(tmp_path: Path) -> None:
    log, said = list[str](), list[str]()
    cleanup = Cleanup(tmp_path / "remove.txt", said.append)
    for name in ("database", "topics", "connector"):
        cleanup.add(made(name, log))
    noted = cleanup.file.read_text().splitlines()

    cleanup.remove_all()

    assert noted == ["drop connector", "drop topics", "drop database"]
    assert log == ["connector", "topics", "database"]
    assert (said, cleanup.file.exists()) == (
        ["your servers: everything that the drill has made is removed"],
        False,
    )


def test_what_cannot_be_removed_is_named_with_its_command_and_stays_noted(tmp_path: Path) -> None:
    log, said = list[str](), list[str]()
    cleanup = Cleanup(tmp_path / "remove.txt", said.append)
    cleanup.add(made("database", log))
    cleanup.add(made("topics", log, UnreachableError("no broker at http://a:b@c")))

    cleanup.remove_all()

    assert log == ["database"]
    assert said == ["the topics is left: no broker at http://(hidden)@c; run: drop topics"]
    assert cleanup.file.read_text() == "drop topics\n"
    with pytest.raises(ConfigError, match=r"left things on your servers; run the commands in .*"):
        Cleanup(cleanup.file).claim()


def test_a_drill_that_is_refused_leaves_the_commands_of_an_earlier_one(tmp_path: Path) -> None:
    own = servers(tmp_path, FakeDatabase([]))
    own.cleanup.file.write_text("drop earlier\n")

    with pytest.raises(ConfigError, match="an earlier drill has left things"):
        own.start()
    own.stop()

    assert own.cleanup.file.read_text() == "drop earlier\n"


class FakeDatabase:
    """A server that has ``faults``, and whose database can be made unless *error* says why not."""

    label = "MySQL at db-1:3306"

    def __init__(
        self,
        log: list[str],
        faults: Sequence[str] = (),
        error: Exception | None = None,
    ) -> None:
        self.log, self.faults, self.error = log, faults, error

    def troubles(self) -> Iterator[str]:
        yield from self.faults

    def warnings(self) -> Iterator[str]:
        yield from ()

    def describe(self) -> str:
        return "your MySQL"

    def create(self) -> None:
        if self.error:
            raise self.error
        self.log.append("create")

    def things(self) -> Sequence[MadeThing]:
        return (made("database", self.log),)

    def source(self) -> DrillSource:
        return open_database(addresses()).source()

    def trial_config(self, config: Mapping[str, str]) -> Mapping[str, str]:
        return config


class FakeConnect(ConnectClient):
    """Workers with the connectors and plug-ins that a test names; every connector has a fault."""

    url = "http://connect-1:8083"

    def __init__(self, there: Sequence[str] = (), plugins: Sequence[str] = ("MySql",)) -> None:
        self.there, self.classes = [*there], plugins

    def connectors(self) -> list[str]:
        return self.there

    def plugins(self) -> set[str]:
        return {f"io.debezium.connector.mysql.{one}Connector" for one in self.classes}

    def faults(self, name: str, config: Mapping[str, str]) -> dict[str, str]:
        return {"database.password": "secret is wrong"} if config["database.port"] == "1" else {}


@dataclass(frozen=True)
class FakeKafka(RemoteKafka):
    """Brokers with topics."""

    there: tuple[str, ...] = ()

    def topics(self) -> list[str]:
        return [*self.there]

    def delete_topics(self, prefix: str) -> None:
        pass


def servers(
    folder: Path,
    database: FakeDatabase,
    connect: FakeConnect | None = None,
    topics: Sequence[str] = (),
) -> ExternalServers:
    """Those of the addresses above; they are fakes."""
    kafka = FakeKafka("kafka-1:9092", tuple(topics))
    cleanup = Cleanup(folder / "remove.txt")
    return ExternalServers(addresses(), database, kafka, connect or FakeConnect(), cleanup)


def test_a_drill_begins_with_the_database_and_ends_without_it(tmp_path: Path) -> None:
    log, said = list[str](), list[str]()
    own = servers(tmp_path, FakeDatabase(log))

    own.start(said.append)
    noted = own.cleanup.file.read_text().splitlines()
    own.stop()

    assert log == ["create", "database"]
    assert [line.split()[0] for line in noted] == ["curl", "kafka-topics.sh", "drop"]
    assert f"on them, only what is called {NAME}: a database, a connector, and topics" in said
    assert not own.cleanup.file.exists()


class OldConnect(FakeConnect):
    """Workers that cannot remove offsets."""

    def halt(self, name: str) -> None:
        raise UnreachableError("Connect refuses PUT")

    def deregister(self, name: str) -> None:
        self.there.remove(name)


def test_a_connector_is_removed_from_workers_that_keep_its_offsets(tmp_path: Path) -> None:
    said, connect = list[str](), OldConnect()
    own = servers(tmp_path, FakeDatabase([]), connect)
    own.cleanup.say = said.append

    own.start()
    connect.there.append(NAME)
    own.stop()

    assert connect.there == []
    assert f"Connect keeps offsets of {NAME}, which have no effect: Connect refuses PUT" in said
    assert not own.cleanup.file.exists()


@pytest.mark.parametrize(
    ("database", "connect", "topics", "message"),
    [
        pytest.param(FakeDatabase([], ["no right; grant it"]), None, [], "no right", id="database"),
        pytest.param(None, None, [f"{NAME}.t"], f"has topics of the name {NAME}", id="topics"),
        pytest.param(None, FakeConnect([NAME]), [], f"has a connector {NAME} al", id="connector"),
        pytest.param(None, FakeConnect(plugins=[]), [], "has no plug-in io.debezium", id="plugin"),
    ],
)
def test_a_drill_that_could_not_run_makes_and_removes_nothing(
    tmp_path: Path,
    database: FakeDatabase | None,
    connect: FakeConnect | None,
    topics: Sequence[str],
    message: str,
) -> None:
    log = list[str]()
    own = servers(tmp_path, database or FakeDatabase(log), connect, topics)

    with pytest.raises(ConfigError, match=message):
        own.start()
    own.stop()

    assert (log, own.cleanup.file.exists()) == ([], False)


def test_a_database_that_could_not_be_made_is_not_removed(tmp_path: Path) -> None:
    log = list[str]()
    own = servers(tmp_path, FakeDatabase(log, error=RefusedError("it exists already")))

    with pytest.raises(UnreachableError, match="it exists already"):
        own.start()
    own.stop()

    assert (log, own.cleanup.file.exists()) == ([], False)


def test_a_database_whose_server_did_not_answer_is_noted_and_removed(tmp_path: Path) -> None:
    log = list[str]()
    own = servers(tmp_path, FakeDatabase(log, error=UnreachableError("timed out")))

    with pytest.raises(UnreachableError, match="timed out"):
        own.start()
    noted = own.cleanup.file.read_text()
    own.stop()

    assert (noted, log) == ("drop database\n", ["database"])


@pytest.mark.parametrize(
    ("error", "refused"),
    [
        pytest.param(pymysql.err.ProgrammingError(1007, "there", sqlstate="HY000"), True, id="is"),
        pytest.param(pymysql.err.OperationalError(2013, "Lost connection"), False, id="lost"),
    ],
)
def test_only_what_mysql_has_answered_is_a_refusal(
    monkeypatch: pytest.MonkeyPatch, error: Exception, refused: bool
) -> None:
    monkeypatch.setattr(pymysql, "connect", Mock(side_effect=error))

    with pytest.raises(UnreachableError) as raised:
        open_database(addresses(tls=False)).create()

    assert isinstance(raised.value, RefusedError) is refused


@pytest.mark.parametrize(
    ("error", "refused"),
    [
        pytest.param(psycopg.errors.DuplicateDatabase("there"), True, id="is"),
        pytest.param(psycopg.OperationalError("server closed the connection"), False, id="lost"),
    ],
)
def test_only_what_postgres_has_answered_is_a_refusal(
    monkeypatch: pytest.MonkeyPatch, error: Exception, refused: bool
) -> None:
    monkeypatch.setattr(psycopg, "connect", Mock(side_effect=error))

    with pytest.raises(UnreachableError) as raised:
        open_database(addresses(mysql=None, postgres="db-1:5432", tls=False)).create()

    assert isinstance(raised.value, RefusedError) is refused


def test_everything_else_is_removed_though_connect_answers_with_no_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, said = list[str](), list[str]()
    own = servers(tmp_path, FakeDatabase(log))
    own.cleanup.say = said.append
    own.start()
    page = httpx.MockTransport(lambda _: httpx.Response(200, text="<html>log in</html>"))
    monkeypatch.setattr("demo.connect.LOCAL", httpx.Client(transport=page))
    own.connect = RemoteConnect("http://connect-1:8083")

    own.stop()

    curl = f"curl -X DELETE http://connect-1:8083/connectors/{NAME}"
    assert log == ["create", "database"]
    assert "no JSON: '<html>log in</html>'" in said[0]
    assert said[0].endswith(f"; run: {curl}")
    assert own.cleanup.file.read_text() == f"{curl}\n"


def test_a_fault_that_connect_finds_is_reported_without_the_password(tmp_path: Path) -> None:
    own = servers(tmp_path, FakeDatabase([]))
    seen = open_database(addresses(database_seen="db:1")).source()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(own.database, "source", lambda: seen)

        (said,) = own.troubles()

    assert "cannot run the connector: database.password: (hidden) is wrong; if Connect has" in said


def planned(folder: Path, ends: ExitStack, **given: Any) -> Drill:
    """A drill that was not started."""
    return Drill(folder, DrillPlan(outages=(), external=addresses(**given)), Screen(), ends)


FOREIGN = ("mysql/a", "kafka/a", "connect/a", "lake/a", "store/a", "service.log", "sluice.yaml")


def test_a_folder_that_no_drill_made_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    for name in FOREIGN:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("mine")

    with ExitStack() as ends, pytest.raises(ConfigError, match="is not empty, and has no"):
        planned(tmp_path, ends)

    found = {str(f.relative_to(tmp_path)): f for f in tmp_path.rglob("*") if f.is_file()}
    assert sorted(found) == sorted(FOREIGN)
    assert {file.read_text() for file in found.values()} == {"mine"}


def test_a_second_drill_in_the_folder_of_a_running_one_is_refused(tmp_path: Path) -> None:
    with ExitStack() as ends, ExitStack() as others:
        planned(tmp_path, ends)
        (tmp_path / "lake").mkdir()

        with pytest.raises(ConfigError, match="another drill runs in"):
            planned(tmp_path, others)
        others.close()

        assert (tmp_path / "lake").exists()


def test_the_next_drill_begins_in_the_folder_of_one_that_has_ended(tmp_path: Path) -> None:
    with ExitStack() as ends:
        planned(tmp_path, ends)
    (tmp_path / "mysql").mkdir()

    with ExitStack() as ends:
        planned(tmp_path, ends)

        assert not (tmp_path / "mysql").exists()


@pytest.mark.parametrize(
    "database",
    [
        pytest.param({}, id="MySQL"),
        pytest.param({"mysql": None, "postgres": "db-1:5432", "tls": False}, id="Postgres"),
        pytest.param({"password_env": None}, id="no password"),
    ],
)
def test_the_service_gets_a_config_of_the_users_servers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, database: dict[str, Any]
) -> None:
    with ExitStack() as ends:
        made = planned(tmp_path, ends, **database)
        for name, value in made.service.daemon.environment.items():
            monkeypatch.setenv(name, value)

        found = load_config(made.service.config)

    (source,) = found.sources
    assert (source.host, source.user, source.prefix) == ("db-1", "drill", NAME)
    assert (source.password, found.settings.kafka) == (
        "secret" if database.get("password_env", "PW") else "",
        GIVEN["kafka"],
    )
    assert source.collector.connector == NAME
    assert source.heartbeat == made.source.names.heartbeats
    assert "secret" not in made.service.config.read_text()


def test_connect_checks_the_connector_before_the_drills_database_is_there() -> None:
    database = open_database(addresses(mysql=None, postgres="db-1:5432"))
    config = database.source().connector("kafka-1:9092")

    assert config["database.dbname"] == NAME
    assert database.trial_config(config) == {**config, "database.dbname": "postgres"}


@pytest.mark.parametrize("kind", ["mysql", "postgres"])
def test_the_connector_writes_topics_of_its_name_as_many_times_as_the_brokers_like(
    kind: str,
) -> None:
    at = addresses(**{"mysql": None, kind: "db-1:9"}, connector_password="${file:/pw:pw}")

    config = open_database(at).source().connector("kafka-1:9092")

    assert config["topic.prefix"] == NAME
    assert config["topic.creation.default.replication.factor"] == "-1"
    assert config["database.password"] == "${file:/pw:pw}"
    assert (config["database.hostname"], config["database.port"]) == ("db-1", "9")
    assert NAME in config.get("database.include.list", config.get("slot.name", ""))


def test_outages_of_servers_that_are_not_the_drills_own_are_left_out(tmp_path: Path) -> None:
    with ExitStack() as ends:
        site = planned(tmp_path, ends).site

        left_out = {one.name for one in OUTAGES if one.trouble(site) == NOT_OURS}

    assert left_out >= {"dead collector"}
