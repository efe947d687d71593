"""Sends HTTP requests whose responses are bounded in time and size.

Another server than the intended one may respond at an address. The timeouts of httpx apply to each
part of a response, so a response that arrives byte by byte would never end.
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
_IDENTITY = "identity"  # a compressed response of some kB may hold many GB


class BoundedClient(httpx.Client):
    """A client whose timeout covers the whole of a request and its response.

    The body is bounded by ``LARGEST_ANSWER``, and may be compressed only if the caller streams it.
    Each request has a connection of its own, because the deadline cuts the connection. A proxy of
    the environment is used only with *trust_env*: an internet proxy does not lead to a service in
    the same network.

    Every request raises httpx.ReadTimeout if its response is not complete in time, and
    httpx.ReadError if it is too large. It raises httpx.DecodingError if the response is compressed
    although the caller does not stream it.
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
        """Store the connection: httpcore's ``trace`` passes it once it is open."""
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
        with suppress(OSError):  # already closed
            socket.socket.shutdown(self._stream.get_extra_info("socket"), socket.SHUT_RDWR)


@dataclass(frozen=True, slots=True)
class _BoundedBody(httpx.SyncByteStream):
    """A body that must be complete in time, and smaller than ``LARGEST_ANSWER``."""

    body: httpx.SyncByteStream
    deadline: _Deadline

    def __iter__(self) -> Iterator[bytes]:
        size = 0
        for part in self.body:
            size += len(part)
            if size > LARGEST_ANSWER:
                raise httpx.ReadError(f"the answer is larger than {LARGEST_ANSWER // 2**20} MiB")
            yield part
        self.deadline.check()  # without a Content-Length a cut connection looks complete

    def close(self) -> None:
        """Close the connection, and end the deadline."""
        self.deadline.cancel()
        self.body.close()
