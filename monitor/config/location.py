"""Reads service address, API token, store and time zone from a config, and nothing else.

So a job at the gate loads no model of the file and needs no secret of a source. While a file is
being edited, a fault elsewhere in it does not prevent requests, as long as it is valid YAML.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from monitor.config.text import (
    build_config_error,
    expand_environment,
    parse_mapping,
    read_text,
    resolve_path,
    resolve_secrets,
)
from pipeline.clocks import no_zone

HOST, PORT, STORE, ZONE = "127.0.0.1", 8088, "sluice.db", "UTC"  # as in the model, by a test
SECTIONS = ("http", "store", "time_zone")
EVERYWHERE = ("", "0.0.0.0", "::")  # noqa: S104  - not bound here


@dataclass(frozen=True, slots=True)
class ServiceLocation:
    """Address of the service without a final slash, file of its store, and time zone.

    ``token`` is empty if the config names none, or one that this user cannot read.
    """

    address: str
    store: Path
    zone: ZoneInfo
    token: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Secret:
    """The keys of ``http.auth`` that are read."""

    token: str = field(default="", repr=False)


def read_location(path: Path) -> ServiceLocation:
    """Read the location from the config in *path*.

    Raises:
        ConfigError: the file is unreadable, or one of these values is invalid.
    """
    text = read_text(path)
    raw = parse_mapping(text, path)
    kept = {name: raw[name] for name in SECTIONS if name in raw}
    token = ""
    if isinstance(section := kept.get("http"), Mapping):
        token = _token(section.get("auth"), path)
        kept["http"] = {key: value for key, value in section.items() if key != "auth"}
    known, unset = expand_environment(kept, "")
    http, store = known.get("http", {}), known.get("store", STORE)
    zone = known.get("time_zone", ZONE)
    faults = unset or [*_no_server(http), *_no_file(store), *_no_zone(zone)]
    if faults:
        raise build_config_error(path, faults, text)
    host, port = http.get("host", HOST), http.get("port", PORT)
    host = HOST if host in EVERYWHERE else host
    name = f"[{host}]" if ":" in host else host
    return ServiceLocation(
        f"http://{name}:{port}", Path(resolve_path(store, path)), ZoneInfo(zone), token
    )


def _token(auth: Any, path: Path) -> str:
    """Return the token; empty if unreadable: then reads work, and the service refuses writes."""
    if not isinstance(auth, Mapping):
        return ""
    known, _ = resolve_secrets({"token": auth.get("token")}, Secret, "http.auth", path.parent)
    return str(known.get("token", ""))


def _no_server(http: Any) -> list[str]:
    if not isinstance(http, Mapping):
        return ["http: must be a mapping, such as {host: 127.0.0.1, port: 8088}"]
    host, port = http.get("host", HOST), http.get("port", PORT)
    faults = [] if isinstance(host, str) else [f"http.host: {host!r} is not a host"]
    if not isinstance(port, int) or not 0 <= port <= 65535:
        faults.append(f"http.port: {port!r} is not a port; use 1 to 65535")
    return faults


def _no_file(store: Any) -> list[str]:
    return [] if isinstance(store, str) and store else ["store: must be the path of a file"]


def _no_zone(zone: Any) -> list[str]:
    try:
        ZoneInfo(zone)
    except (LookupError, OSError, TypeError, ValueError, AttributeError):
        return [f"time_zone: {no_zone(zone)}"]
    return []
