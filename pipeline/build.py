"""Opens the clients that the settings name, per source and for the lane; none connects yet."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from inspect import signature
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar, cast

from pipeline import collectors, formats, plugins, sources, tables, transports
from pipeline.apply.table_format import TableFormat
from pipeline.collectors.collector import USUAL, CollectedStream, CollectionScope, Collector
from pipeline.collectors.mirrormaker import behind_mirror, upstream_of
from pipeline.errors import ConfigError
from pipeline.formats.format import OPTIONAL, Format, MessageText, PlainText
from pipeline.formats.schema_registry import SchemaRegistry
from pipeline.landing.listing import Describe, LandingSource
from pipeline.plugins import build_object
from pipeline.schema.history import SchemaReader
from pipeline.schema.model import Dialect
from pipeline.settings import PipelineSettings, SourceSettings
from pipeline.sources.row_reader import RowReader
from pipeline.sources.source import Source, SourceArrivals
from pipeline.transports.per_source import OwnTopics, TransportsBySource
from pipeline.transports.transport import Transport

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")
SEAMS: Mapping[str, type] = {
    "SOURCE": Source,
    "COLLECTOR": Collector,
    "FORMAT": Format,
    "TRANSPORT": Transport,
    "ROW_READER": RowReader,
    "ARRIVALS": SourceArrivals,
    "TABLE_FORMAT": TableFormat,
}


def open_source(settings: SourceSettings) -> Source:
    """A client of one source; ConfigError if its kind is unknown."""
    kind = _source(settings)
    return cast(
        "Source", _construct(kind, settings, settings, at="options", options=settings.options)
    )


def source_options(settings: SourceSettings) -> tuple[str, ...]:
    """The names of the options that the source's kind has; ConfigError if the kind is unknown."""
    _, *names = signature(_source(settings)).parameters
    return tuple(name for name in names if not name.startswith("_"))


def source_kind(settings: SourceSettings) -> str:
    """The key of the source's kind, or the default; ConfigError if its collector is unknown."""
    return settings.kind or str(_collector(settings).usual_kind)


def open_rows(settings: SourceSettings) -> RowReader:
    """Open the row reader of one source; ConfigError if its kind has none."""
    name = settings.kind or _collector(settings).usual_kind
    kind = _find_class(settings, "kind", sources, "ROW_READER", name)
    if "notation" not in signature(kind).parameters:
        return cast("RowReader", kind(settings))
    return cast("RowReader", kind(settings, notation=open_format(settings).notation))


def open_arrivals(settings: SourceSettings) -> SourceArrivals | None:
    """Open the reader of arrivals per partition; None if the kind of source has none."""
    name = settings.kind or _collector(settings).usual_kind
    if not plugins.has_class(sources, "ARRIVALS", name):
        return None
    return cast(
        "SourceArrivals", _find_class(settings, "kind", sources, "ARRIVALS", name)(settings)
    )


def every_arrivals(every: Iterable[SourceSettings]) -> Mapping[str, SourceArrivals]:
    """Source name -> reader of arrivals, for sources whose kind has one."""
    opened = ((one.name, open_arrivals(one)) for one in every)
    return {name: one for name, one in opened if one is not None}


def open_dialect(settings: SourceSettings) -> Dialect:
    """The dialect of the source's kind; ConfigError if it is unknown."""
    return cast("Dialect", _source(settings).dialect)


def schema_readings(every: Iterable[SourceSettings]) -> Mapping[str, SchemaReader]:
    """Source name -> reader of its schema changes."""
    return {
        one.name: SchemaReader(open_format(one).schema_change, open_dialect(one)) for one in every
    }


