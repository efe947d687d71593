"""Can what the config names be built?  Kinds that are not there, and options they do not have.

Apart from the reading of the file: building imports Arrow and drivers, a second that no verb need
wait which only asks the service.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from monitor.config.mistakes import TRANSPORT
from monitor.config.model import Config
from pipeline.errors import ConfigError


def mistaken(config: Config) -> Iterator[str]:
    """What probes themselves refuse of their settings, as ``key: fault``; it may take seconds."""
    for plan in config.plans:
        variants = [
            (f"probes.{plan.name}.overrides[{number}]", one)
            for number, (_, one) in enumerate(plan.variants)
        ]
        own = {fault: f"probes.{plan.name}.{fault}" for fault in _mistakes(plan.probe)}
        yield from own.values()
        for at, one in variants:
            yield from (f"{at}.{fault}" for fault in _mistakes(one) if fault not in own)


def _mistakes(probe: Any) -> Iterator[str]:
    yield from getattr(probe, "mistakes", tuple)()


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
