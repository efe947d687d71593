"""`sluice repair TABLE --keys | --ranges | --incident`: read some rows again from their source."""

import json
from pathlib import Path

import click

from monitor.cli.client import service_address
from monitor.cli.options import (
    backfill_options,
    cancel_backfill,
    request_backfill,
    require_reason,
    service_options,
)

DRY = "a dry run"


@click.command("repair")
@click.argument("table")
@click.option(
    "--keys",
    multiple=True,
    help="Keys, separated by commas, such as 17,42; JSON arrays if a key has several columns.",
)
@click.option(
    "--ranges",
    multiple=True,
    help=("Ranges of ids, such as 17..42 (inclusive), separated by commas."),
)
@click.option(
    "--incident",
    default="",
    help="Read the rows that the checks of this incident found; not with --keys or --ranges.",
)
@click.option("--most", default=100_000, show_default=True, help="Refuse to read more rows.")
@click.option(
    "--dry-run", is_flag=True, help="Only show what would change, without --reason; only for ids."
)
@backfill_options
@service_options
def repair(
    *,
    table: str,
    keys: tuple[str, ...],
    ranges: tuple[str, ...],
    incident: str,
    most: int,
    dry_run: bool,
    reason: str,
    who: str,
    cancel: bool,
    wait: bool,
    config: Path,
    server: str | None,
    as_json: bool,
) -> None:
    """Read some rows of TABLE again from their source, and delete rows that it does not have.

    Later changes win. Exit status 0: done, and the checks that found the rows wrong pass again;
    4: ended before that.
    """
    if not dry_run or cancel:
        require_reason(reason)
    base, said = service_address(server, config), {"reason": reason or DRY, "who": who}
    if cancel:
        cancel_backfill(base, [table], said, as_json=as_json)
        return
    named = {"keys": _keys(keys), "ranges": [one for r in ranges for one in r.split(",")]}
    body = {"table": table, **named, "incident": incident, "most": most, "dry_run": dry_run}
    request_backfill(base, "/v1/repairs", body | said, wait=wait, as_json=as_json)


def _keys(given: tuple[str, ...]) -> list[str]:
    """Return one text per key; split plain text at commas. An array of arrays has many keys."""
    found: list[str] = []
    for text in given:
        if not text.lstrip().startswith("["):
            found += [one.strip() for one in text.split(",")]
            continue
        try:
            array = json.loads(text)
        except ValueError:
            array = None  # the service reports the fault
        many = isinstance(array, list) and array and all(isinstance(one, list) for one in array)
        found += [json.dumps(one) for one in array] if many else [text]
    return found


COMMAND = repair
