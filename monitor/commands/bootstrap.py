"""`sluice bootstrap TABLE... --reason`: a new base of some tables, read from their source."""

import json
import sys
import time
from pathlib import Path
from typing import Any

import click

from monitor.client import address, listed, posted
from monitor.options import asks_service, login

PACE = 1.0  # seconds between two looks
FAILED = 4


@click.command("bootstrap")
@click.argument("tables", nargs=-1, required=True)
@click.option("--reason", required=True, help="Why a new base is needed; kept for ever.")
@click.option("--who", default=login, help="By default the name you are logged in with.")
@click.option("--cancel", is_flag=True, help="Give up what is read of TABLES now.")
@click.option("--wait/--no-wait", default=True, show_default=True, help="Look on until it ends.")
@asks_service
def bootstrap(
    *,
    tables: tuple[str, ...],
    reason: str,
    who: str,
    cancel: bool,
    wait: bool,
    config: Path,
    server: str | None,
    as_json: bool,
) -> None:
    """Read TABLES again from their source, beside everything else, and let that be their base.

    Exit status 0: done, or begun with --no-wait; 4: it ended without a new base.
    """
    base = address(server, config)
    body = {"tables": list(tables), "reason": reason, "who": who}
    path = "/v1/bootstraps/cancelled" if cancel else "/v1/bootstraps"
    ids = {one["id"] for one in posted(base, path, "bootstraps", body)["bootstraps"]}
    watched = _watched(base, ids, quiet=as_json) if wait and not cancel else _told(base, ids)
    if as_json:
        click.echo(json.dumps(watched))
    elif cancel or not wait:
        for one in watched:
            click.echo(_line(one))
    if wait and not cancel and not all(one["done"] for one in watched):
        sys.exit(FAILED)


def _told(base: str, ids: set[str]) -> list[dict[str, Any]]:
    found = listed(base, "/v1/bootstraps", {"limit": 1000})
    return [one for one in found if one["id"] in ids]


def _watched(base: str, ids: set[str], *, quiet: bool) -> list[dict[str, Any]]:
    """Look on until all have ended; on a terminal a line each that moves, else one a change."""
    shown: dict[str, str] = {}
    began = time.monotonic()
    while True:
        found = _told(base, ids)
        for one in found:
            line = _line(one, time.monotonic() - began)
            if not quiet and shown.get(one["id"]) != line:
                _show(line, moving=one["ended"] is None)
                shown[one["id"]] = line
        if all(one["ended"] for one in found):
            return found
        time.sleep(PACE)


def _show(line: str, *, moving: bool) -> None:
    """On a terminal the line of one that goes on is written over."""
    live = sys.stdout.isatty()
    click.echo(f"\r\x1b[K{line}" if live else line, nl=not (live and moving))


def _line(one: dict[str, Any], seconds: float = 0.0) -> str:
    rows, about = one["rows"], one["about"]
    if one["done"]:
        return f"{one['table']}: {rows} rows read, the new base is complete"
    if one["ended"]:
        return f"{one['table']}: ended without a new base: {one['why'] or 'cancelled'}"
    told = f"{one['table']}: {rows} rows" + (f" of about {about}" if about else "")
    rate = rows / seconds if seconds else 0.0
    if rate:
        told += f", {rate:.0f} rows/s"
    if rate and about and about > rows:
        told += f", about {(about - rows) / rate:.0f} s left"
    return f"{told}; waits: {one['why']}" if one["why"] else told


COMMAND = bootstrap
