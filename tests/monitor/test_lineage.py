"""`/v1/lineage` and `sluice lineage`: which column of a source is which of a mirror."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from monitor.clients import Lineage
from monitor.commands.lineage import COMMAND
from monitor.web.api import build_application
from pipeline.build import open_table_format
from pipeline.errors import ConfigError
from pipeline.settings import StandardRule
from pipeline.standards.mask import LetterMask
from pipeline.standards.table_standards import Standards
from pipeline.tables.lake import Lake
from tests.builders.harness import LandingHarness
from tests.monitor.rig import Rig
from tests.monitor.serving import serving
from tests.pipeline.reading import readings

RULE = StandardRule("db.t", ("id",), (("mask", LetterMask(("name",))),))


@pytest.fixture
def harness(tmp_path: Path) -> LandingHarness:
    made = LandingHarness(tmp_path, standards=(RULE,))
    made.topics.alter("a", 100, "name", kind="CREATE")
    made.topics.put("a", 101, "Ada")
    made.land()
    return made


@pytest.fixture
def lineage(harness: LandingHarness) -> Lineage:
    lake = Lake(harness.settings, open_table_format(harness.settings))
    return Lineage(lake, readings("a", "b"), (), Standards((RULE,)))


@pytest.fixture
def server(rig: Rig, lineage: Lineage) -> Iterator[str]:
    with serving(build_application(replace(rig.api_parts(), links=lineage))) as address:
        yield address


def run_lineage(server: str, *words: str) -> Result:
    return CliRunner().invoke(COMMAND, [*words, "--server", server])


def test_a_line_for_each_column_names_both_sides_and_the_standard(server: str) -> None:
    assert run_lineage(server, "db.t").output.splitlines() == [
        "a/db.t.id BIGINT -> db.t.id bigint",
        "a/db.t.name VARCHAR(80) -> db.t.name string, by the standard mask",
    ]
    assert '"hidden": true' in run_lineage(server, "a/db.t.name", "--json").output


def test_a_name_that_nothing_bears_is_refused_in_words(server: str) -> None:
    found = run_lineage(server, "db.t.fax")

    assert isinstance(found.exception, ConfigError)
    assert "no table, shard or column 'db.t.fax' has landed" in str(found.exception)


def test_columns_that_land_later_are_known_then(harness: LandingHarness, lineage: Lineage) -> None:
    assert len(lineage.of("db.t")) == 2
    harness.topics.alter("a", 200, "name", "city")
    harness.topics.put("a", 201, "Bob")
    harness.land()

    assert [one.column for one in lineage.of("db.t")] == ["id", "name", "city"]
    assert lineage.of("db.t.city")[0].table == "db.t"


def test_tables_are_asked_for_together(lineage: Lineage) -> None:
    assert lineage.of_tables({"db.t"}) == {"db.t": lineage.of("db.t")}


def test_a_column_that_went_is_told_with_the_statement_that_took_it(
    harness: LandingHarness, lineage: Lineage
) -> None:
    harness.topics.alter("a", 200, "called")
    harness.topics.put("a", 201, "Bob")
    harness.land()

    with pytest.raises(ConfigError, match=r"a/db\.t had a column name, until: .*; ask for the col"):
        lineage.of("db.t.name")
