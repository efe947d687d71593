"""The command line accepts each command that the product or its documentation prints."""

import ast
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click
import pytest

from monitor.__main__ import sluice
from tests.docs.markdown import ROOT

_COMMAND = re.compile(
    r"\bsluice ([a-z][a-z-]*)((?: (?:'[^'\n]*'|\"[^\"\n]*\"|[^\s`\"'();,|#&<]+))*)"
)
_FENCED = re.compile(r"^```(?:bash|sh|console)\n(.*?)^```", re.DOTALL | re.MULTILINE)
_SPAN = re.compile(r"`(sluice [^`\n]+)`")
_PACKAGES = ("alerts", "checks", "monitor", "pipeline")


def _literals(path: Path) -> Iterator[str]:
    """Yield the texts of a module without its docstrings; a value within a text is a 1."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    skipped = {id(one.value) for one in ast.walk(tree) if isinstance(one, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            skipped |= {id(part) for part in node.values}
            parts = (p.value if isinstance(p, ast.Constant) else "1" for p in node.values)
            yield "".join(map(str, parts))
    for node in ast.walk(tree):
        text = node.value if isinstance(node, ast.Constant) else None
        if isinstance(text, str) and id(node) not in skipped:
            yield text


def _printed() -> Iterator[tuple[str, str]]:
    """Yield each place and text that may name commands."""
    for package in _PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            for text in _literals(path):
                yield str(path.relative_to(ROOT)), text
    for path in sorted([*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]):
        text = path.read_text(encoding="utf-8")
        for block in _FENCED.findall(text):
            for line in block.replace("\\\n", " ").splitlines():
                yield str(path.relative_to(ROOT)), line
        for span in _SPAN.findall(text):
            yield str(path.relative_to(ROOT)), span


@cache
def _commands() -> list[tuple[str, str, str]]:
    """Return place, verb and arguments of each command; a verb alone is a mention.

    Left out are usages, with `[`, and options whose names are put together.
    """
    verbs = {*sluice.list_commands(click.Context(sluice))}
    return [
        (place, verb, re.sub(r"(?<![.])[.:]$", "", rest).strip())
        for place, text in _printed()
        for verb, rest in _COMMAND.findall(text)
        if verb in verbs and rest.strip() and not any(sign in rest for sign in ("[", "--1"))
    ]


def _fault(verb: str, rest: str) -> str:
    """Return why the command line refuses the command; empty if it does not."""
    command: click.Command | None = sluice
    args = [verb, *shlex.split(rest)]
    context = click.Context(sluice)
    while isinstance(command, click.Group) and args:
        command = command.get_command(context, args.pop(0))
    if isinstance(command, click.Group) or (command is not None and not args):
        return ""  # a mention
    if command is None:
        return "unknown verb"
    try:
        found = command.make_context(verb, args, parent=context)
    except click.ClickException as error:
        return error.format_message()
    reason = found.params.get("reason")
    needs = reason == "" and not (found.params.get("dry_run") and not found.params.get("cancel"))
    return "--reason is required" if needs else ""


def test_commands_are_found() -> None:
    places = {place.partition("/")[0] for place, _, _ in _commands()}

    assert places >= {*_PACKAGES} - {"alerts"} | {"docs"}


@pytest.mark.parametrize(("verb", "rest"), sorted({(v, r) for _, v, r in _commands()}))
def test_a_printed_command_is_accepted(verb: str, rest: str) -> None:
    places = {place for place, *command in _commands() if command == [verb, rest]}

    assert _fault(verb, rest) == "", places
