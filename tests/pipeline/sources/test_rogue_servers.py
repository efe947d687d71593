"""Servers that are not what the config says get no password, and fill no memory.

No password leaves for a server that the config does not name, or in clear text.
"""

import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from pipeline.copies.postgres import PostgresCopy
from pipeline.copies.redis import RedisCopy
from pipeline.errors import ConfigError, SlowError, UnreachableError
from pipeline.settings import CollectorSettings, SourceSettings
from pipeline.sources import sql
from pipeline.sources.mysql import session as mysql_session
from pipeline.sources.mysql.session import CLEAR_TEXT, Session
from pipeline.sources.postgres import session as postgres_session
from pipeline.sources.postgres.session import PostgresSession
from pipeline.sources.source import Limits
from tests.pipeline.certificates import Authority

PASSWORD = "s3cret-of-the-source"
SOURCE = SourceSettings(
    *("shop", "127.0.0.1", 1, "u", CollectorSettings("http://c", "shop"), "shop"), password=PASSWORD
)
MYSQL_FLAGS = 0x0008_8200 | 0x1  # PLUGIN_AUTH, SECURE_CONNECTION, PROTOCOL_41
SSL_REQUEST = bytes.fromhex("0000000804d2162f")  # of the PostgreSQL protocol


def _mysql_packet(number: int, body: bytes) -> bytes:
    return struct.pack("<I", len(body))[:3] + bytes([number]) + body


def _greet(link: socket.socket) -> bytes:
    """What a client of MySQL sends to log in."""
    low, high = MYSQL_FLAGS & 0xFFFF, MYSQL_FLAGS >> 16
    hello = b"\x0a8.0.36\0" + struct.pack("<I", 7) + b"12345678\0"
    hello += struct.pack("<HBHHB", low, 45, 2, high, 21) + bytes(10)
    hello += b"123456789012\0mysql_native_password\0"
    link.sendall(_mysql_packet(0, hello))
    return link.recv(4096)


def _mysql(asked: str) -> Callable[[socket.socket], Iterator[bytes]]:
    """A MySQL server that wants the password by the plug-in *asked*."""

    def speak(link: socket.socket) -> Iterator[bytes]:
        yield _greet(link)
        prompt = b"\x04Password: " if asked == "dialog" else b"12345678901234567890\0"
        link.sendall(_mysql_packet(2, b"\xfe" + asked.encode() + b"\0" + prompt))
        yield link.recv(4096)

    return speak


def _postgres(link: socket.socket) -> Iterator[bytes]:
    """A Postgres server that wants the password itself."""
    yield link.recv(4096)
    link.sendall(b"R" + struct.pack(">II", 8, 3))
    yield link.recv(4096)


def _send_on(link: socket.socket, rows: bytes) -> None:
    with suppress(OSError):  # the client has hung up
        while True:
            link.sendall(rows)


def _until_asked(link: socket.socket, done: bytes) -> Iterator[bytes]:
    """Answer *done* to each SET, up to the first other statement."""
    while b"SET " in (heard := link.recv(4096)):
        yield heard
        link.sendall(done)
    yield heard


def _mysql_asked(link: socket.socket) -> Iterator[bytes]:
    """A MySQL server up to the columns of its first answer."""
    yield _greet(link)
    done = b"\0\0\0\2\0\0\0"
    link.sendall(_mysql_packet(2, done))
    yield from _until_asked(link, _mysql_packet(1, done))
    column = b"\3def\0\0\0\1n\0\x0c" + struct.pack("<HIBHBH", 45, 40, 253, 0, 0, 0)
    head = [b"\1", column, b"\xfe\0\0\2\0"]
    link.sendall(b"".join(_mysql_packet(n, body) for n, body in enumerate(head, start=1)))


def _mysql_without_end(link: socket.socket) -> Iterator[bytes]:
    """A MySQL server whose answers have no last row."""
    yield from _mysql_asked(link)
    _send_on(link, b"".join(_mysql_packet(n % 256, b"\4more") for n in range(4, 4 + 256)))