def open_collector(settings: SourceSettings, pipeline: PipelineSettings) -> Collector:
    """A client of the source's collector; ConfigError if its kind is unknown."""
    own, kind = settings.collector, _collector(settings)
    fields, injected = signature(kind).parameters, dict[str, Any]()
    if "stream" in fields:
        injected["stream"] = _stream(settings, pipeline)
    if "unavailable" in fields:
        usual = fields["unavailable"].default
        injected["unavailable"] = settings.format_options.get("unavailable", usual)
    if "source" in fields:
        injected["source"] = settings
    given = ("url", "connector", "ca", "certificate", "key")
    injected |= {name: getattr(own, name) for name in given if name in fields}
    made = _construct(
        kind, settings, at="collector.options", options=own.options, injected=injected
    )
    return cast("Collector", made)


def _stream(settings: SourceSettings, pipeline: PipelineSettings) -> CollectedStream:
    """The stream that the collector of a source writes, at the cluster where it writes it."""
    between = settings.mirrored
    before = f"{between.alias}." if between is not None and between.alias else ""
    return CollectedStream(
        settings,
        open_source(settings),
        open_format(settings),
        open_registry(settings),
        _written_to(settings, pipeline),
        every_topic(settings),
        before,
    )


def _written_to(settings: SourceSettings, pipeline: PipelineSettings) -> Transport:
    """The transport of the topics that the collector of a source writes to."""
    if settings.mirrored is not None:
        return upstream_of(settings.mirrored)
    return _own_transport(settings) if settings.transport else _usual_transport(pipeline)


def open_feed(
    settings: SourceSettings, pipeline: PipelineSettings, describe: Describe | None = None
) -> LandingSource:
    """A source as landing reads it; *describe* returns the settings of its topics.

    Raises:
        ConfigError: its kind, collector or format is unknown.
    """
    collector = open_collector(settings, pipeline)
    return LandingSource(
        settings,
        collector,
        open_format(settings),
        open_source,
        open_dialect(settings),
        behind_mirror(settings, collector, every_topic(settings)),
        open_registry(settings),
        describe,
    )


def collection_scope(settings: PipelineSettings, source: SourceSettings) -> CollectionScope:
    """What the collector of *source* collects, and the cluster to which it writes."""
    there = source.mirrored
    brokers = there.kafka if there is not None else settings.kafka
    security = there.kafka_security if there is not None else settings.kafka_security
    return CollectionScope(source, brokers, security, settings.rules)


def open_format(settings: SourceSettings) -> Format:
    """The format of the source's topics; ConfigError if it is unknown."""
    name = settings.format or _collector(settings).usual_format
    kind = _find_class(settings, "format", formats, "FORMAT", name)
    options = settings.format_options
    made = cast("Format", _construct(kind, settings, at="format_options", options=options))
    if unknown := set(made.columns) - set(OPTIONAL):
        raise ConfigError(
            f"source {settings.name}: format {name} reads columns {sorted(unknown)} that"
            f" no message has; known: {', '.join(sorted(OPTIONAL))}"
        )
    return made


def message_text(settings: SourceSettings) -> MessageText:
    """How a person reads and writes messages of the source; plain text unless its format differs.

    Raises:
        ConfigError: its format is unknown.
    """
    open_format(settings)
    name = settings.format or _collector(settings).usual_format
    try:
        return cast("MessageText", plugins.find_class(formats, "MESSAGE_TEXT", name)())
    except ConfigError:  # the format has none
        return PlainText()


def open_registry(settings: SourceSettings) -> SchemaRegistry | None:
    """A client of the registry that the source's format names; None without one."""
    named = open_format(settings).registry
    return None if named is None else SchemaRegistry(settings.name, named)


def every_topic(settings: SourceSettings) -> str:
    """Regular expression for the whole name of each topic of the source, of any content."""
    return settings.every_topic(open_format(settings).added_topics(settings.prefix))


def open_transport(settings: PipelineSettings) -> Transport:
    """A client of the transport of all sources' topics.

    Raises:
        ConfigError: the transport, or that of a source, is unknown.
    """
    own = [one for one in settings.sources if one.transport]
    if not own:
        return _usual_transport(settings)
    usual = _usual_transport(settings) if settings.carried else None
    made = (OwnTopics(every_topic(one), _own_transport(one)) for one in own)
    return TransportsBySource(tuple(made), usual)


