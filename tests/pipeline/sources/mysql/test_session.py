"""Who signs in with an odd password is known, and a host that cannot be dialled is told."""

import io
import random
import socket
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha1
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from pipeline.errors import ConfigError, UnreachableError
from pipeline.settings import CollectorSettings, SourceSettings
from pipeline.sources.mysql import session as session_module
from pipeline.sources.mysql.session import LONGEST, Session, TextRows

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
    with pytest.raises(UnreachableError, match=r"^source:shop: down: ") as told:
        session(host, 3306, "x").ask("SELECT 1")

    assert not told.value.sent


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
    monkeypatch.setattr(session_module, "MOST_RECEIVED", 200)
    wire = Wire(ONE_ROW + rest)

    with pytest.raises(UnreachableError, match=why) as told:
        on(wire).rows("SELECT 1")

    assert told.value.sent
    assert wire.closed
    assert not wire.answer.unbuffered_active  # nobody reads on when it is let go


Row = Sequence[bytes | None]
END = b"\x05\x00\x00\x09\xfe\x00\x00\x02\x00"


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param([], id="none"),
        pytest.param([(b"1", b"x"), (b"2", None), (None, b"")], id="null is not empty"),
        pytest.param([(b"y" * 250, b"1"), (b"y" * 251, b"2"), (b"y" * 300, None)], id="two bytes"),
        pytest.param([(b"1", b"z" * 70_000), (b"2", b"z")], id="three bytes"),
    ],
)
@pytest.mark.parametrize("cut", [1, 3, 7, 1_000_000])
def test_rows_come_out_as_they_went_in(rows: list[Row], cut: int) -> None:
    found = received(rows, cut if len(b"".join(map(payload, rows))) < 10_000 else 1_000)

    assert values(found, [True, False]) == [(None if a is None else a.decode(), b) for a, b in rows]


def test_random_rows_cut_anywhere() -> None:
    chance = random.Random(3)
    for _ in range(200):
        width = chance.randint(1, 5)
        rows = [[random_value(chance) for _ in range(width)] for _ in range(chance.randint(0, 30))]

        found = received(rows, chance.randint(1, 400))

        assert values(found, [False] * width) == [tuple(row) for row in rows]


def test_a_row_of_several_packets_is_one_row() -> None:
    rows = [(b"a", b"1"), (b"b" * (LONGEST - 8), b"2"), (b"c" * (LONGEST + 5), b"3"), (b"d", b"")]

    found = received(rows, 1 << 20)

    assert values(found, [False, False]) == rows


def test_a_long_value_in_front_is_not_taken_for_the_end() -> None:
    """Both begin with the same byte."""
    long = b"\xfe" + (3).to_bytes(8, "little") + b"abc"
    found = TextRows()
    found.take(len(long).to_bytes(3, "little") + b"\x01" + long + END)

    assert values(found, [True]) == [("abc",)]


def test_an_error_after_some_rows_ends_the_answer() -> None:
    found = TextRows()
    found.take(b"\x02\x00\x00\x01\x011" + b"\x04\x00\x00\x02\xff\xd0\x0b!")

    assert found.ended
    assert found.error == b"\xff\xd0\x0b!"


def test_a_text_that_is_none_is_told() -> None:
    with pytest.raises(pa.ArrowInvalid, match="UTF8"):
        received([(b"\xff",)], 9).columns([True])


def received(rows: Sequence[Row], cut: int) -> TextRows:
    found, sent = TextRows(), b"".join(packets(rows)) + END
    for first in range(0, len(sent), cut):
        assert not found.ended
        found.take(sent[first : first + cut])
    assert found.ended
    assert not found.error
    return found


def values(found: TextRows, texts: Sequence[bool]) -> list[tuple[object, ...]]:
    batch = found.columns(texts)
    return list(zip(*(column.to_pylist() for column in batch.columns), strict=True))


def packets(rows: Sequence[Row]) -> Iterator[bytes]:
    for row in rows:
        rest, last = payload(row), LONGEST
        while last == LONGEST:
            part, rest = rest[:LONGEST], rest[LONGEST:]
            last = len(part)
            yield last.to_bytes(3, "little") + b"\x07" + part


def payload(row: Row) -> bytes:
    return b"".join(b"\xfb" if value is None else length(len(value)) + value for value in row)


def length(number: int) -> bytes:
    if number < 251:
        return bytes([number])
    first, width = (0xFC, 2) if number < 2**16 else (0xFD, 3) if number < 2**24 else (0xFE, 8)
    return bytes([first]) + number.to_bytes(width, "little")


def random_value(chance: random.Random) -> bytes | None:
    kind = chance.random()
    return None if kind < 0.1 else chance.randbytes(chance.choice([0, 1, 9, 250, 251, 400]))
