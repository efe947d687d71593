"""Checks the house style: no denied word in messages, docstrings and docs, and no question.

A docstring states what its unit does.  It does not start with a question.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LAYERS = ("pipeline", "checks", "alerts", "monitor", "demo")
FOLDERS = (*LAYERS, "bench", "docs", "examples", "grafana", "tests")
WORDS = (
    *("nobody", "anew", "told", "tells", "lacks", "ails", "bears", "vouch", "vouches", "beat"),
    *("beats", "besides", "thereby", "whoever", "whatever", "heed", "mend", "keeper", "letters"),
    *("torn", "standstill", "once more", "of whom", "of which", "put right"),
    *("puts right", "in hand", "by itself", "has come past"),
)
# "is None" is the value of Python and no word of the list.
DENIED = re.compile(rf"\b(?:{'|'.join(WORDS)}|(?-i:is none))\b", re.IGNORECASE)
QUESTION = re.compile(r"[^.!?]*\?(?:\s|$)")  # a question mark in quotes ends no sentence
MAYBE = re.compile(r'"""[^.!?]*\?(?:\s|"")')  # in code; only such files are parsed, to be fast
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
CODE_SPAN = re.compile(r"```.*?```|``[^`]*``|`[^`]*`", re.DOTALL)

# Names that are stored, in SQL statements of a file, or that users call, in messages of it.
SQL = re.compile(r"(?:SELECT|INSERT|UPDATE|DELETE|CREATE|ALTER) ")
STORED = {
    ("pipeline/files/ledger.py", "told"): "a column of the table `waiting` of each ledger",
    ("pipeline/files/ledger.py", "beats"): "a table of each ledger",
}
CALLED = {
    ("monitor/commands/quarantine.py", "--letters"): "an option of `sluice quarantine show`",
}


def test_messages_and_docstrings_have_no_denied_word() -> None:
    assert _denied_in_code() == []


def test_docs_have_no_denied_word() -> None:
    pages = [*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")]
    found = [
        f"{page.relative_to(ROOT)}: {word}"
        for page in pages
        for word in _denied(page.read_text("utf-8"))
    ]

    assert found == []


def test_the_config_that_init_writes_has_no_denied_word() -> None:
    text = (ROOT / "monitor" / "commands" / "sluice.yaml").read_text("utf-8")

    assert _denied(text) == []


def test_no_docstring_starts_with_a_question() -> None:
    found = [
        f"{file.relative_to(ROOT)}: {text.splitlines()[0]}"
        for folder in FOLDERS
        for file in sorted((ROOT / folder).rglob("*.py"))
        for text in _questions(file.read_text("utf-8"))
    ]

    assert found == []


@pytest.mark.parametrize(
    ("code", "is_found"),
    [
        pytest.param('"""Is it ready?  Pure."""', True, id="module"),
        pytest.param('class A:\n    """Which rows\n    are lost?"""', True, id="class"),
        pytest.param('def a():\n    """A probe: has it rows?"""', True, id="function"),
        pytest.param('"""Decides what is ready.  Is it whole?"""', False, id="later question"),
        pytest.param("'''The '?' of it.'''", False, id="quoted mark"),
    ],
)
def test_a_docstring_that_starts_with_a_question_is_found(code: str, *, is_found: bool) -> None:
    assert bool(_questions(code)) == is_found


@pytest.mark.parametrize(("file", "name"), [*STORED, *CALLED])
def test_an_excepted_name_is_still_used(file: str, name: str) -> None:
    assert any(name in text for _, text in _literals(ROOT / file))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        pytest.param("nobody reads it", ["nobody"], id="a word"),
        pytest.param("there is none", ["is none"], id="two words"),
        pytest.param("``rows`` is None without an end", [], id="the value of Python"),
        pytest.param("``told`` and `beats` are fields", [], id="code spans"),
        pytest.param("the letters\nare torn", ["letters", "torn"], id="lines"),
    ],
)
def test_denied_words_are_found_outside_of_code_spans(text: str, found: list[str]) -> None:
    assert _denied(text) == found


def _denied(text: str) -> list[str]:
    return [word.lower() for word in DENIED.findall(CODE_SPAN.sub("", text))]


def _denied_in_code() -> list[str]:
    return [
        f"{path}:{line}: {word}"
        for layer in LAYERS
        for file in sorted((ROOT / layer).rglob("*.py"))
        for path in (str(file.relative_to(ROOT)),)
        for line, text in _literals(file)
        for word in _denied(_without_names(path, text))
    ]


def _without_names(path: str, text: str) -> str:
    excepted = [name for file, name in CALLED if file == path]
    if SQL.match(text):
        excepted += [name for file, name in STORED if file == path]
    for name in excepted:
        text = re.sub(rf"(?<!\w){name}\b", "", text)
    return text


def _questions(code: str) -> list[str]:
    """Docstrings that start with a question."""
    if not MAYBE.search(code):
        return []
    nodes = (node for node in ast.walk(ast.parse(code)) if isinstance(node, DOCUMENTED))
    return [text for node in nodes if (text := ast.get_docstring(node)) and QUESTION.match(text)]


def _literals(file: Path) -> Iterator[tuple[int, str]]:
    """Line and text of literals of more than one word: docstrings and messages, not keys."""
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.lineno, node.value