def _mysql_one_row(link: socket.socket) -> Iterator[bytes]:
    """A MySQL server whose first answer has one row."""
    yield from _mysql_asked(link)
    link.sendall(_mysql_packet(4, b"\3one") + _mysql_packet(5, b"\xfe\0\0\2\0"))
    yield link.recv(4096)


def _postgres_message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack(">I", len(body) + 4) + body


def _postgres_row(value: bytes) -> bytes:
    return _postgres_message(b"D", b"\0\1" + struct.pack(">I", len(value)) + value)


POSTGRES_READY = _postgres_message(b"Z", b"I")
POSTGRES_END = _postgres_message(b"C", b"SELECT\0") + POSTGRES_READY


def _postgres_asked(link: socket.socket, kind: int = 25) -> Iterator[bytes]:
    """A Postgres server up to the columns of its first answer: one, of the type *kind*."""
    yield link.recv(4096)
    utf8 = _postgres_message(b"S", b"client_encoding\0UTF8\0")
    link.sendall(_postgres_message(b"R", bytes(4)) + utf8 + POSTGRES_READY)
    yield from _until_asked(link, _postgres_message(b"C", b"SET\0") + POSTGRES_READY)
    column = b"\0\1n\0" + struct.pack(">IHIhih", 0, 0, kind, -1, -1, 0)
    link.sendall(_postgres_message(b"T", column))


def _postgres_without_end(link: socket.socket) -> Iterator[bytes]:
    """A Postgres server whose answers have no last row."""
    yield from _postgres_asked(link)
    _send_on(link, _postgres_row(b"more") * 256)


def _postgres_one_row(link: socket.socket) -> Iterator[bytes]:
    """A Postgres server whose first answer has one row."""
    yield from _postgres_asked(link)
    link.sendall(_postgres_row(b"one") + POSTGRES_END)
    yield link.recv(4096)


def _postgres_value(kind: int, value: bytes) -> Callable[[socket.socket], Iterator[bytes]]:
    """A Postgres server whose first answer is *value*, of the type with the number *kind*."""

    def speak(link: socket.socket) -> Iterator[bytes]:
        yield from _postgres_asked(link, kind)
        link.sendall(_postgres_row(value) + POSTGRES_END)
        yield link.recv(4096)

    return speak


@dataclass(eq=False)
class Rogue:
    """Listens on a port of its own, and keeps all that it is sent."""

    speak: Callable[[socket.socket], Iterator[bytes]]
    heard: list[bytes] = field(default_factory=list)
    listener: socket.socket = field(default_factory=lambda: socket.create_server(("127.0.0.1", 0)))

    @property
    def port(self) -> int:
        return int(self.listener.getsockname()[1])

    def serve(self) -> None:
        link, _ = self.listener.accept()
        with closing(link):
            link.settimeout(10)
            self.heard.extend(self.speak(link))


@contextmanager
def rogue(speak: Callable[[socket.socket], Iterator[bytes]]) -> Iterator[Rogue]:
    """It, until its one client has hung up."""
    made = Rogue(speak)
    thread = threading.Thread(target=made.serve)
    thread.start()
    try:
        yield made
    finally:
        thread.join(20)
        made.listener.close()


@pytest.mark.parametrize("plugin", CLEAR_TEXT)
def test_f160_a_mysql_server_that_asks_for_the_password_itself_gets_none(plugin: str) -> None:
    with rogue(_mysql(plugin)) as server:
        session = Session(replace(SOURCE, port=server.port))
        with closing(session), pytest.raises(UnreachableError, match="clear text"):
            session.ask("SELECT 1")

    assert len(server.heard) == 2
    assert server.heard[1] == b""
    assert PASSWORD.encode() not in b"".join(server.heard)


def test_f160_a_postgres_server_that_asks_for_the_password_itself_gets_none() -> None:
    with rogue(_postgres) as server:
        session = PostgresSession(replace(SOURCE, port=server.port), "shop")
        with closing(session), pytest.raises(UnreachableError, match="cleartext password"):
            session.ask("SELECT 1")

    assert server.heard[1:] == [b""]
    assert PASSWORD.encode() not in b"".join(server.heard)


