"""`sluice`: one verb per file of `monitor/commands`."""

import importlib
import pkgutil
import sys
from importlib.metadata import version

import click

from monitor import commands
from pipeline.errors import SluiceError

USAGE = 2


@click.group()
@click.version_option(version("sluice"), prog_name="sluice")
def sluice() -> None:
    """Land every change, prove each mirror, and say when a table is complete."""


def main() -> None:
    """Run one verb; an error of ours is one line and exit status 2, never a traceback."""
    for module in pkgutil.iter_modules(commands.__path__):
        sluice.add_command(importlib.import_module(f"monitor.commands.{module.name}").COMMAND)
    try:
        sluice(prog_name="sluice")
    except SluiceError as error:
        click.echo(str(error), err=True)
        sys.exit(USAGE)


if __name__ == "__main__":
    main()
