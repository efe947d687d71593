"""A Connect that keeps what is registered, and refuses what it is told to refuse."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from ssl import SSLContext
from threading import Thread
from typing import Any


@dataclass(eq=False)
class FakeConnect:
    """``refusal`` is what a PUT is answered with, if anything; ``changes`` counts those it took.

    ``plugins`` is what it says of the connectors it knows.
    """

    url: str = ""
    registered: dict[str, dict[str, str]] = field(default_factory=dict)
    refusal: str = ""
    changes: int = 0
    plugins: Any = ()

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        """Status and JSON."""
        if path == "/connector-plugins":
            return 200, self.plugins
        name, _, what = path.removeprefix("/connectors/").partition("/")
        if method == "PUT" and self.refusal:
            return 400, {"message": self.refusal}
        if method == "PUT":
            self.changes += 1
            self.registered[name] = {**body, "name": name}
        if name not in self.registered:
            return 404, {"message": f"Connector {name} not found"}
        if what == "status":
            return 200, {"connector": {"state": "RUNNING"}, "tasks": [{"state": "RUNNING"}]}
        return 200, self.registered[name] if what == "config" else {"offsets": []}


@contextmanager
def fake_connect(tls: SSLContext | None = None) -> Iterator[FakeConnect]:
    """One that listens on a free port, by https if *tls* is how."""
    fake = FakeConnect()

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            size = int(self.headers.get("content-length") or 0)
            body = json.loads(self.rfile.read(size)) if size else None
            status, found = fake.answer(self.command, self.path, body)
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps(found).encode())

        do_GET = do_PUT = _answer  # noqa: N815  - as the standard library calls them

        def log_message(self, *_: Any) -> None:
            """Stay silent."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
            server.handle_error = lambda *_: None  # type: ignore[method-assign]  # who hangs up
        fake.url = f"http{'s' * (tls is not None)}://127.0.0.1:{server.server_port}"
        yield fake
        server.shutdown()
