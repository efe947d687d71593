"""`sluice run`: run the service until SIGTERM or Ctrl-C."""

import sys
from pathlib import Path

import click
import structlog

from monitor.config.file import load_config
from monitor.config.sections import plugin_faults
from monitor.config.text import locate_faults, read_text
from monitor.config.warnings import config_warnings
from monitor.display_text import say
from monitor.runtime import configure_logging
from pipeline.errors import ConfigError
from pipeline.spark import jars


@click.command("run")
@click.option(
    "--config",
    default="sluice.yaml",
    type=click.Path(path_type=Path),
    show_default=True,
    help="Path of the config file.",
)
@click.option(
    "--log-format",
    type=click.Choice(["json", "console"]),
    help=("By default `console` on a terminal, else `json`."),
)
@click.option(
    "--log-level",
    type=click.Choice(["DEBUG", "INFO", "WARNING", "ERROR"], case_sensitive=False),
    default="INFO",
    show_default=True,
    help="Lowest level that is logged.",
)
def run(config: Path, log_format: str | None, log_level: str) -> None:
    """Run the service: land and merge changes, monitor tables, serve the gate, send alerts."""
    found = load_config(config, plugin_faults)
    json = log_format == "json" or (log_format is None and not sys.stderr.isatty())
    configure_logging(json=json, level=log_level.upper())
    for doubt in locate_faults(config, config_warnings(found), read_text(config)):
        structlog.get_logger().warning("config", doubt=doubt)
    if lacks := jars.missing_jars():
        raise ConfigError("\n".join(lacks))
    from monitor import service  # noqa: PLC0415  - a second of imports that no other verb needs

    sys.exit(service.run_service(found, lambda address: say(f"status page: {address}/")))


COMMAND = run
