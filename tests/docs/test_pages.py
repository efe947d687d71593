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
VERB = re.compile(r"(?:^ {4}|`|/)sluice ([a-z][a-z-]+)", re.MULTILINE)
FILE = re.compile(r"\b((?:pipeline|checks|alerts|monitor|grafana|tests)/[\w/]+\.\w+)")
BOUNDS = {"README.md": 150, "CONTRIBUTING.md": 120, "CHANGELOG.md": 80}


def test_every_link_leads_to_something() -> None:
    broken = []
    for page in PAGES:
        for link in links(page):
            path, _, anchor = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            if not target.exists() or (anchor and anchor not in anchors(target)):
                broken.append((name(page), link))

    assert broken == []


def test_a_guide_concept_or_first_page_is_short() -> None:
    bounds = {ROOT / page: most for page, most in BOUNDS.items()}
    bounds |= dict.fromkeys([*GUIDES, *CONCEPTS, *START], LONGEST)
    lines = {page: len(page.read_text(encoding="utf-8").splitlines()) for page in bounds}

    assert [(name(page), lines[page]) for page in bounds if lines[page] > bounds[page]] == []


@pytest.mark.parametrize("folder", [GUIDES, CONCEPTS], ids=["guides", "concepts"])
def test_an_index_lists_each_of_its_pages_once(folder: list[Path]) -> None:
    index = folder[0].parent / "README.md"

    listed = [link for link in links(index) if "/" not in link]

    assert sorted(listed) == sorted(page.name for page in folder if page != index)


def test_no_page_links_to_an_address_outside_of_the_project() -> None:
    assert [(name(page), link) for page in PAGES for link in links(page) if "://" in link] == []


def test_anchors_are_unique_where_they_are_linked_to() -> None:
    for page in PAGES:
        found = anchors(page)
        twice = sorted({anchor for anchor in found if found.count(anchor) > 1})
        assert page.name == "CHANGELOG.md" or twice == [], name(page)


def test_every_verb_and_every_file_of_the_code_that_a_page_names_exists() -> None:
    verbs = {module.name.replace("_", "-") for module in pkgutil.iter_modules(commands.__path__)}
    unknown = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        named = VERB.findall(text)
        unknown += [(name(page), verb) for verb in named if verb not in verbs]
        unknown += [
            (name(page), file) for file in FILE.findall(text) if not (ROOT / file).is_file()
        ]

    assert unknown == []


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


def _column(declared: str) -> Column:
    found = re.fullmatch(r"([A-Z]+)(?:\((\d+)(?:,(\d+))?\))?( UNSIGNED)?", declared)
    assert found is not None, declared
    kind, length, scale, unsigned = found.groups()
    numbers = [None if n is None else int(n) for n in (length, scale)]
    return Column("c", kind + (unsigned or ""), numbers[0], numbers[1])


def test_the_page_of_types_has_every_type_and_what_it_becomes() -> None:
    rows = [row for row in first_cells(DOCS / "types.md") if row[0] != "MySQL"]
    columns = {row[0]: _column(row[0]) for row in rows}

    assert {row[0]: lake_type(columns[row[0]]) for row in rows} == {row[0]: row[1] for row in rows}
    kinds = {column.kind for column in columns.values()}
    assert {*WHOLE, *FIXED, *TEXTS, *BYTES, "DECIMAL", "BIT"} - kinds == set()