@pytest.mark.parametrize(
    ("host", "tls", "secured"),
    [
        ("10.0.0.7", None, True),
        ("db.example", None, True),
        ("db.example", False, False),
        ("127.0.0.1", None, False),
        ("::1", None, False),
        ("localhost", None, False),
        ("/run/postgresql", None, False),
        ("127.0.0.1", True, True),
    ],
)
def test_f160_tls_is_required_where_a_network_lies_between(
    host: str, *, tls: bool | None, secured: bool
) -> None:
    assert replace(SOURCE, host=host, tls=tls).secured is secured


@pytest.mark.parametrize(
    ("host", "port", "followed"),
    [
        pytest.param("DB1.example.", 3307, True, id="its own host, at any port"),
        pytest.param("db2.example", 5, True, id="a listed host, at any port"),
        pytest.param("db3.example", 3306, True, id="a listed port"),
        pytest.param("db3.example", 3307, False, id="another port"),
        pytest.param("2001:db8:0::1", 1, True, id="an address in another spelling"),
        pytest.param("2001:db8::2", 3306, True, id="an address with its port"),
        pytest.param("2001:db8::2", 1, False, id="an address at another port"),
        pytest.param("db1.example.evil.example", 3306, False, id="a name that begins alike"),
        pytest.param("127.0.0.1", 3306, False, id="this machine, which is not named"),
        pytest.param("", 3306, False, id="no host"),
    ],
)
def test_f160_only_servers_that_the_config_names_are_followed(
    host: str, port: int, *, followed: bool
) -> None:
    listed = ("DB2.example", "db3.example:3306", "2001:db8::1", "[2001:db8::2]:3306")
    source = replace(SOURCE, host="db1.example", follow_hosts=listed)

    if followed:
        assert source.at(host, port) == replace(source, host=host, port=port)
        return
    with pytest.raises(UnreachableError, match="add it to follow_hosts") as told:
        source.at(host, port)
    assert f"reads {host}:{port}" in str(told.value)


@pytest.mark.parametrize(
    ("changed", "host", "port", "followed"),
    [
        pytest.param({}, "localhost", 1, True, id="its own port, in another spelling"),
        pytest.param({}, "127.0.0.1", 3307, False, id="whoever listens at another port"),
        pytest.param({"follow_hosts": ("localhost:3307",)}, "127.0.0.1", 3307, True, id="listed"),
        pytest.param({"follow_hosts": ("127.0.0.1:2",)}, "127.0.0.1", 3307, False, id="another"),
        pytest.param({"follow_hosts": ("127.0.0.1",)}, "localhost", 3307, True, id="any port"),
        pytest.param({"tls": True}, "127.0.0.1", 3307, True, id="a server with a certificate"),
        pytest.param(
            {"host": "db", "tls": False}, "db", 3307, False, id="a host without certificates"
        ),
    ],
)
def test_f160_without_a_certificate_another_port_is_followed_only_if_listed(
    changed: dict[str, Any], host: str, port: int, *, followed: bool
) -> None:
    source = replace(SOURCE, **changed)

    if followed:
        assert source.at(host, port) == replace(source, host=host, port=port)
        return
    with pytest.raises(UnreachableError, match="add it to follow_hosts"):
        source.at(host, port)


def test_f164_the_authority_of_a_source_is_named_in_the_advice_and_one_that_is_none_refused(
    tmp_path: Path,
) -> None:
    source = replace(SOURCE, tls=True, ca=str(tmp_path / "ca.pem"))

    assert "for 127.0.0.1 that the system trusts: set ca:" in replace(source, ca="").tls_advice(
        "SSL error", source.host
    )
    assert f"for 127.0.0.1 that {tmp_path}/ca.pem trusts" in source.tls_advice(
        "SSL error", source.host
    )
    assert source.tls_advice("Access denied", source.host) == ""
    with (
        closing(Session(source)) as session,
        pytest.raises(ConfigError, match=r"source:shop: ca: .*ca\.pem"),
    ):
        session.ask("SELECT 1")


