"""The API in a thread of its own; its port is bound before anything else is started."""

import socket
import threading
from dataclasses import dataclass, field

import uvicorn
from fastapi import FastAPI

from pipeline.errors import ConfigError


@dataclass(eq=False)
class HttpServer:
    """Serves one application; ``port`` is the one that was really bound."""

    host: str
    port: int
    _socket: socket.socket = field(init=False)
    _server: uvicorn.Server | None = None
    _thread: threading.Thread | None = None

    def __post_init__(self) -> None:
        """Take the port.

        Raises:
            ConfigError: somebody else has it, or it is not ours to take.
        """
        try:
            self._socket = socket.create_server((self.host, self.port))
        except OSError as error:
            msg = f"http: cannot listen on {self.host}:{self.port}: {error.strerror or error}"
            raise ConfigError(msg) from error
        # each connection takes it over: else the second part of an answer waits for some 40 ms
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.port = int(self._socket.getsockname()[1])

    @property
    def address(self) -> str:
        """Where it answers."""
        return f"http://{self.host}:{self.port}"

    @property
    def alive(self) -> bool:
        """Whether its thread runs."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def answers(self) -> bool:
        """Whether it has begun to answer."""
        return self._server is not None and self._server.started

    def start(self, app: FastAPI) -> None:
        """Begin to answer."""
        config = uvicorn.Config(
            app, log_config=None, access_log=False, timeout_graceful_shutdown=3, lifespan="off"
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [self._socket]}, name="http", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Finish what is being answered, at most some seconds long."""
        if self._server is not None and self._thread is not None:
            self._server.should_exit = True
            self._thread.join(timeout=6)
        self._socket.close()
