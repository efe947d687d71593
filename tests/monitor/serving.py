"""An API that answers at a port of its own, for as long as a test asks it."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

from fastapi import FastAPI

from monitor.web.server import HttpServer


@contextmanager
def serving(api: FastAPI) -> Iterator[str]:
    """Its address.  The server ends behind the test's back: uvicorn takes 0.2 s to stop."""
    server = HttpServer("127.0.0.1", 0)
    server.start(api)
    try:
        yield server.address
    finally:
        Thread(target=server.stop, daemon=True).start()