def test_f160_a_server_without_tls_gets_nothing_where_tls_is_needed_and_the_fix_is_told() -> None:
    with rogue(_mysql("mysql_clear_password")) as server:
        session = Session(replace(SOURCE, port=server.port, tls=True))
        with closing(session), pytest.raises(UnreachableError, match="set tls: false"):
            session.ask("SELECT 1")

    assert b"".join(server.heard) == b""


def _deaf(link: socket.socket) -> Iterator[bytes]:
    """A server that has no TLS, as Postgres and Redis say it."""
    asked = link.recv(4096)
    yield asked
    link.sendall(b"N" if asked == SSL_REQUEST else b"-ERR unknown command\r\n")
    with suppress(OSError):  # the client has hung up
        yield link.recv(4096)


@pytest.mark.parametrize(
    "copy",
    [
        pytest.param(PostgresCopy("127.0.0.1", "d", "u", password=PASSWORD), id="postgres"),
        pytest.param(RedisCopy("127.0.0.1", password=PASSWORD), id="redis"),
    ],
)
def test_f164_a_copy_without_tls_gets_nothing_where_tls_is_needed_and_the_fix_is_told(
    copy: PostgresCopy | RedisCopy,
) -> None:
    with rogue(_deaf) as server:
        target = replace(copy, port=server.port, tls=True).opened("lake")
        with closing(target), pytest.raises(UnreachableError, match="set tls: false"):
            target.positions()

    assert PASSWORD.encode() not in b"".join(server.heard)


def test_f164_a_redis_copy_is_believed_by_the_named_authority_only(tmp_path: Path) -> None:
    ours, foreign = Authority(tmp_path, "ours"), Authority(tmp_path, "foreign")
    copy = RedisCopy("127.0.0.1", user="u", password=PASSWORD, tls=True)
    for trusted, host, is_sent in (
        (ours, "127.0.0.1", True),
        (foreign, "127.0.0.1", False),
        (ours, "redis.example", False),
    ):
        files = ours.certificate("redis", host)
        with rogue(lambda link, files=files: _over_tls(link, files)) as server:  # type: ignore[misc]
            own = replace(copy, port=server.port, ca=str(trusted.file))
            target = own.opened("lake")
            with closing(target), pytest.raises(UnreachableError):
                target.positions()

        assert (PASSWORD.encode() in b"".join(server.heard)) is is_sent


def _over_tls(link: socket.socket, files: tuple[Path, Path]) -> Iterator[bytes]:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*files)
    with suppress(OSError), context.wrap_socket(link, server_side=True) as secured:
        yield secured.recv(4096)


@pytest.mark.parametrize("rows", [False, True], ids=["objects", "texts"])
@pytest.mark.parametrize(
    ("speak", "open_session"),
    [
        pytest.param(_mysql_without_end, Session, id="mysql"),
        pytest.param(
            _postgres_without_end, lambda source: PostgresSession(source, "shop"), id="postgres"
        ),
    ],
)
def test_rows_without_an_end_end_with_the_connection_and_say_where(
    monkeypatch: pytest.MonkeyPatch,
    speak: Callable[[socket.socket], Iterator[bytes]],
    open_session: Callable[[SourceSettings], Session | PostgresSession],
    *,
    rows: bool,
) -> None:
    for module, limit in (
        (sql, "MOST_KEPT"),
        (mysql_session, "MOST_RECEIVED"),
        (postgres_session, "MOST_RECEIVED"),
    ):
        monkeypatch.setattr(module, limit, 2**20)
    with rogue(speak) as server:
        session = open_session(replace(SOURCE, port=server.port))
        read = session.rows if rows else session.ask
        with pytest.raises(SlowError, match="check that it reads a table and no view") as told:
            read("SELECT n FROM shop.views")
        session.close()

    assert str(told.value).startswith("source:shop: slow: more than 1 MiB are the answer")
    assert str(told.value).endswith(": SELECT n FROM shop.views")


