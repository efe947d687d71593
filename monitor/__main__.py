"""`sluice`: one verb per file of `monitor/commands`."""

import ast
import importlib
import json
import pkgutil
import sys
from pathlib import Path
from typing import Any

import click

from monitor import commands
from monitor.display_text import did_you_mean, say, say_lines
from pipeline.errors import SluiceError, UnreachableError

USAGE, UNREACHABLE = 2, 3
JSON = "monitor.json"  # in a context's `meta`


class Verbs(click.Group):
    """Imports only the requested verb; help reads the first line of each verb's file."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Record whether ``--json`` is given, because an error is then printed as JSON too."""
        ctx.meta[JSON] = "--json" in args
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the verb; with ``--json`` its error is an object on stdout as well."""
        try:
            return super().invoke(ctx)
        except (SluiceError, click.ClickException) as error:
            if ctx.meta[JSON]:
                message = (
                    error.format_message() if isinstance(error, click.ClickException) else error
                )
                say(json.dumps({"error": str(message)}))
            raise

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names as they are typed: the file names with dashes."""
        names = (module.name for module in pkgutil.iter_modules(commands.__path__))
        return sorted(name.replace("_", "-") for name in names)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the verb *cmd_name*; None if no file has it."""
        if cmd_name not in self.list_commands(ctx):
            return None
        module = importlib.import_module(f"monitor.commands.{cmd_name.replace('-', '_')}")
        found: click.Command = module.COMMAND
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the verb that *args* begin with; an unknown one fails with a suggestion."""
        known = self.list_commands(ctx)
        if args and args[0] not in known and not args[0].startswith("-"):
            ctx.fail(f"no verb {args[0]!r}; {did_you_mean(args[0], known)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the verbs without importing one."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, _read_summary(name)) for name in self.list_commands(ctx)])


def _read_summary(verb: str) -> str:
    """Return the text after the verb's name in the first line of its file, capitalized."""
    file = Path(commands.__path__[0], f"{verb.replace('-', '_')}.py")
    docstring = ast.get_docstring(ast.parse(file.read_bytes())) or ""
    text = docstring.partition("\n")[0].partition(": ")[2]
    return text[:1].upper() + text[1:]


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="sluice", prog_name="sluice")
def sluice() -> None:
    """Land every change, prove each mirror, and tell when a table is complete."""


def main() -> None:
    """Run one verb; a SluiceError is printed as one line, without a traceback.

    The exit status is then 3 if a server does not answer, and 2 for any other error.
    """
    try:
        sluice(prog_name="sluice")
    except SluiceError as error:
        say_lines(str(error), err=True)
        sys.exit(UNREACHABLE if isinstance(error, UnreachableError) else USAGE)


if __name__ == "__main__":
    main()
