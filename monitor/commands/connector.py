"""`sluice connector SOURCE`: print or register the settings of a source's connector."""

import json
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import click

from monitor.cli.options import UNKNOWN
from monitor.display_text import say, say_lines
from pipeline.errors import ConfigError, UnreachableError

if TYPE_CHECKING:
    from pipeline.collectors.collector import Registration


@click.command("connector")
@click.argument("source")
@click.option(
    "--config",
    default="sluice.yaml",
    type=click.Path(path_type=Path),
    show_default=True,
    help="Path of the config file.",
)
@click.option(
    "--apply", "applies", is_flag=True, help=("Register the connector, and print what changes.")
)
@click.option("--json", "as_json", is_flag=True, help="Print the changes as JSON.")
def connector(source: str, config: Path, applies: bool, as_json: bool) -> None:
    """Print all settings of SOURCE's connector as JSON; no server is contacted.

    With --apply, register the connector. A setting that already has another value keeps it, unless
    changes or values would be lost. Settings that weaken TLS are removed. Secrets are references,
    which the collector resolves.

    Exit status 2: wrong usage; 3: the collector does not answer.
    """
    from monitor.config.file import load_config  # noqa: PLC0415  - help needs none of the three
    from monitor.config.sections import plugin_faults  # noqa: PLC0415
    from pipeline.build import collection_scope, open_collector  # noqa: PLC0415

    found = load_config(config, plugin_faults)
    every = {one.name: one for one in found.sources}
    if source not in every:
        raise ConfigError(f"no source {source!r}; known: {', '.join(every)}")
    with closing(open_collector(every[source], found.settings)) as asked:
        registration = asked.registration(collection_scope(found.settings, every[source]))
        if registration is None:
            raise ConfigError(
                f"the collector of source {source!r} has no settings that Sluice can register"
            )
        try:
            lines = _applied(registration, as_json=as_json) if applies else _wanted(registration)
        except UnreachableError as error:
            say_lines(str(error), err=True)
            if as_json:
                say(json.dumps({"error": str(error)}))
            sys.exit(UNKNOWN)
        say_lines("\n".join(lines))


def _wanted(registration: "Registration") -> list[str]:
    wanted = registration.wanted
    shown = {name: registration.shown(name, wanted[name]) for name in sorted(wanted)}
    return [json.dumps(shown, indent=2)]


def _applied(registration: "Registration", *, as_json: bool) -> list[str]:
    now = registration.now()
    changes = registration.differences(now)
    if changes:
        registration.put(registration.target(now))
    if as_json:
        rendered = [{"name": one.name, "before": one.before, "after": one.after} for one in changes]
        return [json.dumps({"new": now is None, "changes": rendered})]
    done = "registered" if now is None else "changed"
    return [
        *map(str, changes),
        done if changes else "the connector has these settings already; nothing was changed",
    ]


COMMAND = connector
