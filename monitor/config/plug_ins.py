"""Can what the config names be built?  Kinds that are not there, and options they do not have.

Apart from the reading of the file: building imports Arrow and drivers, a second that no verb need
wait which only asks the service.
"""

from collections.abc import Iterator
from dataclasses import replace

from monitor.config.mistakes import TRANSPORT
from monitor.config.model import Config
from pipeline.errors import ConfigError


def unbuilt(config: Config) -> Iterator[str]:
    """Each as ``place: fault``; nobody is dialled."""
    from pipeline import build  # noqa: PLC0415  - the second

    settings = replace(config.settings, sources=())  # what a source names is told at its place
    if settings.kafka or settings.transport != TRANSPORT:
        try:
            build.open_transport(settings).close()
        except ConfigError as error:
            yield str(error)
    try:
        build.open_table_format(config.settings)
    except ConfigError as error:
        yield str(error)
    for number, source in enumerate(config.sources):
        yield from (
            f"sources[{number}].{fault}" for fault in build.mistakes(source, config.settings)
        )
