"""The API's own socket."""

import contextlib
import resource
import socket
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from monitor.web import api
from monitor.web import server as web_server
from monitor.web.metrics import CONTENT_TYPE
from monitor.web.server import HttpServer, LimitedProtocol, raise_open_files
from tests.monitor.rig import USERS, Rig
from tests.patience import wait_for


@pytest.fixture
def accepted(monkeypatch: pytest.MonkeyPatch) -> list[LimitedProtocol]:
    """Every connection that the server has accepted."""
    found, made = list[LimitedProtocol](), LimitedProtocol.connection_made

    def note(connection: LimitedProtocol, transport: Any) -> None:
        found.append(connection)
        made(connection, transport)

    monkeypatch.setattr(LimitedProtocol, "connection_made", note)
    return found


def test_an_answer_is_sent_at_once_and_waits_for_nobody_to_confirm_its_first_half(
    rig: Rig, accepted: list[LimitedProtocol]
) -> None:
    with _served(rig) as server, socket.create_connection(("127.0.0.1", server.port)):
        wait_for(lambda: accepted)

        opened = accepted[0].transport.get_extra_info("socket")

        assert opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_prometheus_gets_the_newest_board_in_its_own_format(rig: Rig) -> None:
    rig.round()
    server = HttpServer("127.0.0.1", 0)
    server.start(api.build_application(rig.api_parts()))

    answer = httpx.get(f"{server.address}/metrics", trust_env=False)
    server.stop()

    assert (answer.status_code, answer.headers["content-type"]) == (200, CONTENT_TYPE)
    families = {one.name: one for one in text_string_to_metric_families(answer.text)}
    tables = {sample.labels["table"] for sample in families["sluice_readiness"].samples}
    assert USERS in tables


@contextlib.contextmanager
def _served(rig: Rig) -> Iterator[HttpServer]:
    rig.round()
    server = HttpServer("127.0.0.1", 0)
    server.start(api.build_application(rig.api_parts()))
    try:
        yield server
    finally:
        server.stop()


def test_f142_half_open_connections_keep_no_health_check_out(
    rig: Rig, accepted: list[LimitedProtocol], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web_server, "most_connections", lambda: 64)
    with _served(rig) as server, contextlib.ExitStack() as stack:
        opened = []
        for _ in range(300):
            one = stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            one.sendall(b"GET /livez HTTP/1.1\r\n")
            opened.append(one)

        answers = [httpx.get(f"{server.address}/livez", trust_env=False) for _ in range(5)]

        assert [one.status_code for one in answers] == [200] * 5
        assert len(accepted) >= 300
        assert len(accepted[0].connections) <= 64


@contextlib.contextmanager
def _never_reading(server: HttpServer, count: int) -> Iterator[list[socket.socket]]:
    """Clients that ask for far more than socket buffers hold, and read none of it."""
    ask = b"GET /images/status.png HTTP/1.1\r\nHost: localhost\r\n\r\n" * 100
    with contextlib.ExitStack() as stack:
        opened = []
        for _ in range(count):
            one = stack.enter_context(socket.socket())
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
            one.connect(("127.0.0.1", server.port))
            one.settimeout(5)
            with contextlib.suppress(TimeoutError):
                one.sendall(ask)
            opened.append(one)
        yield opened


def test_clients_that_never_read_keep_no_health_check_out(
    rig: Rig, accepted: list[LimitedProtocol], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web_server, "most_connections", lambda: 8)
    with _served(rig) as server, _never_reading(server, 8):
        wait_for(lambda: [one.flow.write_paused for one in accepted] == [True] * 8)

        answers = [httpx.get(f"{server.address}/livez", trust_env=False) for _ in range(5)]

    assert [one.status_code for one in answers] == [200] * 5


def test_a_client_that_does_not_read_in_time_is_disconnected(
    rig: Rig, accepted: list[LimitedProtocol], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LimitedProtocol, "write_time", 0.2)
    with _served(rig) as server, _never_reading(server, 1):
        wait_for(lambda: accepted and not accepted[0].connections)

        assert httpx.get(f"{server.address}/livez", trust_env=False).status_code == 200


@pytest.mark.parametrize(
    "begun",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"GET /livez HTTP/1.1\r\nHost: x\r\n", id="half a header"),
        pytest.param(
            b"POST /v1/pauses HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{",
            id="half a body",
        ),
    ],
)
def test_f142_a_request_that_is_not_complete_in_time_is_ended(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, begun: bytes
) -> None:
    monkeypatch.setattr(LimitedProtocol, "header_time", 0.3)
    monkeypatch.setattr(LimitedProtocol, "body_time", 0.3)
    with (
        _served(rig) as server,
        socket.create_connection(("127.0.0.1", server.port), timeout=5) as half,
    ):
        half.sendall(begun)
        try:
            rest = half.recv(1)
        except ConnectionResetError:
            rest = b""

    assert rest == b""


def test_f142_a_body_beyond_its_limit_is_413(rig: Rig) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield b" " * 2**16

    small = {"tables": [USERS], "reason": "a", "who": "b"}
    known = rig.client.post("/v1/pauses", content=b" " * (2**20 + 1))
    chunked = rig.client.post("/v1/pauses", content=chunks())

    assert (known.status_code, chunked.status_code) == (413, 413)
    assert "larger than 1048576 bytes" in known.json()["error"]
    assert rig.client.post("/v1/pauses", json=small).status_code != 413


def test_f142_open_files_are_raised_to_the_hard_limit() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (512, before[1]))

        found = raise_open_files()

        assert found == resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 512
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
