"""The dashboards that are committed are those that are generated, and fit to be provisioned."""

import json
from collections.abc import Iterator

import pytest

from grafana.generate import HERE, outputs
from grafana.panel import WIDTH, Json
from monitor.web.metrics import METRICS
from tests.grafana.expressions import dashboards, metrics_in, of_panels

BOARDS = dashboards()
KNOWN = {metric.name for metric in METRICS}
UNITS = {"short", "s", "cps", "dateTimeAsIso", "bytes"}


def _panels() -> Iterator[tuple[str, Json]]:
    for name, board in BOARDS.items():
        for panel in board["panels"]:
            yield f"{name}: {panel['title']}", panel


@pytest.mark.parametrize("name", sorted(outputs()))
def test_a_committed_file_is_what_the_generator_makes(name: str) -> None:
    written = (HERE / name).read_text(encoding="utf-8")

    assert written == outputs()[name], "run `python -m grafana.generate`"


def test_nothing_lies_about_that_is_not_generated() -> None:
    found = {
        str(path.relative_to(HERE))
        for path in HERE.rglob("*")
        if path.is_file() and path.suffix in (".json", ".yaml")
    }

    assert found == set(outputs())


def test_ids_are_unique() -> None:
    uids = [board["uid"] for board in BOARDS.values()]
    numbers = [[panel["id"] for panel in board["panels"]] for board in BOARDS.values()]

    assert len(set(uids)) == len(uids)
    assert all(len(set(each)) == len(each) for each in numbers)


@pytest.mark.parametrize("name", sorted(BOARDS))
def test_a_dashboard_says_what_it_is_for(name: str) -> None:
    board = BOARDS[name]

    assert board["title"]
    assert board["description"]
    assert board["uid"]


@pytest.mark.parametrize(("place", "panel"), list(_panels()), ids=[place for place, _ in _panels()])
def test_a_panel_is_named_explained_measured_and_asks_something(place: str, panel: Json) -> None:
    assert panel["title"], place
    assert panel["description"].endswith("."), place
    assert panel["fieldConfig"]["defaults"]["unit"] in UNITS
    assert [t["expr"] for t in panel["targets"] if t["expr"].strip()]
    assert len({t["refId"] for t in panel["targets"]}) == len(panel["targets"])


@pytest.mark.parametrize(("place", "panel"), list(_panels()), ids=[place for place, _ in _panels()])
def test_every_query_goes_through_the_chosen_data_source(place: str, panel: Json) -> None:
    sources = [panel["datasource"], *(target["datasource"] for target in panel["targets"])]

    assert {source["uid"] for source in sources} == {"${datasource}"}, place


@pytest.mark.parametrize("name", sorted(BOARDS))
def test_variables_that_are_used_are_there(name: str) -> None:
    board = BOARDS[name]
    known = {variable["name"] for variable in board["templating"]["list"]}
    text = json.dumps(board["panels"])

    assert "datasource" in known
    assert {"table", "tables"} & known
    assert ("$tables" in text) == ("tables" in known)
    assert ("$table" in text.replace("$tables", "")) == ("table" in known)


def test_panels_do_not_overlap_and_stay_on_the_page() -> None:
    for board in BOARDS.values():
        cells = [cell for panel in board["panels"] for cell in _cells(panel["gridPos"])]
        assert len(set(cells)) == len(cells)
        assert max(x for x, _ in cells) < WIDTH


def _cells(place: dict[str, int]) -> Iterator[tuple[int, int]]:
    for x in range(place["x"], place["x"] + place["w"]):
        yield from ((x, y) for y in range(place["y"], place["y"] + place["h"]))


def test_panels_use_listed_metrics_only() -> None:
    strangers = {
        query.place: unknown
        for query in of_panels()
        if (unknown := metrics_in(query.promql) - KNOWN)
    }

    assert strangers == {}


def test_every_listed_metric_is_shown_somewhere() -> None:
    shown = {name for query in of_panels() for name in metrics_in(query.promql)}

    assert KNOWN - shown == set()


def test_the_reader_of_expressions_sees_names_and_only_names() -> None:
    promql = 'sum by (exported_job) (rate(sluice_a_b{x_y="sluice_c"}[5m])) or sluice:lag:max'

    assert metrics_in(promql) == {"sluice_a_b", "sluice:lag:max"}
