"""Options that several verbs share."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

Verb = Callable[..., Any]
CUT = (
    "Complete up to when: a date (its end, where `time_zone` is), an instant with its offset such "
    "as 2026-03-29T12:00:00Z, or now; by default the end of yesterday."
)


def about_cut(verb: Verb) -> Verb:
    """Add ``--cut`` to a verb that asks up to when a table is complete."""
    return click.option("--cut", metavar="WHEN", help=CUT)(verb)


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
