"""Serves S3's API on this machine, one request at a time, with failures on demand: a program.

moto checks whether a key exists and then writes it, without a lock: of 100 races of eight writers
with many thread switches, seven had two winners. Here no other request runs in between. Objects are
in memory only.

    python -m demo.s3_server PORT ACCESS_KEY BUCKET
"""

import os
import sys
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from moto.moto_server.werkzeug_app import MotoRequestHandler, create_backend_app
from werkzeug.serving import make_server
from werkzeug.test import Client

FAULT = "/-/fault"  # no bucket can have this name
Environment = dict[str, Any]
Application = Callable[[Environment, Callable[..., Any]], Iterable[bytes]]


class Fault(StrEnum):
    """A failure of the store, from one `PUT /-/fault` to the next."""

    NONE = ""
    SLOW_DOWN = "slow_down"  # each request is refused, as if there were too many
    HANG = "hang"  # no request is answered before the fault ends
    LOST_ANSWER = "lost_answer"  # an entry of a log is written, but its writer gets an error
    UNCONDITIONAL = "unconditional"  # a condition of a write is ignored
    NO_CONDITIONS = "no_conditions"  # a write with a condition is refused


@dataclass(eq=False)
class Store:
    """*moto* behind a lock, a fault and a key."""

    moto: Application
    key: str
    fault: Fault = Fault.NONE
    _turn: threading.Lock = field(default_factory=threading.Lock)
    _healed: threading.Condition = field(default_factory=threading.Condition)

    def __call__(self, environment: Environment, start: Callable[..., Any]) -> Iterable[bytes]:
        """Answer one request."""
        if environment["PATH_INFO"] == FAULT:
            return self._told(environment, start)
        with self._healed:
            self._healed.wait_for(lambda: self.fault is not Fault.HANG)
        conditional = "HTTP_IF_NONE_MATCH" in environment
        if f"Credential={self.key}/" not in environment.get("HTTP_AUTHORIZATION", ""):
            return _refusal(start, "403 Forbidden", "InvalidAccessKeyId")
        if self.fault is Fault.SLOW_DOWN:
            return _refusal(start, "503 Slow Down", "SlowDown")
        if self.fault is Fault.NO_CONDITIONS and conditional:
            return _refusal(start, "501 Not Implemented", "NotImplemented")
        if self.fault is Fault.UNCONDITIONAL:
            environment.pop("HTTP_IF_NONE_MATCH", None)
        if self.fault is Fault.LOST_ANSWER and conditional and "_delta_log" in _path(environment):
            self._served(environment, lambda *_: None)
            return _refusal(start, "500 Internal Server Error", "InternalError")
        return self._served(environment, start)

    def _served(self, environment: Environment, start: Callable[..., Any]) -> Iterable[bytes]:
        with self._turn:
            return list(self.moto(environment, start))

    def _told(self, environment: Environment, start: Callable[..., Any]) -> Iterable[bytes]:
        size = int(environment.get("CONTENT_LENGTH") or 0)
        with self._healed:
            self.fault = Fault(environment["wsgi.input"].read(size).decode())
            self._healed.notify_all()
        start("204 No Content", [])
        return []


def _path(environment: Environment) -> str:
    return str(environment["PATH_INFO"])


def _refusal(start: Callable[..., Any], status: str, code: str) -> Iterable[bytes]:
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code></Error>".encode()
    start(status, [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))])
    return [body]


class _Silent(MotoRequestHandler):
    """A logger that is silent, because a line for each request would be too many."""

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Log nothing."""


def main(port: int, key: str, bucket: str) -> None:
    """Serve until the process is ended; *bucket* exists from the start."""
    os.environ.setdefault("MOTO_S3_DEFAULT_KEY_BUFFER_SIZE", str(64 << 20))  # keys stay in memory
    moto = create_backend_app("s3")
    Client(moto).put(f"/{bucket}", base_url=f"http://127.0.0.1:{port}")
    store = Store(moto, key)
    make_server("127.0.0.1", port, store, threaded=True, request_handler=_Silent).serve_forever()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3])
