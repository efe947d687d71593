"""What Connect has stored is what is acknowledged; everything else is Missing or unreachable."""

import json
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import count
from threading import Event, Thread
from typing import Any

import pytest

from demo.debezium import mysql_connector
from demo.processes import wait_until
from demo.servers import Servers
from pipeline.collectors.collector import CollectorState
from pipeline.collectors.connect.collector import ConnectCollector
from pipeline.errors import ConfigError, UnreachableError
from pipeline.model import Acknowledged, Missing
from pipeline.settings import CollectorSettings
from pipeline.sources.mysql.position import binlog_position
from pipeline.sources.positions import locate_position, may_contain
from tests.patience import SOON

names = (f"p3_connect_{n}" for n in count())
Answers = dict[str, tuple[int, str]]


@contextmanager
def connect(answers: Answers) -> Iterator[ConnectCollector]:
    """A collector whose Connect gives these answers, by path below the connector."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = answers[self.path.removeprefix("/connectors/my%2Fshop")]
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_: Any) -> None:
            """Stay silent."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/"
        with closing(ConnectCollector(url, "my/shop")) as collector:
            yield collector
        server.shutdown()


def stored(*offsets: tuple[str, Any]) -> Answers:
    listed = [{"partition": {"server": server}, "offset": offset} for server, offset in offsets]
    return {
        "/offsets": (200, json.dumps({"offsets": listed})),
        "/config": (200, json.dumps({"topic.prefix": "shop"})),
    }


HEAD = b"HTTP/1.1 200 OK\r\n"
LATE = "no complete answer within 0.5 s"


@pytest.mark.parametrize(
    ("head", "parts", "why"),
    [
        pytest.param(HEAD + b"\r\n", [b" " * 2**20] * 17, "larger than 16 MiB", id="too large"),
        pytest.param(b"", [b"x"] * 100, LATE, id="a status line a byte at a time"),
        pytest.param(HEAD + b"X-Y: ", [b"x"] * 100, LATE, id="headers a byte at a time"),
        pytest.param(HEAD + b"\r\n", [b" "] * 100, LATE, id="a body a byte at a time"),
        pytest.param(
            HEAD + b"Content-Length: 100\r\n\r\n", [b" "] * 100, LATE, id="a body with a length"
        ),
        pytest.param(
            HEAD + b"Transfer-Encoding: chunked\r\n\r\n",
            [b"1\r\n \r\n"] * 100,
            LATE,
            id="a chunk at a time",
        ),
        pytest.param(
            HEAD + b"Content-Encoding: gzip\r\n\r\n", [b"x"], "encoding 'gzip'", id="compressed"
        ),
    ],
)
def test_an_answer_without_an_end_is_cut(head: bytes, parts: list[bytes], why: str) -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            with suppress(OSError):
                for part in [head, *parts]:
                    self.wfile.write(part)
                    waiting.wait(0.05 if len(part) < 10 else 0)

        def log_message(self, *_: Any) -> None:
            """Stay silent."""

    waiting = Event()
    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/"
        short = timedelta(seconds=0.5 if why == LATE else 20)
        with (
            closing(ConnectCollector(url, "shop", timeout=short)) as collector,
            pytest.raises(UnreachableError, match=why),
        ):
            collector.acknowledged()
        waiting.set()
        server.shutdown()


STREAMING = {"file": "binlog.000012", "pos": 400, "gtids": "u:1-9", "event": 3, "row": 1}
PLAIN = {"file": "mysql-bin.000003", "pos": 4}


