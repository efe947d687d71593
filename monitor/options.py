"""Options that several verbs share."""

import getpass
import math
import os
from collections.abc import Callable, Mapping
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


def asked_cut(cut: str | None) -> Mapping[str, str]:
    """The cut as the service is asked for it; an empty one is no cut, and it says so."""
    return {} if cut is None else {"cut": cut}


class Amount(click.FloatRange):
    """From none up to *most*, and a number: a range of its own lets `nan` through."""

    def __init__(self, most: float) -> None:
        """The upper bound is in."""
        super().__init__(min=0, max=most)

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Refuse what is no number."""
        found = float(super().convert(value, param, ctx))
        if math.isnan(found):
            self.fail(f"{value} is no number", param, ctx)
        return found


def names_who(verb: Verb) -> Verb:
    """Add ``--who`` to a verb that records who decided."""
    text = "By default the name you are logged in with."
    return click.option("--who", default=login, help=text)(verb)


def reads_again(verb: Verb) -> Verb:
    """Add what a verb has that lets rows be read again: why, by whom, given up, waited for."""
    for option in (
        click.option(
            "--wait/--no-wait", default=True, show_default=True, help="Look on until it ends."
        ),
        click.option("--cancel", is_flag=True, help="Give up what of these tables is read now."),
        names_who,
        click.option("--reason", default="", help="Why; kept for ever."),
    ):
        verb = option(verb)
    return verb


def require_reason(reason: str) -> None:
    """Refuse an empty *reason* of a verb that changes something.

    Raises:
        UsageError: as click does of an option that is required.
    """
    if not reason:
        raise click.UsageError("Missing option '--reason'.")


def at_a_rate(verb: Verb) -> Verb:
    """Add ``--rate`` to a verb that may read many rows."""
    told = "Read at most so many rows a second; 0: as the source's limits let it."
    return click.option(
        "--rate", default=0, type=click.IntRange(min=0), show_default=True, help=told
    )(verb)


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


def login() -> str:
    """Who is logged in, for verbs that record who decided."""
    try:
        return getpass.getuser()
    except (ImportError, KeyError, OSError):  # a container's number that has no name
        return f"uid {os.getuid()}"
