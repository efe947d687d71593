"""Clients of sources, collectors and formats, by what the settings name; nothing is asked yet."""

from collections.abc import Iterable, Mapping
from types import ModuleType
from typing import Any, cast

from pipeline import collectors, formats, plugins, sources
from pipeline.collectors.connect import ConnectCollector
from pipeline.errors import ConfigError
from pipeline.formats.format import Format
from pipeline.schema.dialect import Dialect
from pipeline.schema.reading import Reading
from pipeline.settings import SourceSettings
from pipeline.sources.mysql.source import MySqlSource


def open_source(settings: SourceSettings) -> MySqlSource:
    """A client of one source; ConfigError if its kind is not known."""
    kind = _found(settings, "kind", sources, "SOURCE", settings.kind)
    return cast("MySqlSource", kind(settings))


def dialect(settings: SourceSettings) -> Dialect:
    """What the source's kind says of columns and statements; ConfigError if it is not known."""
    return cast("Dialect", _found(settings, "kind", sources, "SOURCE", settings.kind).dialect)


def readings(every: Iterable[SourceSettings]) -> Mapping[str, Reading]:
    """How the schema changes of each source are read, by its name."""
    return {one.name: Reading(open_format(one).schema_change, dialect(one)) for one in every}


def open_collector(settings: SourceSettings) -> ConnectCollector:
    """A client of the source's collector; ConfigError if its kind is not known."""
    own = settings.collector
    kind = _found(settings, "collector.kind", collectors, "COLLECTOR", own.kind)
    return cast("ConnectCollector", kind(own.url, own.connector))


def open_format(settings: SourceSettings) -> Format:
    """The format of the source's topics; ConfigError if it is not known."""
    return cast("Format", _found(settings, "format", formats, "FORMAT", settings.format)())


def _found(settings: SourceSettings, field: str, seam: ModuleType, name: str, key: str) -> Any:
    try:
        return plugins.find(seam, name, key)
    except ConfigError as error:
        raise ConfigError(f"source {settings.name}: {field}: {error}") from error
