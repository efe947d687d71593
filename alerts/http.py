"""Sends one HTTP POST, and classifies the answer as accepted, busy or refused.

Addresses of receivers are often secrets, so errors name the host only. The timeout bounds the
whole request, however slowly bytes arrive. Redirects are refused, not followed.
"""

import logging
import math
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from email.utils import parsedate_to_datetime

import httpx

from alerts.outbox import BusyError, RefusedError
from pipeline.errors import ConfigError, UnreachableError
from pipeline.http import BoundedClient
from pipeline.settings import TlsSettings, is_https, is_loopback
from pipeline.tls import verify_option

_SYSTEM = TlsSettings()
_SUCCESS = range(200, 300)
_REDIRECT = range(300, 400)
_COME_AGAIN = frozenset({408, 425, 429})
_SERVER_ERROR = 500
_ANSWER_CHARACTERS = 200
_LONGEST_PAUSE = timedelta(days=1)
_DIGITS = 9  # most digits of a number of seconds; more are longer than any pause
_HEADERS = {"Content-Type": "application/json"}


def post_json(
    url: str,
    body: bytes,
    headers: Mapping[str, str],
    timeout: timedelta,
    tls: TlsSettings = _SYSTEM,
) -> None:
    """Send JSON *body*; return only when the receiver, verified by *tls*, has accepted it.

    *timeout* limits the whole request, however slow the transfer is.

    Raises:
        BusyError: 408, 425, 429 or 5xx, with the pause that the receiver asks for.
        UnreachableError: no answer within *timeout*, or a file of *tls* cannot be used.
        RefusedError: any other answer.
    """
    logging.getLogger("httpx").setLevel(logging.WARNING)  # at INFO it logs full addresses
    host, all_headers = httpx.URL(url).host, {**_HEADERS, **headers}
    try:
        verify = verify_option(url, tls)
    except ConfigError as error:  # the files were usable when the service started
        raise UnreachableError(f"{host} cannot be verified: {error}") from error
    try:
        with BoundedClient(timeout=timeout, verify=verify, trust_env=_by_proxy(url)) as client:
            # The hook runs before httpx reads the target of a redirect, which may be invalid.
            client.event_hooks = {"response": [lambda answer: _judge(answer, host)]}
            with client.stream("POST", url, content=body, headers=all_headers):
                return
    except httpx.TransportError as error:
        raise UnreachableError(f"{host} did not answer: {type(error).__name__}") from None


def _by_proxy(url: str) -> bool:
    """Whether a proxy of the environment may be used: not for plain http, which it could read."""
    return is_https(url) and not is_loopback(httpx.URL(url).host)


def check_address(url: str) -> None:
    """Reject an address that no POST can go to; the message does not repeat it.

    Raises:
        ConfigError: it is not an http or https address with a host.
    """
    try:
        address = httpx.URL(url)
    except httpx.InvalidURL:
        address = httpx.URL()
    if address.scheme not in {"http", "https"} or not address.host:
        raise ConfigError("url: must be an http:// or https:// address")


def _judge(answer: httpx.Response, host: str) -> None:
    status = answer.status_code
    if status in _SUCCESS:
        return
    if status in _COME_AGAIN or status >= _SERVER_ERROR:
        raise BusyError(f"{host} answered {status}", _pause(answer))
    said = "it has moved; set its new address" if status in _REDIRECT else _read_beginning(answer)
    raise RefusedError(f"{host} answered {status}: {said}")


def _read_beginning(answer: httpx.Response) -> str:
    """Return the first characters of the answer, however long it is.

    It does not decompress the answer or trust its charset, because either may be wrong or an
    attack.
    """
    if answer.headers.get("Content-Encoding", "identity") != "identity":
        return "the rest of the answer is compressed"
    found = b""
    with suppress(httpx.TransportError):  # the body is cut, but its status is known
        for part in answer.iter_raw():
            found += part
            if len(found) >= 4 * _ANSWER_CHARACTERS:
                break
    return " ".join(found.decode(errors="replace").split())[:_ANSWER_CHARACTERS]


def _pause(answer: httpx.Response) -> timedelta | None:
    """Return Retry-After, in seconds or as a date relative to the Date of the answer, or None."""
    asked = answer.headers.get("Retry-After", "").strip()
    if asked.isascii() and asked.isdigit():
        seconds = int(asked) if len(asked) <= _DIGITS else math.inf
        return timedelta(seconds=min(seconds, _LONGEST_PAUSE.total_seconds()))
    try:
        until = parsedate_to_datetime(asked)
        since = parsedate_to_datetime(answer.headers.get("Date", ""))
        return min(max(until - since, timedelta()), _LONGEST_PAUSE)
    except (ValueError, TypeError, OverflowError):
        return None
