"""`sluice`: one verb per file of `monitor/commands`."""

import importlib
import pkgutil
import sys
from importlib.metadata import version

import click

from monitor import commands
from pipeline.errors import SluiceError

USAGE = 2


class Verbs(click.Group):
    """Imports the verb that was asked for, and no other: together they take a second."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names as they are typed: those of the files, with dashes."""
        names = (module.name for module in pkgutil.iter_modules(commands.__path__))
        return sorted(name.replace("_", "-") for name in names)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The verb of that name; None if no file has it."""
        if cmd_name not in self.list_commands(ctx):
            return None
        module = importlib.import_module(f"monitor.commands.{cmd_name.replace('-', '_')}")
        found: click.Command = module.COMMAND
        return found


@click.group(cls=Verbs)
@click.version_option(version("sluice"), prog_name="sluice")
def sluice() -> None:
    """Land every change, prove each mirror, and say when a table is complete."""


def main() -> None:
    """Run one verb; an error of ours is one line and exit status 2, never a traceback."""
    try:
        sluice(prog_name="sluice")
    except SluiceError as error:
        click.echo(str(error), err=True)
        sys.exit(USAGE)


if __name__ == "__main__":
    main()
