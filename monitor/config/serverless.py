"""Which sources have no server, and so need no host, port and user?"""

from collections.abc import Mapping
from typing import Any

from pipeline import collectors, plugins
from pipeline.errors import ConfigError
from pipeline.settings import SourceSettings

NOWHERE: Mapping[str, Any] = {"host": "localhost", "port": 1, "user": "nobody"}


def placed_nowhere(source: Mapping[str, Any]) -> dict[str, Any]:
    """*source* with an address that says nothing, where its kind of collector reads no server.

    A kind that is not there is told when it is built.
    """
    collector = source.get("collector")
    kind = collector.get("kind") if isinstance(collector, Mapping) else None
    if not isinstance(kind, str) or not kind or source.keys() >= NOWHERE.keys():
        return dict(source)
    try:
        found = plugins.find(collectors, "COLLECTOR", kind)
    except ConfigError:
        return dict(source)
    return {**NOWHERE, **source} if getattr(found, "serverless", False) else dict(source)


def is_nowhere(source: SourceSettings) -> bool:
    """Whether that is its address."""
    return all(getattr(source, name) == value for name, value in NOWHERE.items())
