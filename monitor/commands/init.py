"""`sluice init`: create an example config with every section.

With the address of a server, the config names this server, and proposes which of its tables fold
into one.
"""

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

import click

from monitor.display_text import say
from pipeline.errors import ConfigError

if TYPE_CHECKING:
    from pipeline.model import Shard

TEMPLATE = Path(__file__).with_name("sluice.yaml")


@click.command("init")
@click.option(
    "--config",
    default="sluice.yaml",
    type=click.Path(path_type=Path),
    show_default=True,
    help="Path of the config file.",
)
@click.option(
    "--from-source",
    "address",
    metavar="KIND://USER@HOST:PORT[/DATABASE]",
    help="Read this server's catalogue and propose rules for its tables.",
)
@click.option("--name", show_default="shop", help="Name of the source.")
@click.option(
    "--password-env",
    metavar="NAME",
    help="Environment variable with the user's password; by default NAME_PASSWORD.",
)
def init(config: Path, address: str | None, name: str | None, password_env: str | None) -> None:
    """Write a commented config; an existing file is never overwritten."""
    if address is None and (name is not None or password_env is not None):
        said = "--name" if name is not None else "--password-env"
        raise click.UsageError(f"{said} needs --from-source; add it")
    if config.exists():
        raise ConfigError(f"{config} exists already; use another file with --config")
    text = TEMPLATE.read_text(encoding="utf-8")
    if address is not None:
        text = _proposed(text, address, name or "shop", password_env)
    try:
        with config.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        msg = f"cannot write {config}: {error.strerror}"
        raise ConfigError(msg) from None
    say(f"{config} written; edit it, then: sluice check-config --config {quote(str(config))}")


def _proposed(text: str, address: str, name: str, password_env: str | None) -> str:
    from monitor.onboarding import (  # noqa: PLC0415  - a plain init asks nobody
        fill_template,
        parse_address,
        propose_rules,
        require_database,
        survey_tables,
    )
    from pipeline.build import source_options  # noqa: PLC0415

    source = parse_address(address, name, password_env, os.environ)
    require_database(source.settings, source_options(source.settings))
    proposal = propose_rules(survey_tables(source.settings, _progress))
    folded = sum(len(one.of) for one in proposal.rules)
    say(
        f"{folded + len(proposal.alone)} tables: {len(proposal.rules)} rules for {folded} of them,"
        f" {len(proposal.keyless)} without a key",
        err=True,
    )
    return fill_template(text, source, proposal)


def _progress(shards: Iterable["Shard"], count: int) -> Iterable["Shard"]:
    if not sys.stderr.isatty():
        yield from shards
        return
    with click.progressbar(shards, length=count, label="tables", file=sys.stderr) as bar:
        yield from bar


COMMAND = init
