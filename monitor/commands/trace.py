"""`sluice trace TABLE KEY`: show where one row is, hop by hop, and what to do."""

import json
import re
import sys
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import click

from monitor.cli.client import get_mapping, quote_name, service_address
from monitor.cli.options import UNKNOWN, Duration, service_options
from monitor.display_text import say

MOST = timedelta(minutes=1)
LOOKS = 2  # at the change log, in addition to those within the wait
SLACK = 30.0  # seconds for all hops to answer
WRONG = 4
NEGATIVE = re.compile(r"-[0-9]")
FINE = ("MERGED", "IN_TOPIC", "LANDED_NOT_MERGED", "ABSENT")
OPEN = ("UNDECIDED", "IN_FLIGHT")


class TraceCommand(click.Command):
    """A command whose last argument may be a negative number."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Move a negative number behind `--`, unless it is the value of an option."""
        valued = {name for one in self.params if _takes_value(one) for name in one.opts}
        for at, (before, word) in enumerate(pairwise(("", *args))):
            if word == "--":
                break
            if NEGATIVE.match(word) and before not in valued:
                return super().parse_args(ctx, [*args[:at], *args[at + 1 :], "--", word])
        return super().parse_args(ctx, args)


def _takes_value(one: click.Parameter) -> bool:
    return isinstance(one, click.Option) and not one.is_flag


@click.command("trace", cls=TraceCommand)
@click.argument("table")
@click.argument("key")
@click.option(
    "--at",
    metavar="WHEN",
    help="Also show the mirror's row as of this instant, such as 2026-03-29T12:00:00Z.",
)
@click.option(
    "--wait",
    default="10s",
    show_default=True,
    type=Duration(timedelta(seconds=1), MOST),
    help="How long to look again while the row is in flight.",
)
@click.option(
    "--budget",
    default="1.5s",
    show_default=True,
    type=Duration(timedelta(seconds=1), MOST),
    help="How long to search the change log, newest changes first.",
)
@service_options
def trace(
    *,
    table: str,
    key: str,
    at: str | None,
    wait: timedelta,
    budget: timedelta,
    config: Path,
    server: str | None,
    as_json: bool,
) -> None:
    """Show where the row KEY of TABLE is: source, topic, change log, quarantine and mirror.

    KEY is a value, a=1,b=x, or a JSON array or object; bytes are 0x00ff. Exit status 0: the row is
    right or on its way; 3: undecided, or no service answers; 4: it is lost, refused or different.
    """
    times = {"wait": wait.total_seconds(), "budget": budget.total_seconds()}
    question = {"key": key, **times} | ({} if at is None else {"at": at})
    path = f"/v1/tables/{quote_name(table)}/trace"
    longest = times["wait"] + LOOKS * times["budget"] + SLACK
    base = service_address(server, config)
    found = get_mapping(base, path, "traces", question, longest)
    if as_json:
        say(json.dumps(found))
    else:
        _show(found)
    states = {one["state"] for one in found["traces"]}
    if states - {*FINE, *OPEN}:
        sys.exit(WRONG)
    if states & {*OPEN}:
        sys.exit(UNKNOWN)


def _show(found: dict[str, Any]) -> None:
    for one in found["traces"]:
        say(f"{found['table']} {found['key']} in {one['shard']}: {one['state']}")
        say(f"  {one['sentence']}")
        if found.get("respelled"):
            say("  the source spells the key so; it is looked for in the other hops")
        say(f"  what to do: {one['advice']}")
        for name, lines in _hops(one):
            for number, line in enumerate(lines):
                say(f"  {name if number == 0 else '':<11} {line}")
    say(_search(found["search"]))
    for image in found["images"]:
        say(f"image of {image['cut']}: version {image['version']} {image['path'] or ''}".rstrip())
    for copy in found["copies"]:
        say(f"copy {copy['name']}{': held: ' + copy['held'] if copy['held'] else ''}")


def _hops(one: dict[str, Any]) -> list[tuple[str, list[str]]]:
    hops = [
        ("source", one["source"], [_row(one["source"], one["columns"])]),
        ("topic", one["topic"], [*map(_record, one["topic"]["records"])] or ["no record waits"]),
        (
            "change log",
            one["change_log"],
            [*map(_change, one["change_log"]["changes"])] or ["no change"],
        ),
        (
            "quarantine",
            one["quarantine"],
            [f"{each['id']}: {each['why']}" for each in one["quarantine"]["messages"]]
            or ["no message"],
        ),
        ("mirror", one["mirror"], _mirror(one["mirror"], one["columns"])),
    ]
    if one["before"] is not None:
        hops.append(("before", one["before"], _mirror(one["before"], one["columns"])))
    return [
        (name, [f"did not answer: {hop['why']}"] if hop["why"] else lines)
        for name, hop, lines in hops
    ]


def _row(hop: dict[str, Any], differing: list[str]) -> str:
    """Return the values of a row; differing ones are marked with an exclamation mark."""
    if hop["row"] is None:
        return "no row"
    shown = [
        f"{'!' if name in differing else ''}{name}={'NULL' if value is None else value}"
        for name, value in hop["row"].items()
    ]
    hidden = hop.get("not_shown", {}).items()
    return ", ".join([*shown, *(f"{name} is not shown: {why}" for name, why in hidden)])


def _record(one: dict[str, Any]) -> str:
    return f"{one['op']} {one['place']}{_at(one)}, not landed"


def _change(one: dict[str, Any]) -> str:
    place = f", {one['place']}" if one["place"] else ""
    text = f"{one['op']} batch {one['batch']}, order {one['order']}, {one['origin']}"
    return f"{text}{_at(one)}{place}"


def _mirror(hop: dict[str, Any], differing: list[str]) -> list[str]:
    committed = f" of {hop['committed']}" if hop["committed"] else ""
    lines = [f"version {hop['version']}{committed}, merged through batch {hop['applied']}"]
    if hop["order"] is not None:
        lines.append(f"{hop['op']} batch {hop['batch']}, order {hop['order']}{_at(hop)}")
    return [*lines, _row(hop, differing)]


def _at(one: dict[str, Any]) -> str:
    return f", at {one['at']}" if one["at"] else ""


def _search(search: dict[str, Any]) -> str:
    """Return how far topics and change log were searched."""
    parts = []
    if search["files"] is not None:
        looked = f"{search['footers']} of {search['files']} files of the change log"
        rest = f", not below batch {search['down_to']}" if search["down_to"] else ""
        rest += f", {search['left_out']} older changes not listed" if search["left_out"] else ""
        parts.append(f"{looked}{rest}")
    if search["records"] is not None:
        rest = f", not {search['skipped_records']} before" if search["skipped_records"] else ""
        parts.append(f"{search['records']} records that have not landed{rest}")
    return f"searched: {'; '.join(parts) or 'nothing'}"


COMMAND = trace
