"""How the verbs ask the running service; an answer is JSON, silence is one clear error."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx

from monitor.config.file import load
from pipeline.errors import ConfigError, UnreachableError

PATIENCE = 30.0


def address(server: str | None, config: Path) -> str:
    """Where the service answers: *server*, or what the config says."""
    if server:
        return server.rstrip("/")
    http = load(config).http
    host = "127.0.0.1" if http.host in ("", "0.0.0.0", "::") else http.host  # noqa: S104  - not bound here
    return f"http://[{host}]:{http.port}" if ":" in host else f"http://{host}:{http.port}"


def ask(
    base: str, path: str, params: Mapping[str, Any] | None = None, wait: float = 0.0
) -> tuple[int, Any]:
    """GET; status and JSON.  Raises what :func:`send` raises."""
    return send("GET", base + path, wait, params=params)


def send(method: str, url: str, wait: float = 0.0, **rest: Any) -> tuple[int, Any]:
    """One request; status and JSON of the answer.

    Raises:
        UnreachableError: nobody answers there, or it is not Sluice.
        ConfigError: the service refuses the question.
    """
    try:
        answer = httpx.request(method, url, timeout=PATIENCE + wait, trust_env=False, **rest)
        found = answer.json()
    except httpx.InvalidURL as error:
        raise ConfigError(f"{url}: {error}; write http://host:port") from error
    except httpx.HTTPError as error:
        msg = f"no service answers at {url}: {error}; is `sluice run` up?"
        raise UnreachableError(msg) from error
    except ValueError as error:
        msg = f"what answers at {url} is not Sluice"
        raise UnreachableError(msg) from error
    if answer.status_code == httpx.codes.BAD_REQUEST:
        raise ConfigError(str(found.get("error", found)))
    if answer.status_code >= httpx.codes.INTERNAL_SERVER_ERROR:
        raise UnreachableError(f"{url}: {found.get('error', found)}")
    return answer.status_code, found