@pytest.mark.parametrize("rows", [False, True], ids=["objects", "texts"])
@pytest.mark.parametrize(
    ("speak", "speak_next", "open_session"),
    [
        pytest.param(_mysql_without_end, _mysql_one_row, Session, id="mysql"),
        pytest.param(
            *(_postgres_without_end, _postgres_one_row),
            lambda source: PostgresSession(source, "shop"),
            id="postgres",
        ),
    ],
)
@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt])
def test_the_next_statement_is_answered_after_any_error_in_the_middle_of_an_answer(
    monkeypatch: pytest.MonkeyPatch,
    speak: Callable[[socket.socket], Iterator[bytes]],
    speak_next: Callable[[socket.socket], Iterator[bytes]],
    open_session: Callable[[SourceSettings], Session | PostgresSession],
    error: type[BaseException],
    *,
    rows: bool,
) -> None:
    def fail(*_: object) -> None:
        raise error

    with rogue(speak) as server, monkeypatch.context() as patched:
        session = open_session(replace(SOURCE, port=server.port))
        patched.setattr(session, "refuse_size", fail)
        with pytest.raises(error):
            (session.rows if rows else session.ask)("SELECT n FROM shop.views")
    with rogue(speak_next) as server, closing(session):
        session.settings = replace(SOURCE, port=server.port)
        found = session.ask("SELECT n FROM shop.orders")

    assert found == [{"n": "one"}]


def test_values_are_converted_after_the_server_has_sent_all() -> None:
    sent = threading.Event()

    def speak(link: socket.socket) -> Iterator[bytes]:
        yield from _postgres_asked(link)
        link.sendall(_postgres_row(b"m" * 2**14) * 3_000 + POSTGRES_END)  # more than sockets hold
        sent.set()
        yield link.recv(4096)

    class Watched(PostgresSession):
        def keep(self, statement: str, rows: Iterable[Mapping[str, Any]]) -> list[Any]:
            first = next(iter(rows))
            assert sent.wait(5)
            return [first, *super().keep(statement, rows)]

    with (
        rogue(speak) as server,
        closing(Watched(replace(SOURCE, port=server.port), "d")) as session,
    ):
        assert len(session.ask("SELECT n FROM shop.orders")) == 3_000


@pytest.mark.parametrize(
    "asked", ["SELECT n", f"SELECT '{'n' * 2**24}'"], ids=["answer", "statement"]
)
def test_a_postgres_server_that_stops_is_slow(monkeypatch: pytest.MonkeyPatch, asked: str) -> None:
    monkeypatch.setattr(Limits, "answer", timedelta(seconds=0.3))
    done = threading.Event()

    def speak(link: socket.socket) -> Iterator[bytes]:
        yield from _postgres_asked(link)
        link.sendall(_postgres_row(b"one"))
        done.wait(20)

    with rogue(speak) as server:
        session = PostgresSession(replace(SOURCE, port=server.port), "shop")
        with closing(session), pytest.raises(SlowError, match="source:shop: slow: wait timeout"):
            session.ask(asked)
        done.set()


@pytest.mark.parametrize(
    ("kind", "sent", "read"),
    [
        pytest.param(1186, "P1Y2M3DT4H5M6.7S", "P1Y2M3DT4H5M6.7S", id="interval"),
        pytest.param(1082, "infinity", "infinity", id="date without an end"),
        pytest.param(1082, "0044-03-15 BC", "0044-03-15 BC", id="date before the year 1"),
        pytest.param(1083, "24:00:00", "24:00:00", id="end of a day"),
        pytest.param(1266, "24:00:00+00", "24:00:00+00", id="end of a day in a zone"),
        pytest.param(1114, "-infinity", "-infinity", id="timestamp without a beginning"),
        pytest.param(1184, "10000-01-01 00:00:00+00", "10000-01-01 00:00:00+00", id="far instant"),
        pytest.param(1082, "2026-03-01", date(2026, 3, 1), id="date"),
        pytest.param(1184, "2026-03-01 01:02:03+00", datetime(2026, 3, 1, 1, 2, 3, tzinfo=UTC)),
    ],
)
def test_a_postgres_value_that_python_does_not_have_is_a_text(
    kind: int, sent: str, read: object
) -> None:
    with rogue(_postgres_value(kind, sent.encode())) as server:
        session = PostgresSession(replace(SOURCE, port=server.port), "shop")
        with closing(session):
            assert session.ask("SELECT n") == [{"n": read}]
