"""A letter takes as long as its timeout says, however slowly the receiver speaks or listens."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta

import pytest

from alerts.http import post_json
from alerts.outbox import BusyError, RefusedError
from demo.processes import wait_until
from pipeline.errors import UnreachableError

Speaks = Callable[[socket.socket, threading.Event], None]
HEAD = b"HTTP/1.1 %d x\r\nContent-Type: text/plain\r\nContent-Length: 1000000\r\n\r\n"


def _whole_request(there: socket.socket) -> None:
    """Read a request with the body ``{}``: a socket closed over unread bytes resets its peer."""
    read = b""
    while not read.endswith(b"\r\n\r\n{}"):
        read += there.recv(65_536)


def _drip(there: socket.socket, over: threading.Event, text: bytes) -> None:
    for place in range(len(text)):
        there.sendall(text[place : place + 1])
        if over.wait(0.1):
            break


def _heading(there: socket.socket, over: threading.Event) -> None:
    there.recv(65_536)
    _drip(there, over, HEAD % 200 + b"x" * 1000)


def _refusal(there: socket.socket, over: threading.Event) -> None:
    _whole_request(there)
    there.sendall(HEAD % 400)
    _drip(there, over, b"no " * 1000)


def _taken(there: socket.socket, over: threading.Event) -> None:
    _whole_request(there)
    there.sendall(HEAD % 200)
    _drip(there, over, b"ok " * 1000)


def _deaf(there: socket.socket, over: threading.Event) -> None:
    while not over.wait(0.1):
        there.recv(1_000)


def _flood(there: socket.socket, over: threading.Event) -> None:
    _whole_request(there)
    there.sendall(b"HTTP/1.1 400 x\r\nConnection: close\r\n\r\n")
    while not over.is_set():
        there.sendall(b"no way " * 10_000)


@contextmanager
def _receiver(speaks: Speaks) -> Iterator[str]:
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with suppress(OSError), server.accept()[0] as there:
                speaks(there, over)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}/letters"
        finally:
            over.set()
            thread.join(5)


@pytest.mark.parametrize(
    ("speaks", "size", "error", "said"),
    [
        pytest.param(_heading, 30_000_000, UnreachableError, "did not answer: ", id="head"),
        pytest.param(_deaf, 30_000_000, UnreachableError, "did not answer: ", id="reads slowly"),
        pytest.param(_refusal, 2, RefusedError, "answered 400: no", id="a refusal"),
    ],
)
def test_a_receiver_that_drips_bytes_outlasts_no_deadline(
    speaks: Speaks, size: int, error: type[Exception], said: str
) -> None:
    """Each byte came within the timeout, so that an answer could take for ever."""
    body = b"{}".rjust(size)
    with _receiver(speaks) as url:
        began = time.monotonic()

        with pytest.raises(error, match=rf"127\.0\.0\.1 {said}"):
            post_json(url, body, {}, timedelta(seconds=0.7))

        assert time.monotonic() - began < 30, "all of it would take minutes"


def test_what_was_taken_was_taken_whatever_is_said_of_it() -> None:
    with _receiver(_taken) as url:
        began = time.monotonic()

        post_json(url, b"{}", {}, timedelta(seconds=60))

        assert time.monotonic() - began < 30


def test_of_an_endless_refusal_the_beginning_is_told() -> None:
    with _receiver(_flood) as url, pytest.raises(RefusedError) as told:
        post_json(url, b"{}", {}, timedelta(seconds=20))

    assert str(told.value).startswith("127.0.0.1 answered 400: no way no way")
    assert len(str(told.value)) < 300


def test_no_timer_is_left_behind() -> None:
    with _receiver(_taken) as url:
        post_json(url, b"{}", {}, timedelta(minutes=5))

    wait_until(
        lambda: not [one for one in threading.enumerate() if isinstance(one, threading.Timer)],
        timedelta(seconds=30),
        "the end of its timer",
    )


def _answering(head: str, body: bytes = b"no such room") -> Speaks:
    text = f"HTTP/1.1 {head}\r\nConnection: close\r\n\r\n".encode() + body

    def speaks(there: socket.socket, over: threading.Event) -> None:
        _whole_request(there)
        there.sendall(text)

    return speaks


def test_a_refusal_that_is_cut_short_is_a_refusal() -> None:
    """A receiver may refuse a request, and close, before it has read all of it."""

    def speaks(there: socket.socket, over: threading.Event) -> None:
        _whole_request(there)
        there.sendall(b"HTTP/1.1 413 x\r\nContent-Length: 99\r\n\r\ntoo large")

    with _receiver(speaks) as url, pytest.raises(RefusedError, match="answered 413: too large"):
        post_json(url, b"{}", {}, timedelta(seconds=20))


@pytest.mark.parametrize(
    ("head", "body", "said"),
    [
        ("400 x\r\nContent-Encoding: gzip", b"no gzip", "compressed"),
        ("400 x\r\nContent-Encoding: gzip, gzip, gzip", b"\x1f\x8b", "compressed"),
        ("400 x\r\nContent-Type: text/plain; charset=idna", b"no such room", "no such room"),
        ("400 x\r\nContent-Type: text/plain; charset=hex", b"no such room", "no such room"),
        ("400 x\r\nContent-Type: text/plain; charset=undefined", b"no room", "no room"),
        ("400 x\r\nContent-Type: text/plain", b"\xff\xfe no", "no"),
        ("302 x\r\nLocation: http://[", b"", "it has moved"),
        ("302 x\r\nLocation: http://xn--zzzzzzzzz/", b"", "it has moved"),
    ],
    ids=[
        "no gzip",
        "gzip in gzip",
        "a charset that decodes no text",
        "a charset of bytes",
        "a charset that refuses all",
        "no UTF-8",
        "a redirect to no address",
        "a redirect to no name",
    ],
)
def test_an_odd_refusal_is_a_refusal(head: str, body: bytes, said: str) -> None:
    """An error of another kind paused the channel for ever: its oldest letter was never refused."""
    with _receiver(_answering(head, body)) as url, pytest.raises(RefusedError) as refused:
        post_json(url, b"{}", {}, timedelta(seconds=20))

    assert str(refused.value).startswith(f"127.0.0.1 answered {head[:3]}: ")
    assert said in str(refused.value)


DATE = "Date: Fri, 27 Nov 2026 00:00:00 GMT\r\n"


@pytest.mark.parametrize(
    ("told", "pause"),
    [
        ("Retry-After: 30", timedelta(seconds=30)),
        ("Retry-After: \u00b2", None),
        ("Retry-After: " + "9" * 5000, timedelta(days=1)),
        ("Retry-After: 99999999", timedelta(days=1)),
        (DATE + "Retry-After: Fri, 27 Nov 2026 00:01:00 GMT", timedelta(minutes=1)),
        (DATE + "Retry-After: Fri, 31 Dec 9999 00:00:00 GMT", timedelta(days=1)),
        (DATE + "Retry-After: Fri, 27 Nov 2026 00:01:00 +" + "9" * 30, None),
        (DATE + "Retry-After: Fri, 27 Nov 2026 00:01:00 +" + "9" * 5000, None),
        (DATE + "Retry-After: Fri, \u00b2 Nov 2026 00:01:00 GMT", None),
        (DATE + "Retry-After: , ,", None),
    ],
    ids=[
        "seconds",
        "a digit that is no number",
        "5,000 digits",
        "years",
        "a date",
        "the last year",
        "a zone of many hours",
        "a zone of 5,000 digits",
        "a day that is no number",
        "commas",
    ],
)
def test_an_odd_pause_is_a_pause(told: str, pause: timedelta | None) -> None:
    with _receiver(_answering(f"503 x\r\n{told}")) as url, pytest.raises(BusyError) as busy:
        post_json(url, b"{}", {}, timedelta(seconds=20))

    assert busy.value.after == pause


@pytest.mark.parametrize("url", ["http://192.0.2.1:9/letters", "http://127.0.0.1:1/letters"])
def test_what_goes_in_clear_text_goes_to_no_proxy_of_the_environment(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The proxy, another machine, would read its credentials."""
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        proxy.setblocking(False)
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.getsockname()[1]}")

        with pytest.raises(UnreachableError, match="did not answer"):
            post_json(url, b"{}", {"Authorization": "Bearer x"}, timedelta(seconds=0.5))

        with pytest.raises(BlockingIOError):
            proxy.accept()
