"""Somebody who is told of lineage, by HTTP, on a port of this machine."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Receiver(BaseHTTPRequestHandler):
    """Keeps what it took, each with its Authorization; waits for ``go_on`` before it answers."""

    answers: list[int]
    headers_of_refusals: dict[str, str]
    heard: list[tuple[str | None, dict[str, Any]]]
    go_on: threading.Event

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.go_on.wait(10)
        status = self.answers.pop(0) if self.answers else 201
        if status == 201:
            self.heard.append((self.headers["Authorization"], json.loads(body)))
        self.send_response(status)
        for name, value in self.headers_of_refusals.items() if status != 201 else ():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def receiver(*answers: int, **headers: str) -> Iterator[tuple[str, type[Receiver]]]:
    """Its address, and what it has heard; it answers *answers*, then 201.

    *headers* are those of each answer that is not 201, with ``_`` for ``-``.
    """
    go_on = threading.Event()
    go_on.set()

    class Own(Receiver):
        pass

    kind: type[Receiver] = Own
    kind.headers_of_refusals = {name.replace("_", "-"): text for name, text in headers.items()}
    kind.answers, kind.heard, kind.go_on = list(answers), [], go_on
    server = ThreadingHTTPServer(("127.0.0.1", 0), kind)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/api/v1/lineage", kind
    finally:
        go_on.set()
        server.shutdown()
        server.server_close()
