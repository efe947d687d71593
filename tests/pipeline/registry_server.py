"""A registry of a test's own: it tells what it is given, or fails as it is told to."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any

from pipeline.formats import schema_registry

NOT_THERE = json.dumps({"error_code": 40403, "message": "Schema not found"})


@dataclass(eq=False)
class Answers:
    """What it answers: ``whole`` instead of schemas, ``hanging`` until it is released."""

    url: str = ""
    schemas: dict[int, str] = field(default_factory=dict)
    whole: tuple[int, str] | None = None
    hanging: bool = False
    asked: list[tuple[str, str]] = field(default_factory=list)
    released: Event = field(default_factory=Event)

    def to(self, path: str) -> tuple[int, str]:
        if self.hanging:
            self.released.wait()
        if self.whole is not None:
            return self.whole
        found = self.schemas.get(int(path.rpartition("/")[2]))
        return (404, NOT_THERE) if found is None else (200, json.dumps({"schema": found}))


@contextmanager
def registry_server() -> Iterator[Answers]:
    """A server on a free port, stopped in the end."""
    answers = Answers()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answers.asked.append((self.path, self.headers.get("authorization", "")))
            status, text = answers.to(self.path)
            self.send_response(status)
            self.send_header("content-length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: Any) -> None:
            """Stay silent."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        answers.url = f"http://127.0.0.1:{server.server_port}/apis/ccompat/v7/"
        yield answers
        answers.released.set()
        server.shutdown()
    for one in [one for one in schema_registry.known_schemas if one[0] == answers.url]:
        del schema_registry.known_schemas[one]  # the next server may get the same port
