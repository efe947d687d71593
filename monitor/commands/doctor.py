"""`sluice doctor`: check servers and lake, and print a fix for each finding."""

import json
import sys
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from monitor.cli.options import Duration
from monitor.config.file import load_config
from monitor.config.sections import plugin_faults
from monitor.config.text import parse_mapping, read_text
from monitor.config.warnings import exposed_files
from monitor.display_text import say
from pipeline.errors import ConfigError
from pipeline.finding import Finding, FindingSeverity

if TYPE_CHECKING:
    from monitor.doctor import Examination

REFUSED, UNASKED = 1, 3
CENTURY = timedelta(days=36_525)
TITLES = {
    FindingSeverity.REFUSE: "REFUSED: until this is fixed, nothing runs or changes are lost",
    FindingSeverity.WARN: "WARNINGS: some checks cannot prove completeness",
    FindingSeverity.NOTE: "NOTES",
}


@click.command("doctor")
@click.option(
    "--config",
    default="sluice.yaml",
    type=click.Path(path_type=Path),
    show_default=True,
    help="Path of the config file.",
)
@click.option(
    "--worker",
    type=click.Path(path_type=Path),
    help="Properties file of the Connect workers, because Connect's API does not show it.",
)
@click.option(
    "--outage",
    "--outage-days",
    type=Duration(timedelta(days=1), CENTURY),
    default="3d",
    show_default=True,
    help="How long the pipeline may be down without losing a change, such as 12h or 3d;"
    " a plain number means days.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def doctor(config: Path, worker: Path | None, outage: timedelta, as_json: bool) -> None:
    """Examine lake, sources, connectors and topics; no service needs to run.

    Nothing is changed. In a bucket, a file is written and removed, to test conditional writes.

    Exit status 0: nothing is refused; 1: something is refused; 2: wrong usage; 3: nothing is
    refused so far, but something did not answer.
    """
    found = load_config(config, plugin_faults)
    worker_properties = None if worker is None else _properties(worker)
    from monitor.doctor import Examination  # noqa: PLC0415  - seconds of imports

    examination = Examination(found, worker_properties, outage)
    examination.findings += (
        Finding(FindingSeverity.WARN, "exposed_file", str(config), file.what, file.fix)
        for file in exposed_files(parse_mapping(read_text(config), config), config)
    )
    examination.run()
    if as_json:
        unreachable = [asdict(one) for one in examination.unasked]
        findings = [asdict(finding) for finding in examination.findings]
        say(json.dumps({"findings": findings, "unasked": unreachable}))
    else:
        for line in _lines(examination):
            say(line)
    sys.exit(REFUSED if examination.refused else UNASKED if examination.unasked else 0)


def _lines(examination: "Examination") -> list[str]:
    lines = []
    for severity, title in TITLES.items():
        findings = [f for f in examination.findings if f.severity is severity]
        if findings:
            lines.append(f"{title} ({len(findings)})")
        for one in findings:
            lines += [f"  {one.where}  {one.what}", f"      fix: {one.fix}"]
    if examination.unasked:
        lines.append(f"NOT EXAMINED ({len(examination.unasked)})")
        for left in examination.unasked:
            again = "then run: sluice doctor"
            lines += [f"  {left.where}  {left.why}", f"      then: {left.then}; {again}"]
    if not examination.refused:
        so_far = " so far" if examination.unasked else ""
        lines.append(f"nothing is refused{so_far}")
    return lines


def _properties(path: Path) -> dict[str, str]:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        msg = (
            f"cannot read {path}: {error.strerror}; set the workers' properties file with --worker"
        )
        raise ConfigError(msg) from None
    except UnicodeDecodeError:
        msg = f"cannot read {path}: it is not UTF-8 text; set the workers' properties file"
        raise ConfigError(f"{msg} with --worker") from None
    pairs = (line.partition("=") for line in text.splitlines() if line.strip()[:1] not in "#!")
    return {name.strip(): value.strip() for name, _, value in pairs}


COMMAND = doctor
