"""`python -m demo`: the servers alone (`up`, `down`), or the whole story (`run`)."""

import json
from pathlib import Path

import click

from demo.servers import Servers


@click.group()
def main() -> None:
    """Real servers on one machine, without Docker."""


@main.command()
@click.option("--dir", "home", type=click.Path(path_type=Path), required=True)
def up(home: Path) -> None:
    """Start MySQL, Kafka and Connect in a folder, and print their addresses as JSON."""
    servers = Servers.create(home, leashed=False)
    servers.start()
    click.echo(json.dumps(servers.addresses(), indent=2))


@main.command()
@click.option("--dir", "home", type=click.Path(path_type=Path), required=True)
def down(home: Path) -> None:
    """Stop the servers of a folder; their data stays."""
    Servers.load(home).stop()


if __name__ == "__main__":
    main()
