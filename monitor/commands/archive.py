"""`sluice archive`: keep rows that the source deletes to archive them."""

import json
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from monitor.cli.client import get_list, send_post, service_address
from monitor.cli.options import Duration, service_options, who_option
from monitor.display_text import say, say_lines
from pipeline.errors import UnreachableError

if TYPE_CHECKING:
    from pipeline.apply.archive_backtest import BacktestDay

AGES = timedelta(days=36_525)


@click.group("archive")
def archive() -> None:
    """Keep rows that their source deletes because it archives them."""


@archive.command("keep")
@click.argument("table")
@click.option(
    "--since", required=True, metavar="WHEN", help=("Start of the window, by the source's clock.")
)
@click.option("--until", required=True, metavar="WHEN", help="End of the window, exclusive.")
@click.option(
    "--column", default="", help="Only rows whose value in this column is below --before."
)
@click.option("--before", default="", metavar="VALUE", help="A date, a time or a number.")
@click.option("--reason", required=True, help="The reason; stored for ever.")
@who_option
@service_options
def keep(
    *,
    table: str,
    since: str,
    until: str,
    column: str,
    before: str,
    reason: str,
    who: str,
    config: Path,
    server: str | None,
    as_json: bool,
) -> None:
    """Keep the rows of TABLE that its source deletes in a window, whether or not they have landed.

    This ends a hold of the table because of many old deletes (`archive_purge`).
    """
    body = {"table": table, "since": since, "until": until, "reason": reason, "who": who}
    body |= {"column": column, "before": before}
    answer = send_post(service_address(server, config), "/v1/archives", "window", body)
    if as_json:
        say(json.dumps(answer))
        return
    again = "" if answer["new"] else "; this window was registered before"
    say(f"{_line(answer['window'])}{again}")


@archive.command("list")
@service_options
def registered(*, config: Path, server: str | None, as_json: bool) -> None:
    """List the registered windows, newest first."""
    windows = get_list(service_address(server, config), "/v1/archives")
    if as_json:
        say(json.dumps(windows))
        return
    for one in windows:
        taken = one["withdrawn"]
        end = f"; withdrawn by {taken['who']}: {taken['reason']}" if taken else ""
        say(f"{one['id']} {_line(one)}, by {one['who']}: {one['reason']}{end}")


@archive.command("withdraw")
@click.argument("number", metavar="ID")
@click.option("--reason", required=True, help="The reason; stored for ever.")
@who_option
@service_options
def withdraw(
    *, number: str, reason: str, who: str, config: Path, server: str | None, as_json: bool
) -> None:
    """Withdraw a registered window: deletes that are merged from now on remove their rows.

    Rows that the window has kept stay in the lake.
    """
    body = {"id": number, "reason": reason, "who": who}
    answer = send_post(service_address(server, config), "/v1/archives/withdrawals", "window", body)
    say(json.dumps(answer) if as_json else f"withdrawn: {_line(answer['window'])}")


@archive.command("backtest")
@click.argument("tables", nargs=-1)
@click.option("--column", help="Try `archive_purge` with this date column instead of the config's.")
@click.option(
    "--rows",
    default=5_000_000,
    show_default=True,
    type=click.IntRange(min=0),
    help="Hold a day with more deletes than this.",
)
@click.option(
    "--times",
    default=7.0,
    show_default=True,
    type=click.FloatRange(min=0),
    help="Hold a day with more than this many times the usual deletes.",
)
@click.option(
    "--older",
    default="30d",
    show_default=True,
    type=Duration(timedelta(days=1), AGES),
    help="Count deleted rows of at least this age; a plain number means days.",
)
@service_options
def backtest(
    *,
    tables: tuple[str, ...],
    column: str | None,
    rows: int,
    times: float,
    older: timedelta,
    config: Path,
    server: str | None,
    as_json: bool,
) -> None:
    """Show, for each day of the change log, how many deletes the rules ignore, apply or hold.

    Uses the rules of the config, and the registered windows if the service answers. Without TABLES,
    shows each table that a rule matches. Nothing is written.
    """
    from monitor.archive_backtest import (  # noqa: PLC0415  - help needs neither
        counted_windows,
        run_backtests,
    )
    from monitor.config.file import load_config  # noqa: PLC0415
    from pipeline.invariants.archive_purge import ArchivePurge  # noqa: PLC0415

    trial = ArchivePurge(column, rows, times, older) if column else None
    try:
        registered = counted_windows(get_list(service_address(server, config), "/v1/archives"))
    except UnreachableError as error:
        registered = ()
        say_lines(f"{error}; only windows of the config count", err=True)
    found = run_backtests(load_config(config), tables, registered, trial)
    results = [{"table": table, **_day(day)} for table, days in found for day in days]
    if as_json:
        say(json.dumps(results))
        return
    for one in results:
        say(_tested(one))
    if not results:
        say("the change log has no delete of a table that a rule matches")


def _day(day: "BacktestDay") -> dict[str, Any]:
    kept = {name: getattr(day, name) for name in ("deletes", "windows", "marked", "old")}
    kept["untold"] = day.unreported
    limit = None if day.limit is None else round(day.limit)
    return {"day": day.day.isoformat(), **kept, "limit": limit, "held": day.held}


def _tested(one: Mapping[str, Any]) -> str:
    kept = one["windows"] + one["marked"]
    rest = one["deletes"] - kept
    text = f"{one['table']} {one['day']}: {one['deletes']} deletes, {kept} ignored"
    text += f" ({one['windows']} by windows, {one['marked']} by markers)" if kept else ""
    if one["held"]:
        age = f", the age of {one['untold']} is unknown" if one["untold"] else ""
        return f"{text}; held: {one['old']} old ones, more than {one['limit']}{age}"
    return f"{text}, {rest} applied"


def _line(one: Mapping[str, Any]) -> str:
    rows = f"rows with {one['column']} below {one['before']}" if one["column"] else "all rows"
    span = f"from {one['since']} until {one['until']}"
    return f"{one['table']}: {rows} that are deleted {span} are kept"


COMMAND = archive
