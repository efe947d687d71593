"""One HTTP POST: what does the answer mean for a letter?

Addresses of receivers are often secrets: errors name the host only.
"""

import logging
from collections.abc import Mapping
from datetime import timedelta
from email.utils import parsedate_to_datetime

import httpx

from alerts.outbox import BusyError, RefusedError
from pipeline.authorities import vouched
from pipeline.errors import ConfigError, UnreachableError

_SUCCESS = range(200, 300)
_REDIRECT = range(300, 400)
_COME_AGAIN = frozenset({408, 425, 429})
_SERVER_ERROR = 500
_ANSWER_CHARACTERS = 200


def post(url: str, body: bytes, headers: Mapping[str, str], timeout: timedelta) -> None:
    """Send JSON *body*; return only when the receiver has taken it.

    Raises:
        BusyError: 408, 425, 429 or 5xx, with the pause it asks for.
        UnreachableError: no answer within *timeout*.
        RefusedError: any other answer.
    """
    logging.getLogger("httpx").setLevel(logging.WARNING)  # at INFO it writes whole addresses
    host = httpx.URL(url).host
    try:
        answer = httpx.post(
            url,
            content=body,
            headers={"Content-Type": "application/json", **headers},
            timeout=timeout.total_seconds(),
            verify=vouched(url),
        )
    except httpx.TransportError as error:
        raise UnreachableError(f"{host} did not answer: {type(error).__name__}") from None
    _judge(answer, host)


def check_address(url: str, what: str) -> None:
    """Refuse an address that no POST can go to; the message does not repeat it.

    Raises:
        ConfigError: it is not an http or https address with a host.
    """
    try:
        address = httpx.URL(url)
    except httpx.InvalidURL:
        address = httpx.URL()
    if address.scheme not in {"http", "https"} or not address.host:
        raise ConfigError(f"{what}: url must be an http:// or https:// address")


def _judge(answer: httpx.Response, host: str) -> None:
    status = answer.status_code
    if status in _SUCCESS:
        return
    if status in _COME_AGAIN or status >= _SERVER_ERROR:
        raise BusyError(f"{host} answered {status}", _pause(answer))
    said = " ".join(answer.text.split())[:_ANSWER_CHARACTERS]
    if status in _REDIRECT:
        said = "it has moved; set its new address"
    raise RefusedError(f"{host} answered {status}: {said}")


def _pause(answer: httpx.Response) -> timedelta | None:
    """Read Retry-After, seconds or a date; a date counts from the answer's own Date."""
    asked = answer.headers.get("Retry-After", "")
    if asked.isdigit():
        return timedelta(seconds=min(int(asked), 86_400))
    try:
        until = parsedate_to_datetime(asked)
        since = parsedate_to_datetime(answer.headers.get("Date", ""))
        return max(until - since, timedelta())
    except (ValueError, TypeError):
        return None
