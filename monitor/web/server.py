"""Runs the API in its own thread; its port is bound before anything else starts."""

import asyncio
import resource
import socket
import threading
from dataclasses import dataclass, field
from typing import Any, ClassVar

import h11
import structlog
import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from pipeline.errors import ConfigError

HEADER_TIME, BODY_TIME = 10.0, 60.0  # seconds until the header and the body are complete
WRITE_TIME = 30.0  # seconds in which a client must read what was written to it
MOST_CONNECTIONS, FEWEST_CONNECTIONS = 2_000, 64
OTHER_FILES = 300  # open files of store, sources, Kafka and lake
ENOUGH_FILES, MOST_FILES = 4_096, 65_536
log = structlog.get_logger(__name__)


def raise_open_files() -> int:
    """Raise the limit of open files to the hard limit; return the limit that applies now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    found = MOST_FILES if soft == resource.RLIM_INFINITY else soft
    if found < ENOUGH_FILES:
        said = f"the limit of open files is {found}; increase the hard limit to {ENOUGH_FILES}"
        log.warning(said, command=f"ulimit -Hn {ENOUGH_FILES}")
    return found


def most_connections() -> int:
    """Return the limit of connections: other components need the remaining open files."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = MOST_FILES if soft == resource.RLIM_INFINITY else soft
    return max(FEWEST_CONNECTIONS, min(MOST_CONNECTIONS, files - OTHER_FILES))


class LimitedProtocol(H11Protocol):
    """One connection; closed when its request is not complete, or its answer not read, in time.

    When there are too many connections, the idle one whose time ends first is closed for a new one.
    A connection whose client does not read counts as idle. So neither half-open connections nor
    clients that never read block a health check.
    """

    most: ClassVar[int] = MOST_CONNECTIONS
    header_time: ClassVar[float] = HEADER_TIME
    body_time: ClassVar[float] = BODY_TIME
    write_time: ClassVar[float] = WRITE_TIME
    _timer: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None
    _timed: object = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Close an idle connection if there are too many, and start the timer of the header."""
        super().connection_made(transport)
        if len(self.connections) > self.most:
            # the set has no order; each timer starts at the last step of its connection
            idle = [one for one in self.connections if one is not self and _is_idle(one)]
            oldest = min(idle, key=_due, default=self)
            self.connections.discard(oldest)
            oldest.transport.abort()
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Read a part of a request, and limit the wait for the rest."""
        super().data_received(data)
        self._watch()

    def pause_writing(self) -> None:
        """Limit the wait for a client that does not read."""
        super().pause_writing()
        self._limit_unread()

    def resume_writing(self) -> None:
        """Cancel the limit of :meth:`pause_writing`, because the client has read."""
        super().resume_writing()
        self._forget_unread()

    def on_response_complete(self) -> None:
        """Limit the wait for a client that does not read the end of the last answer."""
        super().on_response_complete()
        if self.transport.is_closing():
            self._limit_unread()

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection, and limit the wait for its client."""
        super().timeout_keep_alive_handler()
        self._limit_unread()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the timers."""
        self._forget()
        self._forget_unread()
        super().connection_lost(exc)

    def _watch(self) -> None:
        state = self.conn.their_state
        if state not in (h11.IDLE, h11.SEND_BODY):
            self._forget()
        elif self._timer is None or self._timed is not state:
            self._forget()
            time = self.header_time if state is h11.IDLE else self.body_time
            self._timer, self._timed = self.loop.call_later(time, self._end), state

    def _forget(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _limit_unread(self) -> None:
        if self._unread is None and self.transport.get_write_buffer_size():
            self._unread = self.loop.call_later(self.write_time, self.transport.abort)

    def _forget_unread(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _end(self) -> None:
        self._timer = None
        self.transport.abort()


def _is_idle(one: Any) -> bool:
    """Tell whether no complete request of a client that reads is being answered on it."""
    unanswered = one.cycle is None or one.cycle.response_complete or one.cycle.more_body
    return unanswered or one.flow.write_paused


def _due(one: Any) -> float:
    timer = one._unread or one._timer or one.timeout_keep_alive_task
    return 0.0 if timer is None else float(timer.when())


@dataclass(eq=False)
class HttpServer:
    """Serves one application; ``port`` is the port that was bound."""

    host: str
    port: int
    _socket: socket.socket = field(init=False)
    _server: uvicorn.Server | None = None
    _thread: threading.Thread | None = None

    def __post_init__(self) -> None:
        """Bind the port.

        Raises:
            ConfigError: another process has the port, or this user may not use it.
        """
        try:
            self._socket = socket.create_server((self.host, self.port))
        except OSError as error:
            msg = (
                f"http: cannot listen on {self.host}:{self.port}:"
                f" {error.strerror or error}; change http.port"
            )
            raise ConfigError(msg) from error
        # connections inherit it; otherwise the second part of an answer waits for about 40 ms
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.port = int(self._socket.getsockname()[1])

    @property
    def address(self) -> str:
        """Return the URL of the server."""
        return f"http://{self.host}:{self.port}"

    @property
    def alive(self) -> bool:
        """Tell whether the server's thread runs."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def answers(self) -> bool:
        """Tell whether the server has started to answer."""
        return self._server is not None and self._server.started

    def start(self, app: FastAPI) -> None:
        """Start to answer."""
        limits = {"most": most_connections()}
        config = uvicorn.Config(
            app,
            http=type("Connection", (LimitedProtocol,), limits),
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=3,
            lifespan="off",
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [self._socket]}, name="http", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Finish running answers, for at most a few seconds."""
        if self._server is not None and self._thread is not None:
            self._server.should_exit = True
            self._thread.join(timeout=6)
        self._socket.close()
