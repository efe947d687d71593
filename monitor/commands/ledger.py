"""`sluice ledger TABLE`: show by hop and minute what went in and what did not come out."""

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from checks.ledger import NOT_BY_SOURCE
from monitor.cli.client import get_mapping, quote_name, service_address
from monitor.cli.options import UNKNOWN, service_options
from monitor.display_text import say

RESIDUAL = 1
COLUMNS = ("minute", "state", "went in", "came out", "missing", "explained", "in flight")


@click.command("ledger")
@click.argument("table")
@click.option(
    "--from",
    "since",
    metavar="WHEN",
    help="First minute, such as 2026-03-29T12:00:00Z; a date is its first instant in the "
    "pipeline's zone; by default an hour before the last.",
)
@click.option(
    "--to",
    "until",
    metavar="WHEN",
    help="End of the last minute, at most a day after the first; a date is its first instant; by "
    "default now.",
)
@service_options
def ledger(
    *,
    table: str,
    since: str | None,
    until: str | None,
    config: Path,
    server: str | None,
    as_json: bool,
) -> None:
    """Show for each hop and minute of TABLE what went in and what did not come out.

    Collection counts events, landing counts messages and rows, other hops count rows by operation.

    Exit status 0: nothing is missing; 1: a minute has a residual; 3: none has, but one is unknown,
    or a hop was not counted, though its source can be; or the time begins before the kept six hours
    or in the future; or no service answers.
    """
    span = {"from": since, "to": until}
    question = {name: value for name, value in span.items() if value is not None}
    base = service_address(server, config)
    found = get_mapping(base, f"/v1/tables/{quote_name(table)}/ledger", "hops", question)
    if as_json:
        say(json.dumps(found))
    else:
        say(f"{found['table']} from {found['since']} to {found['until']}")
        if found.get("note"):  # an earlier version sends none
            say(found["note"])
        for hop in found["hops"]:
            for line in _format_hop(hop):
                say(line)
    states = {one["state"] for hop in found["hops"] for one in hop["minutes"]}
    if "residual" in states:
        sys.exit(RESIDUAL)
    if "unknown" in states or found.get("note") or any(map(_is_uncounted, found["hops"])):
        sys.exit(UNKNOWN)


def _is_uncounted(hop: Mapping[str, Any]) -> bool:
    """Whether nothing is known of *hop*, though its source could be counted."""
    known = hop["minutes"] or hop["residual"] is not None
    return not known and not hop["note"].startswith(NOT_BY_SOURCE)


def _format_hop(hop: Mapping[str, Any]) -> Iterator[str]:
    residual = "unknown" if hop["residual"] is None else hop["residual"]
    when = f", of {hop['oldest']} to {hop['newest']}" if hop.get("oldest") else ""
    yield f"{hop['hop']}: residual of all kept minutes: {residual}{when}"
    if not hop["minutes"]:
        yield f"  {hop['note']}"
        return
    lines = [COLUMNS, *map(_cells, hop["minutes"])]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        padded = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        yield f"  {'  '.join(padded)}".rstrip()


def _cells(one: Mapping[str, Any]) -> tuple[str, ...]:
    counts = (one[name.replace(" ", "_")] for name in COLUMNS[2:])
    return (one["minute"], one["state"], *map(_format_counts, counts))


def _format_counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{rows} {name}" for name, rows in sorted(counts.items())) or "-"


COMMAND = ledger
