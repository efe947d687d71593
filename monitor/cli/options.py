"""Defines options, output and common steps of CLI verbs.

Names, messages and reasons come from sources and topics. A terminal would obey escape sequences in
them, and direction characters would display another name. `say` escapes both, so every verb prints
with it.

`request_backfill` and `cancel_backfill` serve all verbs that request a backfill. `format_copies`
and `summarize_copies` print copies as `GET /v1/tables` reports them.
"""

import getpass
import json
import math
import os
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import click

from monitor.cli.client import get_list, send_post
from monitor.display_text import escape_line, say, say_lines, visible_in

Verb = Callable[..., Any]
UNKNOWN = 3
"""Exit status of a verb without an answer."""
CLOSED = ("blocked", "revoked")
"""States of the gate that waiting does not end."""
CUT = (
    "Complete up to when: a date (its end in `time_zone`), an instant with an offset such "
    "as 2026-03-29T12:00:00Z, or now; by default the end of yesterday."
)


def cut_option(verb: Verb) -> Verb:
    """Add ``--cut`` to a verb that asks up to when a table is complete."""
    return click.option("--cut", metavar="WHEN", help=CUT)(verb)


def cut_parameter(cut: str | None) -> Mapping[str, str]:
    """Return the cut as a request parameter; refuse an empty one."""
    return {} if cut is None else {"cut": cut}


class Duration(click.ParamType[timedelta]):
    """A duration as `pipeline.durations.parse_duration` reads it; a plain number means *unit*s.

    It is at most *most*, and never negative.
    """

    name = "duration"

    def __init__(self, unit: timedelta, most: timedelta) -> None:
        """Set the upper bound, which is inclusive."""
        self._unit, self._most = unit, most

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> timedelta:
        """Refuse text that is no duration, and a duration out of bounds."""
        if isinstance(value, timedelta):
            return value
        try:
            found = self._read(str(value))
        except (ValueError, OverflowError) as error:
            self.fail(str(error), param, ctx)
        if not timedelta() <= found <= self._most:
            from pipeline.durations import format_setting  # noqa: PLC0415  - half a verb's start

            self.fail(f"{value!r} is out of range; use 0s to {format_setting(self._most)}", param)
        return found

    def _read(self, text: str) -> timedelta:
        try:
            number = float(text)
        except ValueError:
            from pipeline.durations import parse_duration  # noqa: PLC0415  - half a verb's start

            return parse_duration(text)
        if math.isnan(number):
            raise ValueError(f"{text!r} is not a number; write seconds, or a duration such as 30s")
        return timedelta(seconds=min(number * self._unit.total_seconds(), 1e13))


def who_option(verb: Verb) -> Verb:
    """Add ``--who`` to a verb that records who decided."""
    text = "Your name; by default the name you are logged in with."
    return click.option("--who", default=login_name, help=text)(verb)


def backfill_options(verb: Verb) -> Verb:
    """Add the options of a verb that requests a backfill: reason, person, cancel, wait."""
    for option in (
        click.option(
            "--wait/--no-wait", default=True, show_default=True, help="Wait until it ends."
        ),
        click.option("--cancel", is_flag=True, help="Cancel the running backfill of these tables."),
        who_option,
        click.option("--reason", default="", help="The reason; required; stored for ever."),
    ):
        verb = option(verb)
    return verb


def require_reason(reason: str) -> None:
    """Refuse an empty *reason* of a verb that changes something.

    Raises:
        UsageError: the same as click's for a missing required option.
    """
    if not reason:
        raise click.UsageError("Missing option '--reason'.")


def rate_option(verb: Verb) -> Verb:
    """Add ``--rate`` to a verb that may read many rows."""
    help_text = "Read at most this many rows per second; 0: as the source's limits allow."
    return click.option(
        "--rate", default=0, type=click.IntRange(min=0), show_default=True, help=help_text
    )(verb)


