"""What the tests need of Markdown: links, anchors, tables and blocks of code."""

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = [one for one in ROOT.iterdir() if one.is_dir() and one.name[0] != "."]
PAGES = sorted(
    page
    for folder in (ROOT, *(one for one in FOLDERS if one.name != "build"))
    for page in (folder.glob if folder == ROOT else folder.rglob)("*.md")
)
FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"(?<=\n\n)(?:(?: {4}|\t).*\n|\n)+")
LINK = re.compile(r"!?\[[^]]*\]\(([^)\s]+)\)")


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def prose(text: str) -> str:
    """The text without its blocks of code."""
    return INDENTED.sub("\n", FENCED.sub("\n", text))


def links(page: Path) -> Iterator[str]:
    """Targets of all links and images, as written."""
    yield from LINK.findall(prose(page.read_text(encoding="utf-8")))


def anchors(page: Path) -> list[str]:
    """What can be jumped to: each heading in lower case, its words joined by dashes."""
    headings = re.findall(r"^#+ (.+)$", prose(page.read_text(encoding="utf-8")), re.MULTILINE)
    return [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]


def blocks(page: Path, language: str) -> list[str]:
    """Fenced blocks of code in *language*."""
    return [code for tongue, code in FENCED.findall(page.read_text("utf-8")) if tongue == language]


def first_cells(page: Path) -> list[list[str]]:
    """All rows of all tables, as cells without the marks of code."""
    lines = page.read_text(encoding="utf-8").splitlines()
    rows = [line.strip("|").split("|") for line in lines if line.startswith("|")]
    return [[cell.strip().strip("`") for cell in row] for row in rows if "---" not in row[0]]
