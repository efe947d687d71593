"""The API's own socket."""

import socket

import httpx
from prometheus_client.parser import text_string_to_metric_families

from monitor.web import api
from monitor.web.metrics import CONTENT_TYPE
from monitor.web.server import HttpServer
from tests.monitor.rig import USERS, Rig


def test_an_answer_is_sent_at_once_and_waits_for_nobody_to_confirm_its_first_half() -> None:
    server = HttpServer("127.0.0.1", 0)

    with socket.create_connection(("127.0.0.1", server.port)):
        accepted, _ = server._socket.accept()
        with accepted:
            at_once = accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    server.stop()

    assert at_once


def test_prometheus_gets_the_newest_board_in_its_own_format(rig: Rig) -> None:
    rig.round()
    server = HttpServer("127.0.0.1", 0)
    server.start(api.application(rig.api_parts()))

    answer = httpx.get(f"{server.address}/metrics", trust_env=False)
    server.stop()

    assert (answer.status_code, answer.headers["content-type"]) == (200, CONTENT_TYPE)
    families = {one.name: one for one in text_string_to_metric_families(answer.text)}
    tables = {sample.labels["table"] for sample in families["sluice_readiness"].samples}
    assert USERS in tables
