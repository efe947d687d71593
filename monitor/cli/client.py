"""Sends requests of CLI verbs to the running service, and returns its JSON answers.

A missing answer becomes one clear error. The token of the config goes only to the address of the
config. Any other address gets the value of SLUICE_TOKEN. The address of the config gets this value,
too, if the config has no token that this user can read.
"""

import os
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from monitor.config.location import read_location
from pipeline.errors import ConfigError, UnreachableError
from pipeline.settings import is_https

PATIENCE = 30.0
PROBLEM = "application/problem+json"


TOKEN = "SLUICE_TOKEN"  # noqa: S105  - the name of an environment variable


class ServiceAddress(str):
    """The address of the service, with its token; as text it is the address alone."""

    __slots__ = ("token",)
    token: str


def service_address(server: str | None, config: Path) -> str:
    """Return the address of the service: *server*, or that of the config.

    The token of the config goes only to the address of the config. Any other address, or a config
    without a token that this user can read, gets the value of SLUICE_TOKEN.
    """
    if server:
        return _origin(server)
    known = read_location(config)
    found = ServiceAddress(known.address)
    found.token = known.token
    return found


def _origin(server: str) -> str:
    """Return *server* without a final slash.

    Raises:
        ConfigError: it is not just scheme, host and port.
    """
    try:
        parts = urlsplit(server)
        port = parts.port
    except ValueError as error:
        raise ConfigError(f"--server {server}: {error}; write http://host:port") from error
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise ConfigError(f"--server {server}: is not an address; write http://host:port")
    if parts.path.strip("/") or parts.query or parts.fragment or "@" in parts.netloc:
        msg = f"--server {server}: contains more than an address"
        raise ConfigError(f"{msg}; write {parts.scheme}://{parts.netloc.rpartition('@')[2]}")
    return server.rstrip("/")


def quote_name(name: str) -> str:
    """Return *name* as one part of the path of a URL.

    Raises:
        ConfigError: it contains bytes that are not text.
    """
    try:
        return quote(name, safe="")
    except UnicodeEncodeError as error:
        raise ConfigError(f"{name!r} is not valid text; use UTF-8") from error


def get_list(base: str, path: str, params: Mapping[str, Any] | None = None) -> list[Any]:
    """GET a list. Raises what :func:`send_request` raises."""
    found = send_request("GET", base + path, params=params, **_bearer(base))
    if not isinstance(found, list):
        raise _stranger(base + path)
    return found


def get_mapping(
    base: str, path: str, key: str, params: Mapping[str, Any] | None = None, wait: float = 0.0
) -> dict[str, Any]:
    """GET a mapping that contains *key*. Raises what :func:`send_request` raises."""
    found = send_request("GET", base + path, wait, params=params, **_bearer(base))
    return _require_key(key, found, base + path)


def send_post(base: str, path: str, key: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """POST; return the answer, a mapping that contains *key*.

    Raises what :func:`send_request` raises, and ConfigError if the subject of the request is
    unknown.
    """
    return _send_request("POST", base, path, key, body)


def send_delete(base: str, path: str, key: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """DELETE, as :func:`send_post`."""
    return _send_request("DELETE", base, path, key, body)


def _send_request(
    method: str, base: str, path: str, key: str, body: Mapping[str, Any]
) -> dict[str, Any]:
    found = send_request(method, base + path, json=body, **_bearer(base))
    return _require_key(key, found, base + path)


def _bearer(base: str) -> dict[str, Any]:
    """Return the token as a header; empty without a token."""
    token = getattr(base, "token", "") or os.environ.get(TOKEN, "")
    return {"headers": {"Authorization": f"Bearer {token}"}} if token else {}


def send_request(method: str, url: str, wait: float = 0.0, **rest: Any) -> Any:
    """Send one request; return the JSON of the answer for any status that is not an error.

    Raises:
        UnreachableError: no service answers there, or it is not Sluice.
        ConfigError: the service refuses the request.
    """
    import httpx  # noqa: PLC0415  - help needs none, and it is half of what a verb waits for

    rest |= {"timeout": PATIENCE + wait, "trust_env": False, "verify": is_https(url)}
    try:
        answer = httpx.request(method, url, **rest)
        found = answer.json()
    except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
        raise ConfigError(f"{url}: {error}; write http://host:port") from error
    except UnicodeEncodeError as error:
        raise ConfigError(f"{error.object!r} is not valid text; use UTF-8") from error
    except UnicodeDecodeError as error:
        raise _stranger(url) from error
    except UnicodeError as error:  # a host name that the DNS cannot encode
        raise ConfigError(f"{url}: not a valid host name; write http://host:port") from error
    except httpx.HTTPError as error:
        msg = f"no service answers at {url}: {error}; start `sluice run`, or set --server"
        raise UnreachableError(msg) from error
    except ValueError as error:
        raise _stranger(url) from error
    said = str(found.get("error", found) if isinstance(found, dict) else found)
    if answer.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR:
        raise UnreachableError(f"{url}: {said}")
    if answer.headers.get("Content-Type") == PROBLEM:  # else 404 and 409 are gate answers
        raise ConfigError(said)
    return found


def _require_key(key: str, found: Any, url: str) -> dict[str, Any]:
    if not isinstance(found, dict) or key not in found:
        raise _stranger(url)
    return found


def _stranger(url: str) -> UnreachableError:
    return UnreachableError(
        f"the server at {url} is not Sluice; set --server to the service's address"
    )
