"""A real HTTP server in a thread, that answers what it is told and keeps what it got."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer


@dataclass(frozen=True, slots=True)
class Request:
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(eq=False)
class Receiver:
    """``answers`` are given in turn, the last for ever: status, headers, text."""

    url: str = ""
    answers: list[tuple[int, Mapping[str, str], str]] = field(
        default_factory=lambda: [(200, {}, "ok")]
    )
    got: list[Request] = field(default_factory=list)
    silent: threading.Event | None = None


@contextmanager
def receiving() -> Iterator[Receiver]:
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            receiver.got.append(Request(self.path, dict(self.headers), body))
            if receiver.silent is not None:
                receiver.silent.wait(timeout=30)
            answers = receiver.answers
            status, headers, text = answers.pop(0) if len(answers) > 1 else answers[0]
            self.send_response_only(status)  # without a Date of its own
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Handler)
    receiver.url = f"http://127.0.0.1:{server.server_port}/hooks/very-secret"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield receiver
    finally:
        if receiver.silent is not None:
            receiver.silent.set()
        server.shutdown()
        thread.join(timeout=10)
        server.server_close()
