"""How the verbs ask the running service; an answer is JSON, silence is one clear error."""

from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any

from monitor.config.whereabouts import whereabouts
from pipeline.errors import ConfigError, UnreachableError

PATIENCE = 30.0


def address(server: str | None, config: Path) -> str:
    """Where the service answers: *server*, or what the config says."""
    return server.rstrip("/") if server else whereabouts(config).address


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
    import httpx  # noqa: PLC0415  - help needs none, and it is half of what a verb waits for

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
    if answer.status_code == HTTPStatus.BAD_REQUEST:
        raise ConfigError(str(found.get("error", found)))
    if answer.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR:
        raise UnreachableError(f"{url}: {found.get('error', found)}")
    return answer.status_code, found
