"""`sluice gate TABLE...`: tell a job, by exit status, whether tables are complete."""

import json
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from shlex import quote
from typing import Any
from zoneinfo import ZoneInfo

import click

from monitor.cli.client import get_mapping, service_address
from monitor.cli.offline_status import format_status, read_last_status
from monitor.cli.options import (
    CLOSED,
    Duration,
    cut_option,
    cut_parameter,
    service_options,
    waiver_command,
)
from monitor.config.location import read_location
from monitor.display_text import say, say_lines
from pipeline.errors import UnreachableError

LONGEST, YEAR = 60.0, timedelta(days=365)
EXITS = {"ready": 0, "not_ready": 1, "unknown": 3, **dict.fromkeys(CLOSED, 4)}


@click.command("gate")
@click.argument("tables", nargs=-1, required=True)
@cut_option
@click.option(
    "--stage",
    type=click.Choice(["mirror", "landed", "image", "copy"]),
    default="mirror",
    show_default=True,
    help="Where the data must be complete; `landed` is the change log.",
)
@click.option("--copy", default="", help="Name of the copy, with --stage copy.")
@click.option(
    "--wait",
    type=Duration(timedelta(seconds=1), YEAR),
    default="0s",
    help="How long to wait at most, such as 90s, 5m or 1h; a plain number means seconds.",
)
@click.option(
    "--verified",
    is_flag=True,
    help="Ready only if the rows changed before the cut were compared with the source.",
)
@click.option("--patient", is_flag=True, help="Also wait while a table is blocked.")
@service_options
def gate(
    *,
    tables: tuple[str, ...],
    cut: str | None,
    stage: str,
    copy: str,
    wait: timedelta,
    patient: bool,
    verified: bool,
    config: Path,
    server: str | None,
    as_json: bool,
) -> None:
    """Ask whether all TABLES are complete up to the cut. Only proven completeness is ready.

    Exit status 0: ready; 1: not ready yet; 2: wrong usage; 3: unknown; 4: blocked or revoked, and
    waiting does not help.
    """
    question: dict[str, Any] = {"table": list(tables), "stage": stage, "copy": copy}
    question |= {**cut_parameter(cut), **({"verified": True} if verified else {})}
    try:
        answer = _wait(
            service_address(server, config), question, wait.total_seconds(), patient=patient
        )
    except UnreachableError as error:
        say_lines(str(error), err=True)
        _understood(cut, read_location(config).zone if server is None else ZoneInfo("UTC"))
        if server is None:
            _unwatched(read_last_status(config, stage, tables), as_json=as_json)
        elif as_json:
            say(json.dumps({"state": "unknown", "ready": False, "error": str(error)}))
        sys.exit(EXITS["unknown"])  # without an answer the gate is not open, even with a proof
    for line in [json.dumps(answer)] if as_json else answer_lines(answer):
        say(line)
    sys.exit(EXITS[answer["state"]])


def _wait(base: str, question: dict[str, Any], wait: float, *, patient: bool) -> dict[str, Any]:
    """Ask repeatedly, at most a minute each; the first answer fixes the instant of a cut `now`."""
    until = time.monotonic() + wait
    while True:
        left = max(until - time.monotonic(), 0.0)
        request_wait = min(left, LONGEST)
        params = {**question, "wait": request_wait, "patient": patient}
        answer = get_mapping(base, "/v1/gate", "state", params, request_wait)
        closed = answer["state"] in CLOSED and not patient
        if answer["ready"] or closed or time.monotonic() >= until:
            return answer
        if answer["tables"]:
            question = {**question, "cut": answer["tables"][0]["cut"]}


def _understood(cut: str | None, zone: ZoneInfo) -> None:
    """Refuse an invalid cut before the service does, because asking again would not help.

    Raises:
        ConfigError: *cut* is neither a day nor an instant.
    """
    from pipeline.clocks import parse_cut as instant  # noqa: PLC0415  - needed only where nobody answers

    if cut is not None:
        instant(cut, zone, datetime.now(UTC))


def _unwatched(known: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        say(json.dumps({"state": "unknown", "ready": False, "last_known": known}))
        return
    for line in ("UNKNOWN: no service monitors the tables", *format_status(known)):
        say(line)


def answer_lines(answer: dict[str, Any]) -> list[str]:
    """Return the lines that state an answer of the gate and its reasons."""
    lines = [f"{answer['state'].upper()}" + (f": {answer['why']}" if "why" in answer else "")]
    for one in answer["tables"]:
        proof = f", certificate {one['certificate']}" if one["certificate"] else ""
        version = f", version {one['version']}" if one["version"] is not None else ""
        path = f", in {one['path']}" if one.get("path") else ""
        lines.append(f"  {one['table']} {one['stage']}: {one['state']}{proof}{version}{path}")
        reasons = [reason for reason in one["reasons"] if reason["code"] != "certified"]
        lines += [f"    {reason['code']}: {reason['text']}{_waiver(reason)}" for reason in reasons]
        if not one["ready"]:
            lines += [f"    expected ready at {one['eta']}"] if one["eta"] else []
        elif one.get("unknown_checks"):  # an earlier version sends none
            lines.append(f"    checks without a result: {_unknown_checks(one)}")
    return lines


def _unknown_checks(answer: dict[str, Any]) -> str:
    """Return the names of the gating checks that ruled nothing, and how to learn why."""
    names = ", ".join(answer["unknown_checks"])
    return f"{names}; `sluice explain {quote(answer['table'])}` shows why"


def _waiver(reason: dict[str, Any]) -> str:
    """Return how to waive *reason*; `sluice explain` shows how to repair a check's finding."""
    command = "" if reason["code"] == "check_failed" else waiver_command(reason)
    return f"  (to ignore it: {command})" if command else ""


COMMAND = gate
