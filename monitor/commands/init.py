"""`sluice init`: a config to begin with, every section shown with its defaults."""

from pathlib import Path

import click

from pipeline.errors import ConfigError

TEMPLATE = Path(__file__).with_name("sluice.yaml")


@click.command("init")
@click.option("--config", default="sluice.yaml", type=click.Path(path_type=Path), show_default=True)
def init(config: Path) -> None:
    """Write a commented config; a file that is there is never overwritten."""
    try:
        with config.open("x", encoding="utf-8") as file:
            file.write(TEMPLATE.read_text(encoding="utf-8"))
    except FileExistsError:
        msg = f"{config} is there already; name another with --config"
        raise ConfigError(msg) from None
    except OSError as error:
        msg = f"cannot write {config}: {error.strerror}"
        raise ConfigError(msg) from None
    click.echo(f"{config} written; edit it, then: sluice check-config --config {config}")


COMMAND = init
