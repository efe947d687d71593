"""The API's own socket."""

import socket

from monitor.web.server import HttpServer


def test_an_answer_is_sent_at_once_and_waits_for_nobody_to_confirm_its_first_half() -> None:
    server = HttpServer("127.0.0.1", 0)

    with socket.create_connection(("127.0.0.1", server.port)):
        accepted, _ = server._socket.accept()
        with accepted:
            at_once = accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    server.stop()

    assert at_once
