"""`python -m demo`: start and stop real servers in a folder.

Each further verb is a click command in its own file, added to `main` below.
"""

import json
import sys
from pathlib import Path

import click

from demo import machine
from demo.drill.run import drill
from demo.run import run
from demo.servers import Servers
from pipeline.errors import SluiceError

FOLDER = click.option(
    "--dir", "home", type=click.Path(path_type=Path), required=True, help="Where they live."
)


@click.group()
def main() -> None:
    """Real servers on one machine, without Docker."""


@main.command()
@FOLDER
def up(home: Path) -> None:
    """Start MySQL, Kafka and Connect, and print their addresses as JSON; they stay."""
    machine.require(home)
    servers = Servers.create(home, leashed=False)
    servers.start()
    click.echo(json.dumps(servers.addresses(), indent=2))


@main.command()
@FOLDER
def down(home: Path) -> None:
    """Stop the servers of a folder; their data stays."""
    Servers.load(home).stop()


main.add_command(run)
main.add_command(drill)


if __name__ == "__main__":
    try:
        main()
    except SluiceError as error:
        sys.exit(str(error))
