"""The walks through the code name what is there, and do not become longer."""

import ast
import re
from functools import cache
from pathlib import Path

from tests.docs.markdown import ROOT

PAGE = ROOT / "docs" / "concepts" / "where-is-what.md"
SHARED = "From a job to the lane"
STEP = re.compile(r"^(\d+)\. `([\w/]+\.py)` `([\w.]+)`: \S", re.MULTILINE)
NUMBERED = re.compile(r"^\d+\. .*$", re.MULTILINE)

LIMITS = {
    "The merge of a change": 12,
    "Why a table is NOT_READY": 8,
    "The text of an alert": 5,
    "A DDL from Debezium into a mirror": 22,
    "A redelivery": 10,
    "The fence of a bootstrap": 9,
}
"""Walk -> files to open, from the entry point on. A number may only shrink: the aims are 12, 8, 5,
20, 9 and 9."""


def read_sections() -> dict[str, str]:
    """Heading -> its text."""
    parts = re.split(r"^## (.+)$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def read_steps(section: str) -> list[tuple[str, str]]:
    """File and name of each numbered line."""
    return [(file, name) for _, file, name in STEP.findall(section)]


def find_files(section: str) -> set[str]:
    """All files of a walk, with those of the part that several walks share."""
    shared = read_steps(SECTIONS[SHARED]) if f"[{SHARED.lower()}]" in section else []
    return {file for file, _ in (*shared, *read_steps(section))}


@cache
def find_definitions(file: Path) -> frozenset[str]:
    """Functions and classes of a module, and `Class.method` of its methods."""
    found: set[str] = set()
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            methods = (one for one in node.body if isinstance(one, ast.FunctionDef))
            found |= {f"{node.name}.{one.name}" for one in methods}
    return frozenset(found)


SECTIONS = read_sections()


def test_the_page_has_the_six_walks_and_their_common_beginning() -> None:
    assert list(SECTIONS) == [SHARED, *LIMITS]


def test_each_numbered_line_names_a_file_and_what_is_in_it() -> None:
    for heading, section in SECTIONS.items():
        numbers = [int(number) for number, _, _ in STEP.findall(section)]
        assert numbers == [*range(1, len(NUMBERED.findall(section)) + 1)], heading
        for file, name in read_steps(section):
            assert (ROOT / file).is_file(), file
            assert name in find_definitions(ROOT / file), (file, name)


def test_a_walk_opens_no_file_twice_and_is_not_longer_than_its_limit() -> None:
    for heading, most in LIMITS.items():
        files = [file for file, _ in read_steps(SECTIONS[heading])]
        assert len(files) == len(set(files)), heading
        assert len(find_files(SECTIONS[heading])) <= most, heading
