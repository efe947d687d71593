"""Options that several verbs share."""

import getpass
import math
import os
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import click

Verb = Callable[..., Any]
UNKNOWN = 3
"""Exit status of a verb that has nobody's answer."""
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


class Length(click.ParamType[timedelta]):
    """A length of time, told as `pipeline.durations.duration` reads it; a number is of *unit*s.

    It is at most *most*, and never negative.
    """

    name = "duration"

    def __init__(self, unit: timedelta, most: timedelta) -> None:
        """The upper bound is in."""
        self._unit, self._most = unit, most

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> timedelta:
        """Refuse what is no duration, or out of bounds."""
        if isinstance(value, timedelta):
            return value
        try:
            found = self._read(str(value))
        except (ValueError, OverflowError) as error:
            self.fail(str(error), param, ctx)
        if not timedelta() <= found <= self._most:
            self.fail(f"{value!r} is not in the range from 0s to {self._most.days}d", param, ctx)
        return found

    def _read(self, text: str) -> timedelta:
        try:
            number = float(text)
        except ValueError:
            from pipeline.durations import duration  # noqa: PLC0415  - half a verb's start

            return duration(text)
        if math.isnan(number):
            raise ValueError(f"{text} is no number")
        return timedelta(seconds=min(number * self._unit.total_seconds(), 1e13))


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
            "--config",
            default="sluice.yaml",
            type=click.Path(path_type=Path),
            show_default=True,
            help="Path of the config file.",
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