def _own_transport(settings: SourceSettings) -> Transport:
    """Open the source's own transport; the settings are its field ``source``, if it has one."""
    kind = _find_class(settings, "transport", transports, "TRANSPORT", settings.transport)
    injected = {"source": settings} if "source" in signature(kind).parameters else {}
    options = settings.transport_options
    made = _construct(kind, settings, at="transport_options", options=options, injected=injected)
    return cast("Transport", made)


def _usual_transport(settings: PipelineSettings) -> Transport:
    try:
        kind = _whole(transports, "TRANSPORT", settings.transport)
    except ConfigError as error:
        raise ConfigError(f"transport: {error}") from error
    options, injected = settings.transport_options, settings.kafka_fields
    if injected and not injected.keys() <= signature(kind).parameters.keys():
        raise ConfigError(f"kafka: transport {settings.transport} has no use for it; remove it")
    return cast(
        "Transport", build_object(kind, (), options, at="transport_options", injected=injected)
    )


def open_table_format(
    settings: PipelineSettings, session: "SparkSession | None" = None
) -> TableFormat[Any, Any]:
    """The table format of mirrors, with Spark's *session* where mirrors are merged.

    Raises:
        ConfigError: there is no such format, or it has no such options.
    """
    try:
        kind = _whole(tables, "TABLE_FORMAT", settings.table_format)
    except ConfigError as error:
        raise ConfigError(f"table_format: {error}") from error
    options = settings.table_format_options
    made = build_object(kind, (session,), options, at="table_format_options")
    return cast("TableFormat[Any, Any]", made)


def find_mistakes(settings: SourceSettings, pipeline: PipelineSettings) -> tuple[str, ...]:
    """Why objects that the source names cannot be built, each with its key: ``format: ...``.

    All are tried; none connects.
    """
    found = dict[str, str]()  # by key: two builders may report one key in different words
    collector = partial(_try_collector, pipeline=pipeline)
    for build in (_try_source, collector, open_registry, _try_transport):
        try:
            build(settings)
        except ConfigError as error:
            fault = str(error).removeprefix(f"source {settings.name}: ")
            found.setdefault(fault.partition(": ")[0], fault)
    return tuple(found.values())  # without a collector, neither kind nor format has a default


def _try_source(settings: SourceSettings) -> None:
    open_source(settings).close()


def _try_transport(settings: SourceSettings) -> None:
    if settings.transport:
        _own_transport(settings).close()


def _try_collector(settings: SourceSettings, *, pipeline: PipelineSettings) -> None:
    open_collector(settings, pipeline).close()


def _source(settings: SourceSettings) -> Any:
    name = settings.kind or _collector(settings).usual_kind
    return _find_class(settings, "kind", sources, "SOURCE", name)


def _collector(settings: SourceSettings) -> Any:
    kind = settings.collector.kind or USUAL
    return _find_class(settings, "collector.kind", collectors, "COLLECTOR", kind)


def _construct(
    kind: Callable[..., T],
    settings: SourceSettings,
    *given: Any,
    at: str,
    options: Mapping[str, Any],
    injected: Mapping[str, Any] | None = None,
) -> T:
    try:
        return build_object(kind, given, options, at=at, injected=injected)
    except ConfigError as error:
        raise ConfigError(f"source {settings.name}: {error}") from error


def _find_class(settings: SourceSettings, field: str, seam: ModuleType, name: str, key: str) -> Any:
    if not key:
        why = "its collector can read several kinds"
        raise ConfigError(f"source {settings.name}: {field}: is required, because {why}")
    try:
        return _whole(seam, name, key)
    except ConfigError as error:
        raise ConfigError(f"source {settings.name}: {field}: {error}") from error


def _whole(seam: ModuleType, name: str, key: str) -> Any:
    """Find the class of *key*; ConfigError if it is missing or incomplete for its seam."""
    kind = plugins.find_class(seam, name, key)
    if missing := plugins.missing_members(kind, SEAMS[name]):
        raise ConfigError(f"{kind.__module__}.{kind.__name__} {missing}")
    return kind
