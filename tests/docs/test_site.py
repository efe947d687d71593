"""The site is built without a warning, reads as the pages do, and loads nothing from elsewhere."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from docs.site_hooks import expanded, indented, linked
from tests.docs.markdown import ROOT

LOADED = re.compile(
    r"<(?:link|script|img|iframe)\b[^>]*\b(?:href|src)=\"?(https?:)?//", re.IGNORECASE
)
COUNTED = ("<li", "<table", "<pre", "<h2", "<h3", "<em>")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a strict build."""
    there = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(there)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return there


@pytest.mark.thorough
def test_a_page_of_the_site_loads_nothing_from_elsewhere(site: Path) -> None:
    pages = [*site.rglob("*.html")]

    assert len(pages) > 30
    assert [str(page) for page in pages if LOADED.search(page.read_text(encoding="utf-8"))] == []


@pytest.mark.thorough
def test_search_works_in_files_without_a_server(site: Path) -> None:
    index = (site / "search" / "search_index.js").read_text(encoding="utf-8")
    page = (site / "index.html").read_text(encoding="utf-8")

    assert index.startswith("var __index = ")
    assert "assets/iframe-worker.js" in page
    assert (site / "assets" / "iframe-worker.js").is_file()


@pytest.mark.thorough
def test_a_page_of_the_site_has_the_lists_and_tables_of_its_text(site: Path) -> None:
    markdown = MarkdownIt("commonmark").enable("table")
    differing = []
    for page in sorted((ROOT / "docs").rglob("*.md")):
        name = page.relative_to(ROOT / "docs").with_suffix(".html")
        built = site / (name.with_name("index.html") if page.stem == "README" else name)
        _, _, body = built.read_text(encoding="utf-8").partition("<article")
        article, _, _ = body.partition("</article>")
        text = markdown.render(page.read_text(encoding="utf-8"))
        if [text.count(tag) for tag in COUNTED] != [article.count(tag) for tag in COUNTED]:
            differing.append(str(name))

    assert differing == []


@pytest.mark.thorough
def test_nothing_but_pages_is_on_the_site(site: Path) -> None:
    assert [*site.rglob("*.py")] == []


@pytest.mark.parametrize(
    ("text", "repository", "expected"),
    [
        pytest.param("[a](../checks/run.py)", "", "a (`checks/run.py`)", id="named only"),
        pytest.param("[checks/run.py](../checks/run.py)", "", "`checks/run.py`", id="named once"),
        pytest.param(
            "[a](../checks/run.py)",
            "https://git.example.org/s/",
            "[a](https://git.example.org/s/blob/main/checks/run.py)",
            id="in the repository",
        ),
        pytest.param("[a](types.md#b)", "https://x", "[a](types.md#b)", id="a page"),
        pytest.param("![a](images/b.png)", "", "![a](images/b.png)", id="an image"),
    ],
)
def test_a_link_that_leaves_the_pages(text: str, repository: str, expected: str) -> None:
    assert linked(text, "extending.md", repository) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("* a\n  b\n* c", "* a\n    b\n* c", id="a line of an item"),
        pytest.param("1. a\n\n       code\n", "1. a\n\n        code\n", id="code in an item"),
        pytest.param("1. a\n\n   b\n2. c", "1. a\n\n    b\n\n2. c", id="an item of paragraphs"),
        pytest.param("* a\nb\n\nc", "* a\nb\n\nc", id="a wrapped line, and a paragraph after"),
        pytest.param("    code\n", "    code\n", id="code"),
        pytest.param("```\n* a\n  b\n```", "```\n* a\n  b\n```", id="a fenced block"),
        pytest.param("* a\n  * b\n    c", "* a\n    * b\n        c", id="a list in a list"),
    ],
)
def test_a_list_is_indented_as_the_site_reads_it(text: str, expected: str) -> None:
    assert indented(text) == expected


def test_a_folder_in_the_navigation_is_its_pages(tmp_path: Path) -> None:
    (tmp_path / "guides").mkdir()
    for name in ("b.md", "README.md", "a.md"):
        (tmp_path / "guides" / name).touch()

    found = expanded([{"Guides": ["guides/", "absent/", "c.md"]}], tmp_path)

    assert found == [{"Guides": ["guides/README.md", "guides/a.md", "guides/b.md", "c.md"]}]