@pytest.mark.parametrize(
    ("answers", "acknowledged"),
    [
        pytest.param(
            stored(("shop", STREAMING)),
            Acknowledged(binlog_position(12, 400, "u:1-9")),
            id="inside a transaction",
        ),
        pytest.param(
            stored(("shop", PLAIN)), Acknowledged(binlog_position(3, 4)), id="without GTIDs"
        ),
        pytest.param(
            stored(("shop", PLAIN | {"snapshot": "INITIAL"})),
            Acknowledged(binlog_position(3, 4, ""), snapshot=True),
            id="snapshot, as Debezium 3 says it",
        ),
        pytest.param(
            stored(("shop", PLAIN | {"snapshot": True})),
            Acknowledged(binlog_position(3, 4, ""), snapshot=True),
            id="snapshot, as older ones say it",
        ),
        pytest.param(
            stored(("shop", PLAIN | {"incremental_snapshot_primary_key": "x"})),
            Acknowledged(binlog_position(3, 4)),
            id="an incremental snapshot goes on beside the stream",
        ),
        pytest.param(
            stored(("old", STREAMING), ("shop", PLAIN)),
            Acknowledged(binlog_position(3, 4)),
            id="the offset of an earlier prefix is left behind",
        ),
    ],
)
def test_the_stored_offset_is_what_is_acknowledged(
    answers: Answers, acknowledged: Acknowledged
) -> None:
    with connect(answers) as collector:
        assert collector.acknowledged() == acknowledged


@pytest.mark.parametrize(
    ("answers", "why"),
    [
        pytest.param(stored(), "not stored an offset yet", id="a new connector"),
        pytest.param(stored(("shop", None)), "no position of a log", id="an offset that was reset"),
        pytest.param(stored(("shop", {"scn": 5})), "no position of a log", id="another database"),
        pytest.param(stored(("a", PLAIN), ("b", PLAIN)), "not stored", id="only earlier prefixes"),
        pytest.param(stored(("s", PLAIN | {"pos": 10**400})), "no position", id="a huge position"),
        pytest.param(stored(("s", {"lsn_commit": 10**400, "lsn": 1})), "no position", id="lsn"),
    ],
)
def test_without_a_position_nothing_is_acknowledged(answers: Answers, why: str) -> None:
    with connect(answers) as collector:
        answer = collector.acknowledged()

    assert isinstance(answer, Missing)
    assert why in answer.why


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param((404, '{"message": "no such connector"}'), id="unknown connector"),
        pytest.param((409, '{"message": "rebalance"}'), id="workers are rebalancing"),
        pytest.param((500, "oops"), id="no JSON"),
        pytest.param((200, "[]"), id="JSON of another shape"),
    ],
)
def test_an_answer_that_says_nothing_is_unreachable_and_names_the_connector(
    answer: tuple[int, str],
) -> None:
    with (
        connect({"/offsets": answer}) as collector,
        pytest.raises(UnreachableError, match="connector my/shop at 127"),
    ):
        collector.acknowledged()


def task(state: str, trace: str = "") -> dict[str, str]:
    return {"state": state, "trace": trace}


TRACE = "ConnectException: it broke\n\tat a.b.c\nCaused by: first\nCaused by: Access denied\n\tat d"


@pytest.mark.parametrize(
    ("tasks", "state"),
    [
        pytest.param([task("RUNNING")], CollectorState("running"), id="running"),
        pytest.param([task("PAUSED")], CollectorState("paused"), id="paused"),
        pytest.param(
            [task("RUNNING"), task("FAILED", TRACE)],
            CollectorState("failed", "ConnectException: it broke | Caused by: Access denied"),
            id="one task failed",
        ),
        pytest.param(
            [], CollectorState("unassigned", "the connector has no task yet"), id="no task"
        ),
        pytest.param([task("NEW_WORD")], CollectorState("new_word"), id="a state we do not know"),
    ],
)
def test_the_worst_part_decides_the_state(
    tasks: list[dict[str, str]], state: CollectorState
) -> None:
    status = {"connector": {"state": "RUNNING"}, "tasks": tasks}

    with connect({"/status": (200, json.dumps(status))}) as collector:
        assert collector.state() == state
        assert collector.state().running is (state.state == "running")


def test_a_trace_that_is_no_unicode_is_shown_with_replacements() -> None:
    status = {"connector": task("FAILED", "\ud800 it broke \U0001f600"), "tasks": []}

    with connect({"/status": (200, json.dumps(status))}) as collector:
        assert collector.state() == CollectorState("failed", "? it broke \U0001f600")


