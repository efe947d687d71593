"""`sluice explain TABLE`: show why a table is ready or not, by hop and by check."""

import json
import shlex
import sys
from collections.abc import Container, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import click

from monitor.cli import options as copy_lines
from monitor.cli.client import get_list, get_mapping, service_address
from monitor.cli.options import CLOSED, UNKNOWN, cut_option, cut_parameter, service_options
from monitor.display_text import say

NEW_BASE = ("completeness", "inversions", "schema")
"""Checks that name no rows; a new base of the table resolves their findings."""
NOT_WAIVED = "completeness"  # a waiver for it opens the gate while rows are missing


@click.command("explain")
@click.argument("table")
@cut_option
@service_options
def explain(table: str, cut: str | None, config: Path, server: str | None, as_json: bool) -> None:
    """Show the readiness of TABLE for the stages landed and mirror, with lags, checks and reasons.

    Then it shows each copy, with reasons that block only the copy.

    Exit status 0: known; 2: wrong usage; 3: an answer is unknown, or no service answers.
    """
    base = service_address(server, config)
    question = {"table": table, **cut_parameter(cut)}
    decisions = [
        get_mapping(base, "/v1/gate", "state", {**question, "stage": stage})
        for stage in ("landed", "mirror")
    ]
    answers = [one for decision in decisions for one in decision["tables"]] or decisions[:1]
    history = get_list(base, "/v1/verdicts", {"table": table, "limit": 500})
    verdicts = _newest(history)
    incidents = get_list(base, "/v1/incidents", {"limit": 1000})
    rows = [one for one in get_list(base, "/v1/tables") if one["table"] == table]
    ruled = {one["check"] for one in verdicts}
    waiting = [
        one for one in get_list(base, "/v1/checks", {"table": table}) if one["check"] not in ruled
    ]
    if as_json:
        copies = {name: copy for one in rows for name, copy in one["copies"].items()}
        shown = {"answers": answers, "verdicts": verdicts, "copies": copies, "waiting": waiting}
        say(json.dumps(shown))
    else:
        _show(answers, _repairs(incidents, table), rows, verdicts, history)
        for one in waiting:
            say(f"  {one['check']}: no verdict yet, {one['why']}")
        for line in _automatic(incidents, table):
            say(line)
    if any(answer["state"] == "unknown" for answer in answers):
        sys.exit(UNKNOWN)


def _show(
    answers: list[dict[str, Any]],
    repairs: Mapping[str, str],
    rows: list[dict[str, Any]],
    verdicts: list[dict[str, Any]],
    history: list[dict[str, Any]],
) -> None:
    for answer in answers:
        for line in explanation_lines(answer, repairs):
            say(line)
    shown = {reason["text"] for answer in answers for reason in answer.get("reasons", ())}
    for line in (line for one in rows for line in _copies(one, shown)):
        say(line)
    say("checks:" if verdicts else "checks: none has run yet")
    for one in verdicts:
        say(_check(one, history))


def _copies(row: dict[str, Any], shown: Container[str]) -> Iterator[str]:
    """Describe each copy, with its blocking reasons that are not *shown* for the table itself."""
    named = sorted(row["copies"].items())
    for line, (_, copy) in zip(copy_lines.format_copies(row), named, strict=True):
        yield line
        for reason in copy["day"]["reasons"] if copy["day"]["state"] in CLOSED else ():
            if reason["text"] not in shown:
                yield f"  {reason['code']}: {reason['text']}{_fix(reason, {})}"


def _check(one: dict[str, Any], history: list[dict[str, Any]]) -> str:
    """Describe the result of a check, since when it holds, and when the check last ran."""
    shown = one.get("now") or one
    since = one["at"] if shown["outcome"] == one["outcome"] else one.get("looked")
    if since == one["at"]:
        for older in history:
            if older["check"] == one["check"]:
                if older["outcome"] != one["outcome"]:
                    break
                since = older["at"]
    looked = one.get("looked") or one["at"]
    return (
        f"  {one['check']}: {shown['outcome']}, {shown['reason']}"
        f" (since {since}, last run {looked})"
    )


def _repairs(incidents: list[dict[str, Any]], table: str) -> dict[str, str]:
    """Return check -> the command that repairs its finding in *table*."""
    from monitor.row_selection import NAMING  # noqa: PLC0415  - loads Arrow

    base = f"sluice bootstrap {shlex.quote(table)} --reason ..."
    return dict.fromkeys(NEW_BASE, base) | {
        member["check"]: f"sluice repair {shlex.quote(table)} --incident {one['id']} --reason ..."
        for one in incidents
        if one["kind"] == "lost"
        for member in one["failing"]
        if member["table"] == table and member["check"] in NAMING
    }


def _automatic(incidents: list[dict[str, Any]], table: str) -> list[str]:
    """Return a line for each incident of *table* that a rule repairs: next step and reason."""
    return [
        f"automatic repair of incident {one['id']}: {step['next']}, {step['why']}"
        for one in incidents
        for step in one.get("repairs", ())
        if step["table"] == table
    ]


def _fix(reason: dict[str, Any], repairs: Mapping[str, str]) -> str:
    """Return the commands for *reason*: the repair first, the waiver last."""
    check = reason["text"].partition(":")[0] if reason["code"] == "check_failed" else ""
    fixes = [repairs[check]] if check in repairs else []
    waiver = copy_lines.waiver_command(reason)
    fixes += [waiver] if waiver and check != NOT_WAIVED else []
    return f"  ({'; or, to ignore it: '.join(fixes)})" if fixes else ""


def explanation_lines(
    answer: dict[str, Any], repairs: Mapping[str, str] = MappingProxyType({})
) -> list[str]:
    """Return the lines that explain one answer of the gate."""
    if "hops" not in answer:
        return [f"{answer['state'].upper()}: {answer.get('why', '')}"]
    lines = [f"{answer['table']} {answer['stage']} up to {answer['cut']}: {answer['state']}"]
    for reason in answer["reasons"]:
        lines.append(f"  {reason['code']}: {reason['text']}{_fix(reason, repairs)}")
    lines += [f"  expected ready at {answer['eta']}"] if answer["eta"] else []
    for hop in answer["hops"]:
        lag = hop["why"] if hop["lag_seconds"] is None else f"{hop['lag_seconds']:.1f} s"
        lines.append(f"  hop {hop['hop']}: {lag}, complete up to {hop['watermark'] or 'unknown'}")
    return lines


def _newest(verdicts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    newest: dict[str, dict[str, Any]] = {}
    for one in verdicts:
        newest.setdefault(one["check"], one)
    return [newest[name] for name in sorted(newest)]


COMMAND = explain
