"""Nothing in README and docs leads nowhere, and what they list is what there is."""

import pkgutil
import re
import tomllib
from itertools import chain
from pathlib import Path

import pytest
from click import Group, Option

from monitor import commands
from monitor.__main__ import sluice
from pipeline.sources.mysql.types import BYTES, FIXED, TEXTS, WHOLE, lake_type
from pipeline.sources.mysql.types import MySqlColumn as Column
from pipeline.spark.jars import LOCK
from tests.docs.markdown import PAGES, ROOT, anchors, first_cells, links, name

DOCS = ROOT / "docs"
GUIDES = sorted((DOCS / "guides").glob("*.md"))
CONCEPTS = sorted((DOCS / "concepts").glob("*.md"))
START = sorted((DOCS / "start").glob("*.md"))
LONGEST = 150
BOUNDS = {"README.md": 150, "CONTRIBUTING.md": 120, "CHANGELOG.md": 80}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_link_leads_to_something(page: Path) -> None:
    broken = []
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)

    assert broken == []


@pytest.mark.parametrize("page", [*GUIDES, *CONCEPTS, *START], ids=name)
def test_a_guide_concept_or_first_page_is_short(page: Path) -> None:
    assert len(page.read_text(encoding="utf-8").splitlines()) <= LONGEST


@pytest.mark.parametrize(("page", "most"), BOUNDS.items(), ids=str)
def test_a_page_that_everybody_reads_is_short(page: str, most: int) -> None:
    assert len((ROOT / page).read_text(encoding="utf-8").splitlines()) <= most


@pytest.mark.parametrize("folder", [GUIDES, CONCEPTS], ids=["guides", "concepts"])
def test_an_index_lists_each_of_its_pages_once(folder: list[Path]) -> None:
    index = folder[0].parent / "README.md"

    listed = [link for link in links(index) if "/" not in link]

    assert sorted(listed) == sorted(page.name for page in folder if page != index)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_a_page_stays_in_the_project_and_names_no_address_outside(page: Path) -> None:
    assert [link for link in links(page) if "://" in link] == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_anchors_are_unique_where_they_are_linked_to(page: Path) -> None:
    if page.name == "CHANGELOG.md":
        return
    found = anchors(page)

    assert sorted(found) == sorted(set(found))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_command_that_is_named_exists(page: Path) -> None:
    verbs = {module.name.replace("_", "-") for module in pkgutil.iter_modules(commands.__path__)}
    text = page.read_text(encoding="utf-8")
    named = set(re.findall(r"(?:^ {4}|`|/)sluice ([a-z][a-z-]+)", text, re.MULTILINE))

    assert named - verbs == set()


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_file_of_the_code_that_is_named_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    named = set(
        re.findall(r"\b((?:pipeline|checks|alerts|monitor|grafana|tests)/[\w/]+\.\w+)", text)
    )

    assert [file for file in sorted(named) if not (ROOT / file).is_file()] == []


def test_options_of_the_command_line_that_docs_use_exist() -> None:
    assert isinstance(sluice, Group)
    verbs = {
        module.name: __import__(f"monitor.commands.{module.name}", fromlist=["COMMAND"]).COMMAND
        for module in pkgutil.iter_modules(commands.__path__)
    }
    known = {
        verb: {
            option
            for one in (command, *getattr(command, "commands", {}).values())
            for p in one.params
            if isinstance(p, Option)
            for option in (*p.opts, *p.secondary_opts)
        }
        for verb, command in verbs.items()
    }
    for page in PAGES:
        for verb, rest in re.findall(r"sluice (\w[\w-]*)([^`\n]*)", page.read_text("utf-8")):
            used = set(re.findall(r"(?<!\S)--[a-z-]+", rest.split("&&")[0]))
            assert used <= known.get(verb.replace("-", "_"), used), (name(page), verb)


def test_each_dependency_has_its_reason() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *chain(*project["optional-dependencies"].values())]
    ours = "sluice["  # an extra that is made of others
    declared = {re.split(r"[=<>~! ;]", one)[0] for one in wanted if not one.startswith(ours)}
    groups = {line.split()[0] for line in LOCK.read_text().splitlines() if line.strip(" #\n")}

    told = {row[0]: row[1:] for row in first_cells(DOCS / "dependencies.md")}
    told.pop("package")
    told.pop("group")
    assert set(told) == declared | groups - {"#"}
    assert all(reason[0] for reason in told.values())


TYPES = [row for row in first_cells(DOCS / "types.md") if row[0] != "MySQL"]


def _column(declared: str) -> Column:
    found = re.fullmatch(r"([A-Z]+)(?:\((\d+)(?:,(\d+))?\))?( UNSIGNED)?", declared)
    assert found is not None, declared
    kind, length, scale, unsigned = found.groups()
    numbers = [None if n is None else int(n) for n in (length, scale)]
    return Column("c", kind + (unsigned or ""), numbers[0], numbers[1])


@pytest.mark.parametrize("row", TYPES, ids=[row[0] for row in TYPES])
def test_a_type_is_what_the_page_says(row: list[str]) -> None:
    assert lake_type(_column(row[0])) == row[1]


def test_every_type_is_on_the_page() -> None:
    told = {_column(row[0]).kind for row in TYPES}

    assert {*WHOLE, *FIXED, *TEXTS, *BYTES, "DECIMAL", "BIT"} - told == set()