def service_options(verb: Verb) -> Verb:
    """Add ``--config``, ``--server`` and ``--json`` to a verb that asks the running service."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print the answer as JSON."),
        click.option(
            "--server", help=("Address of the service; by default the address in the config.")
        ),
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


def login_name() -> str:
    """Return the login name, for verbs that record who decided."""
    try:
        return getpass.getuser()
    except (ImportError, KeyError, OSError):  # the user id of a container may have no name
        return f"uid {os.getuid()}"


PACE = 1.0  # seconds between two requests for progress
FAILED = 4
MOST = 10_000  # most backfills in one list of the service
OTHERS = 1_000  # backfills that others may have requested meanwhile


def request_backfill(
    base: str, path: str, body: Mapping[str, Any], *, wait: bool, as_json: bool
) -> None:
    """Request *body*, print progress; with *wait*, until all backfills and checks have ended.

    Exits with 4 if a backfill, or a check that it repairs, does not succeed.
    """
    _follow(base, _ids(base, path, body), wait=wait, as_json=as_json)


def cancel_backfill(
    base: str, tables: Sequence[str], said: Mapping[str, str], *, as_json: bool
) -> None:
    """Cancel the running backfills of *tables* and print the result; *said*: reason and person."""
    ids = _ids(base, "/v1/rereads/cancelled", {"tables": list(tables), **said})
    _follow(base, ids, wait=False, as_json=as_json)


def _ids(base: str, path: str, body: Mapping[str, Any]) -> set[str]:
    return {one["id"] for one in send_post(base, path, "rereads", body)["rereads"]}


def _follow(base: str, ids: set[str], *, wait: bool, as_json: bool) -> None:
    found = _watched(base, ids, quiet=as_json) if wait else _read_backfills(base, ids)
    if as_json:
        say(json.dumps(found))
    elif not wait:
        for one in found:
            say_lines(_line(one))
    if gone := len(ids) - len(found):
        say(f"{gone} more are too old to be listed; their results are unknown", err=True)
    well = {one["id"] for one in found if one["done"] and not one["unchecked"]}
    if wait and well != ids:
        sys.exit(FAILED)


def _read_backfills(base: str, ids: set[str]) -> list[dict[str, Any]]:
    found = get_list(base, "/v1/rereads", {"limit": min(MOST, OTHERS + len(ids))})
    return [one for one in found if one["id"] in ids]


def _watched(base: str, ids: set[str], *, quiet: bool) -> list[dict[str, Any]]:
    """Print progress until all have ended; a line per change, rewritten on a terminal."""
    shown: dict[str, str] = {}
    while True:
        found = _read_backfills(base, ids)
        for one in found:
            line = _line(one)
            if not quiet and shown.get(one["id"]) != line:
                _show(line, moving=_goes_on(one))
                shown[one["id"]] = line
        if not any(_goes_on(one) for one in found):
            return found
        time.sleep(PACE)


def _goes_on(one: Mapping[str, Any]) -> bool:
    """Tell whether the backfill is running, or a check of it has yet to run again."""
    if one["ended"] is None:
        return True
    ruled = {proof["check"] for proof in one["proofs"]}
    return bool(one["awaits_checks"]) and not set(one["unchecked"]) <= ruled


def _show(line: str, *, moving: bool) -> None:
    """Print progress; on a terminal, overwrite the line of a running backfill."""
    live = sys.stdout.isatty()
    click.echo(f"\r\x1b[K{line}" if live else line, nl=not (live and moving))


def _line(found: Mapping[str, Any]) -> str:
    one = visible_in(dict(found), escape_line)
    rows, based = one["rows"], one["kind"] == "bootstrap"
    if one["done"] and (preview := one["preview"]) is not None:
        counts = ", ".join(f"{preview[what]} {what}" for what in ("missing", "extra", "different"))
        return "\n  ".join((f"{one['table']}: a repair would change {counts}", *preview["keys"]))
    if one["done"]:
        text = "the new base is complete" if based else "the rows are in the change log"
        return f"{one['table']}: {rows} rows read, {text}{_describe_checks(one)}"
    if one["ended"]:
        ended = "ended without a new base" if based else f"the {one['kind']} ended incomplete"
        return f"{one['table']}: {ended}: {one['why'] or 'cancelled'}"
    text = f"{one['table']}: {one['told']}"
    return f"{text}; waits: {one['why']}" if one["why"] else text


def _describe_checks(one: Mapping[str, Any]) -> str:
    """Return the results of the checks that the backfill repairs."""
    said = {proof["check"]: proof for proof in one["proofs"]}
    results = [
        f"{check} {'passes' if said[check]['passed'] else 'fails'}: {said[check]['reason']}"
        if check in said
        else f"{check} runs again"
        for check in one["checks"]
    ]
    return "".join(f"; {text}" for text in results)


def waiver_command(reason: Mapping[str, Any]) -> str:
    """Return the command that waives a *reason* of the gate; empty if it has no id."""
    id_ = reason["id"] and shlex.quote(reason["id"])  # names may contain quotes and blanks
    return f"sluice waive {id_} --reason ..." if id_ else ""


SHOWN = 20  # held or unknown tables that a list shows


def format_copies(row: Mapping[str, Any]) -> list[str]:
    """Return a line for each copy of one table."""
    return [f"copy {name}: {_standing(one)}" for name, one in sorted(row["copies"].items())]


def summarize_copies(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return a line for each copy, with the tables that do not follow their mirrors."""
    by_copy: dict[str, list[tuple[str, Mapping[str, Any]]]] = {}
    for row in rows:
        for name, one in row["copies"].items():
            by_copy.setdefault(name, []).append((row["table"], one))
    return [line for name in sorted(by_copy) for line in _of_copy(name, by_copy[name])]


def _of_copy(name: str, own: list[tuple[str, Mapping[str, Any]]]) -> list[str]:
    lags = [one["lag_seconds"] for _, one in own if _follows(one)]
    behind = f", at most {max(lags):.1f} s behind their mirrors" if lags else ""
    odd = [f"  {table}: {_standing(one)}" for table, one in own if not _follows(one)]
    more = [f"  and {len(odd) - SHOWN} more: --json has all"] if len(odd) > SHOWN else []
    head = f"copy {name}: {len(lags)} of {len(own)} tables follow{behind}"
    return [head, *odd[:SHOWN], *more]


def _follows(one: Mapping[str, Any]) -> bool:
    return one["hold"] is None and one["lag_seconds"] is not None


def _standing(one: Mapping[str, Any]) -> str:
    if one["hold"] is not None:
        return f"held: {one['hold']}"
    if one["lag_seconds"] is None:
        return f"unknown: {one['why']}"
    up_to = one["watermark"] or "unknown"
    return f"{one['lag_seconds']:.1f} s behind its mirror, complete up to {up_to}"
