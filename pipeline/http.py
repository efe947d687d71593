"""Sends HTTP requests whose answers are bounded in time and size.

What answers at an address need not be the server that was meant.  The timeouts of httpx are one
for each part of an answer, so an answer that comes byte by byte would never end.
"""

import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, cast

import httpx

LARGEST_ANSWER = 16 * 2**20  # bytes: the offsets or the config of a connector have some kB

_CONNECTED = (".connect_tcp.complete", ".start_tls.complete")  # also through a proxy
_IDENTITY = "identity"  # a compressed answer of some kB may hold many GB


class BoundedClient(httpx.Client):
    """A client whose timeout is one for the whole of a request and its answer.

    The body is bounded by ``LARGEST_ANSWER``, and may be compressed only where the caller streams
    it.  Each request has a connection of its own, because that is what the deadline cuts.  A proxy
    of the environment is used only with *trust_env*: one for the internet does not lead to a
    service in the same network.

    Every request raises httpx.ReadTimeout when its answer is not complete in time, httpx.ReadError
    when it is too large, and httpx.DecodingError when it is compressed all the same.
    """

    def __init__(
        self,
        *,
        timeout: timedelta,
        verify: ssl.SSLContext | bool,
        trust_env: bool = False,
        base_url: str = "",
        auth: tuple[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(
            timeout=timeout.total_seconds(),
            verify=verify,
            trust_env=trust_env,
            base_url=base_url,
            auth=auth,
            headers={"Accept-Encoding": _IDENTITY, **(headers or {})},
            limits=httpx.Limits(max_keepalive_connections=0),
        )

    def send(
        self, request: httpx.Request, *, stream: bool = False, **options: Any
    ) -> httpx.Response:
        """Send *request*; its read timeout bounds everything up to the last byte of the body."""
        deadline = _Deadline(request.extensions["timeout"]["read"])
        request.extensions["trace"] = deadline.watch
        deadline.start()
        try:
            answer = super().send(request, stream=True, **options)
            body = cast(httpx.SyncByteStream, answer.stream)
            answer.stream = _BoundedBody(body, deadline)
            if not stream:
                with closing(answer):
                    _require_plain(answer)
                    answer.read()
        except httpx.TransportError as error:
            deadline.cancel()
            deadline.check(error)
            raise
        except BaseException:
            deadline.cancel()
            raise
        return answer


def _require_plain(answer: httpx.Response) -> None:
    if (coding := answer.headers.get("Content-Encoding", _IDENTITY)) != _IDENTITY:
        raise httpx.DecodingError(f"the answer has the encoding {coding[:20]!r}, not asked for")


@dataclass(eq=False)
class _Deadline:
    """Cuts the connection of one request after so many ``seconds``."""

    seconds: float
    over: bool = False
    _stream: Any = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def start(self) -> None:
        self._timer = threading.Timer(self.seconds, self._end)
        self._timer.daemon = True
        self._timer.start()

    def cancel(self) -> None:
        self._timer.cancel()

    def check(self, error: httpx.TransportError | None = None) -> None:
        """Raise httpx.ReadTimeout instead of *error* if the connection was cut."""
        if self.over and not isinstance(error, httpx.TimeoutException):
            raise httpx.ReadTimeout(f"no complete answer within {self.seconds:g} s") from error

    def watch(self, event: str, info: Mapping[str, Any]) -> None:
        """Take note of the connection: httpcore's ``trace`` passes it once it is made."""
        if event.endswith(_CONNECTED):
            with self._lock:
                self._stream = info["return_value"]
                if self.over:
                    self._cut()

    def _end(self) -> None:
        with self._lock:
            self.over = True
            if self._stream is not None:
                self._cut()

    def _cut(self) -> None:
        with suppress(OSError):  # it is closed already
            socket.socket.shutdown(self._stream.get_extra_info("socket"), socket.SHUT_RDWR)


@dataclass(frozen=True, slots=True)
class _BoundedBody(httpx.SyncByteStream):
    """A body whose last byte comes in time, below ``LARGEST_ANSWER``."""

    body: httpx.SyncByteStream
    deadline: _Deadline

    def __iter__(self) -> Iterator[bytes]:
        size = 0
        for part in self.body:
            size += len(part)
            if size > LARGEST_ANSWER:
                raise httpx.ReadError(f"the answer is larger than {LARGEST_ANSWER // 2**20} MiB")
            yield part
        self.deadline.check()  # without a Content-Length a connection that is cut looks complete

    def close(self) -> None:
        """Close the connection, and end the deadline."""
        self.deadline.cancel()
        self.body.close()