@pytest.mark.parametrize(("partition", "offset"), [("1e999", "1"), ("0", "1e999")])
def test_numbers_of_mirrormaker_that_are_infinite_are_unreachable(
    partition: str, offset: str
) -> None:
    at = f'{{"cluster": "c", "topic": "t", "partition": {partition}}}'
    offsets = f'{{"offsets": [{{"partition": {at}, "offset": {{"offset": {offset}}}}}]}}'
    config = json.dumps({"source.cluster.alias": "c"})
    with (
        connect({"/offsets": (200, offsets), "/config": (200, config)}) as collector,
        pytest.raises(UnreachableError, match="answered /offsets in a form that is not known"),
    ):
        collector.carried()


def test_config_leaves_secrets_out_and_address_is_read_from_it() -> None:
    config = {"database.hostname": "db", "database.password": "x", "sasl.jaas.config": "y"}

    with connect({"/config": (200, json.dumps(config))}) as collector:
        assert collector.address() == ("db", 3306)
        assert collector.config() == {"database.hostname": "db"}


def test_f186_no_secret_is_in_what_the_doctor_rules_on() -> None:
    config = {
        "value.converter.basic.auth.user.info": "sluice:hunter2",
        "producer.override.ssl.keystore.key": "hunter2",
        "database.sslkey": "-----BEGIN PRIVATE KEY-----hunter2",
        "table.include.list": "shop.t|http://sluice:hunter2@b",
        "key.converter.schema.registry.url": "http://b:8081",
    }

    with connect({"/config": (200, json.dumps(config))}) as collector:
        assert collector.config() == {
            "database.sslkey": "(hidden)",
            "table.include.list": "(hidden)",
            "key.converter.schema.registry.url": "http://b:8081",
        }


def test_a_config_without_an_address_is_said_so() -> None:
    with (
        connect({"/config": (200, "{}")}) as collector,
        pytest.raises(UnreachableError, match="names no database"),
    ):
        collector.address()


@dataclass
class Shop:
    """A connector of its own on the shared servers."""

    servers: Servers
    name: str

    def register(self, **settings: str) -> ConnectCollector:
        config = mysql_connector(
            self.servers.mysql,
            self.servers.kafka.bootstrap,
            prefix=self.name,
            databases=[self.name],
            settings={"database.server.id": "190101", **settings},
        )
        self.servers.connect.register(self.name, config)
        return ConnectCollector(self.servers.connect.url, self.name, timeout=SOON)

    def write(self) -> tuple[int, str]:
        """One transaction; where the log ended after it."""
        self.servers.mysql.execute(f"INSERT INTO {self.name}.t VALUES (NULL)")
        status = self.servers.mysql.execute("SHOW MASTER STATUS")[0]
        return int(status[1]), str(status[4])


@pytest.fixture
def shop(servers: Servers) -> Iterator[Shop]:
    name = next(names)
    servers.mysql.execute(
        f"CREATE DATABASE {name}", f"CREATE TABLE {name}.t (id INT AUTO_INCREMENT PRIMARY KEY)"
    )
    yield Shop(servers, name)
    servers.connect.deregister(name)


def until(what: str, said: Callable[[], bool]) -> None:
    wait_until(said, SOON, what)


@pytest.mark.stack
def test_a_transaction_is_acknowledged_once_a_later_one_has_been_read(shop: Shop) -> None:
    shop.write()
    with closing(shop.register()) as collector:
        until("the snapshot's offset", lambda: isinstance(collector.acknowledged(), Acknowledged))
        end, gtids = shop.write()

        def proven() -> bool:
            shop.write()
            now = collector.acknowledged()
            assert isinstance(now, Acknowledged)
            return not now.snapshot and _passed(now, end) and may_contain(now.position, gtids)

        until("the transaction in what is acknowledged", proven)
        assert collector.state() == CollectorState("running")
        assert collector.address() == (shop.servers.mysql.host, shop.servers.mysql.port)

        shop.servers.connect.pause(shop.name)
        until("the pause", lambda: collector.state() == CollectorState("paused"))


@pytest.mark.stack
def test_an_unfinished_transaction_is_never_acknowledged(shop: Shop) -> None:
    with closing(shop.register()) as collector:
        until("the snapshot's offset", lambda: isinstance(collector.acknowledged(), Acknowledged))
        before, _ = shop.write()
        end, gtids = shop.write()
        until("the last one begun", lambda: _passed(collector.acknowledged(), before))

        now = collector.acknowledged()

    assert isinstance(now, Acknowledged)
    assert not _passed(now, end) or may_contain(now.position, gtids)


