"""`sluice check-config`: report every fault of the config, or show how it is read."""

import json
from collections.abc import Iterator
from pathlib import Path

import click

from monitor.clients import mirror_columns
from monitor.config.file import config_schema, load_config
from monitor.config.model import Config
from monitor.config.sections import column_faults, own_faults, plugin_faults
from monitor.config.text import build_config_error, locate_faults, parse_mapping, read_text
from monitor.config.warnings import config_warnings, exposed_files
from monitor.display_text import say, say_lines
from pipeline.spark import jars


@click.command("check-config")
@click.option(
    "--config",
    default="sluice.yaml",
    type=click.Path(path_type=Path),
    show_default=True,
    help="Path of the config file.",
)
@click.option("--schema", "as_schema", is_flag=True, help="Print the JSON Schema for editors.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def check_config(config: Path, as_schema: bool, as_json: bool) -> None:
    """Read the config and report its faults; exit status 2 if there is one.

    All faults are reported in one run, except those that may follow from another one. A file
    that is not YAML is reported alone. Columns that suites of expectations name are checked last,
    because the lake must be read for them.
    """
    if as_schema:
        say_lines(json.dumps(config_schema(), indent=2))
        return
    found = load_config(config, _further_faults)
    text = read_text(config)
    if faults := list(column_faults(found, mirror_columns)):
        raise build_config_error(config, faults, text)
    warnings = [
        *config_warnings(found),
        *map(str, exposed_files(parse_mapping(text, config), config)),
    ]
    doubts = [*locate_faults(config, warnings, text), *jars.missing_jars()]
    facts = {
        "config": str(config),
        "sources": [source.name for source in found.sources],
        "lake": found.lake,
        "store": found.store,
        "probes": [plan.name for plan in found.plans],
        "channels": sorted(found.channels),
        "warnings": doubts,
    }
    if as_json:
        say(json.dumps(facts))
        return
    for doubt in facts.pop("warnings"):
        say_lines(f"warning: {doubt}", err=True)
    say(f"{config} is valid" if not doubts else f"{config} is valid; see the warnings")
    for name, value in list(facts.items())[1:]:
        say(f"  {name}: {', '.join(value) if isinstance(value, list) else value}")


def _further_faults(config: Config) -> Iterator[str]:
    """Yield the faults that plug-ins, probes and invariants find; it may take seconds."""
    yield from plugin_faults(config)
    yield from own_faults(config)


COMMAND = check_config
