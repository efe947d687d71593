"""Who signs in with an odd password is known, and a host that cannot be dialled is told."""

import io
import socket
import threading
from dataclasses import dataclass, field
from hashlib import sha1
from types import SimpleNamespace
from typing import Any

import pytest

from pipeline.errors import ConfigError, UnreachableError
from pipeline.settings import CollectorSettings, SourceSettings
from pipeline.sources.mysql import session as session_module
from pipeline.sources.mysql.session import Session

SALT = b"twenty bytes of salt"
DENIED = b"\xff" + (1045).to_bytes(2, "little") + b"#28000denied"


def session(host: str, port: int, password: str) -> Session:
    collector = CollectorSettings("http://127.0.0.1:1", "shop")
    return Session(SourceSettings("shop", host, port, "sluice", collector, "shop", password))


def packet(number: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "little") + bytes([number]) + payload


def greeting() -> bytes:
    """A server of version 8 that wants mysql_native_password."""
    old, new = 0x8200.to_bytes(2, "little"), 0x0008.to_bytes(2, "little")  # its capabilities
    head = b"\x0a8.0.15\0" + bytes(4) + SALT[:8] + b"\0" + old + b"\xff\x02\x00" + new
    return packet(0, head + b"\x15" + bytes(10) + SALT[8:] + b"\0mysql_native_password\0")


def overheard(server: socket.socket, heard: list[bytes]) -> None:
    """Greet, note what stands for the password, and deny."""
    server.settimeout(5)  # who never calls is found by the assertion
    try:
        caller, _ = server.accept()
    except TimeoutError:
        return
    with caller:
        caller.sendall(greeting())
        said = caller.recv(4096)[4 + 32 :].partition(b"\0")[2]
        heard.append(said[1 : 1 + said[0]])
        caller.sendall(packet(2, DENIED))


def fits(answer: bytes, password: bytes) -> bool:
    """As a server judges, that keeps the password hashed twice."""
    kept = sha1(sha1(password).digest()).digest()  # noqa: S324  - the protocol's own
    mask = sha1(SALT + kept).digest()  # noqa: S324
    once = bytes(a ^ b for a, b in zip(answer, mask, strict=True))
    return sha1(once).digest() == kept  # noqa: S324


@pytest.mark.parametrize("password", ["p@ss:w/rd%", "blümchen", "€", "🔑 % \\ ' \""])
def test_a_password_of_any_letters_is_sent_as_the_server_keeps_it(password: str) -> None:
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=overheard, args=(server, heard))
        thread.start()
        try:
            with pytest.raises(ConfigError, match="denied"):
                session("127.0.0.1", server.getsockname()[1], password).ask("SELECT 1")
        finally:
            thread.join()

    assert [fits(answer, password.encode()) for answer in heard] == [True]


@pytest.mark.parametrize("host", ["db..example", "d" * 64 + ".example"])
def test_a_host_whose_name_cannot_be_asked_for_is_told(host: str) -> None:
    with pytest.raises(UnreachableError, match=r"^source:shop: down: "):
        session(host, 3306, "x").ask("SELECT 1")


@dataclass(eq=False)
class Wire:
    """A connection on which an answer has begun: what comes after its columns were told."""

    sent: bytes
    closed: bool = False
    answer: SimpleNamespace = field(
        default_factory=lambda: SimpleNamespace(
            converters=[("ascii", None)], unbuffered_active=True
        )
    )

    def __post_init__(self) -> None:
        self._rfile = io.BytesIO(self.sent)

    def cursor(self, _: type) -> Any:
        return SimpleNamespace(execute=lambda *_: None, _result=self.answer)

    def _force_close(self) -> None:
        self.closed = True


ONE_ROW = packet(5, b"\x011")


def on(wire: Wire) -> Session:
    made = session("127.0.0.1", 1, "")
    made._connection = wire
    return made


def test_rows_of_an_answer_are_read_to_its_end() -> None:
    wire = Wire(ONE_ROW + packet(6, b"\xfe\0\0\2\0") + b"the next answer")

    rows = on(wire).rows("SELECT 1")

    assert rows.column(0).to_pylist() == ["1"]
    assert not wire.closed


@pytest.mark.parametrize(
    ("rest", "why"),
    [
        pytest.param(b"", "source:shop: down: Lost connection", id="the server died"),
        pytest.param(
            packet(6, b"\xff" + (3024).to_bytes(2, "little") + b"#HY000too long"),
            "source:shop: slow: too long",
            id="its time was over",
        ),
        pytest.param(
            packet(6, b"\xfa" + bytes(300)), "source:shop: slow: more than", id="too much"
        ),
    ],
)
def test_an_answer_that_breaks_off_is_no_answer_and_its_connection_is_dropped(
    monkeypatch: pytest.MonkeyPatch, rest: bytes, why: str
) -> None:
    monkeypatch.setattr(session_module, "MOST", 200)
    wire = Wire(ONE_ROW + rest)

    with pytest.raises(UnreachableError, match=why):
        on(wire).rows("SELECT 1")

    assert wire.closed
    assert not wire.answer.unbuffered_active  # nobody reads on when it is let go