def _passed(said: Acknowledged | Missing, pos: int) -> bool:
    return isinstance(said, Acknowledged) and locate_position(said.position)[1] >= pos


@pytest.mark.stack
def test_a_connect_that_is_down_is_unreachable() -> None:
    with (
        closing(ConnectCollector("http://127.0.0.1:1", "shop")) as collector,
        pytest.raises(UnreachableError, match="ConnectError"),
    ):
        collector.state()


def test_a_connect_whose_name_cannot_be_asked_for_is_unreachable() -> None:
    with (
        closing(ConnectCollector("http://a..b:8083", "shop")) as shop,
        pytest.raises(UnreachableError, match="UnicodeError"),
    ):
        shop.state()


def test_f186_a_secret_in_clear_text_is_refused_when_the_config_is_checked() -> None:
    with pytest.raises(ConfigError, match=r"database\.password is a secret") as told:
        ConnectCollector("http://c:1", "c", settings={"database.password": "dangerous"})

    assert "dangerous" not in str(told.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("table.include.list", None),
        ("table.include.list", ["shop.t"]),
        ("message.key.columns", 7),
        ("database.port", None),
        ("connector.class", {"a": "b"}),
    ],
)
def test_a_setting_that_is_no_text_is_an_answer_that_says_nothing(name: str, value: Any) -> None:
    config = {"database.hostname": "db", name: value}
    with connect({"/config": (200, json.dumps(config))}) as collector:
        for ask in (collector.captures, collector.config, collector.address):
            with pytest.raises(UnreachableError, match=f"with a {name} that is no text"):
                ask()


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        pytest.param("/offsets", {"offsets": None}, id="no offsets"),
        pytest.param("/offsets", {"offsets": ["a"]}, id="offsets that are texts"),
        pytest.param("/offsets", {"offsets": [{"offset": [1]}]}, id="an offset that is a list"),
        pytest.param("/status", {"tasks": 7}, id="tasks that are a number"),
        pytest.param("/status", {"connector": "RUNNING"}, id="a state that is a text"),
    ],
)
def test_an_answer_of_another_form_says_nothing(path: str, answer: Any) -> None:
    with connect({path: (200, json.dumps(answer))}) as collector:
        ask = collector.state if path == "/status" else collector.acknowledged
        with pytest.raises(UnreachableError, match=f"answered {path} in a form that is not known"):
            ask()


def test_an_answer_that_is_nested_too_deeply_says_nothing() -> None:
    with (
        connect({"/config": (200, '{"a":' * 100_000)}) as collector,
        pytest.raises(UnreachableError, match="no JSON"),
    ):
        collector.captures()


def test_a_connector_of_odd_patterns_is_held_alone_with_a_reason() -> None:
    deep = "(" * 500 + "a" + ")" * 500
    config = {
        "table.include.list": deep,
        "message.key.columns": f"{deep}:id",
        "column.exclude.list": deep,
    }

    with connect({"/config": (200, json.dumps(config))}) as collector:
        found = collector.captures()

    assert not found.known
    assert "table.include.list: '((((" in found.said_by
    assert found.alters is not None
    assert found.alters("shop.t.c") == "column.exclude.list"


@pytest.mark.parametrize("url", ["http://bob:hunter2@c:0", "ftp://bob:hunter2@c", "bob:hunter2@c"])
def test_no_login_of_a_wrong_address_is_shown(url: str) -> None:
    settings = CollectorSettings(url=url, connector="shop", key="/k.pem")

    with pytest.raises(ConfigError) as refused:
        ConnectCollector(url, "shop")

    assert "(hidden)@c" in str(refused.value)
    assert "hunter2" not in str(refused.value)
    assert "hunter2" not in repr(settings)
    assert "connector='shop'" in repr(settings)
    assert "key='/k.pem'" in repr(settings)


def test_a_collector_shows_no_login_of_its_address() -> None:
    collector = ConnectCollector("https://bob:hunter2@c:8083", "shop")

    assert "hunter2" not in repr(collector)
    assert "connector='shop'" in repr(collector)
    collector.close()
