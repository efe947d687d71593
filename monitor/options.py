"""Options that several verbs share."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

Verb = Callable[..., Any]


def asks_service(verb: Verb) -> Verb:
    """Add ``--config``, ``--server`` and ``--json`` to a verb that asks the running service."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print the answer as JSON."),
        click.option("--server", help="Address of the service; by default the config says it."),
        click.option(
            "--config", default="sluice.yaml", type=click.Path(path_type=Path), show_default=True
        ),
    ):
        verb = option(verb)
    return verb
