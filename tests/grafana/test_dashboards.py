"""The dashboards that are committed are those that are generated, and fit to be provisioned."""

import json
from collections.abc import Iterator

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


def test_the_committed_files_are_those_that_the_generator_makes() -> None:
    written = {
        str(path.relative_to(HERE)): path.read_text(encoding="utf-8")
        for path in HERE.rglob("*")
        if path.is_file() and path.suffix in (".json", ".yaml")
    }

    made = outputs()
    assert set(written) == set(made)
    assert [name for name in made if written[name] != made[name]] == [], (
        "run `python -m grafana.generate`"
    )


def test_ids_are_unique() -> None:
    uids = [board["uid"] for board in BOARDS.values()]
    numbers = [[panel["id"] for panel in board["panels"]] for board in BOARDS.values()]

    assert len(set(uids)) == len(uids)
    assert all(len(set(each)) == len(each) for each in numbers)


def test_a_dashboard_says_what_it_is_for_and_has_the_variables_that_it_uses() -> None:
    for name, board in BOARDS.items():
        known = {variable["name"] for variable in board["templating"]["list"]}
        text = json.dumps(board["panels"])

        assert all(board[key] for key in ("title", "description", "uid")), name
        assert "datasource" in known, name
        assert {"table", "tables"} & known, name
        assert ("$tables" in text) == ("tables" in known), name
        assert ("$table" in text.replace("$tables", "")) == ("table" in known), name


def test_a_panel_is_named_explained_measured_and_asks_the_chosen_data_source() -> None:
    for place, panel in _panels():
        targets = panel["targets"]
        sources = [panel["datasource"], *(target["datasource"] for target in targets)]

        assert panel["title"], place
        assert panel["description"].endswith("."), place
        assert panel["fieldConfig"]["defaults"]["unit"] in UNITS, place
        assert any(target["expr"].strip() for target in targets), place
        assert len({target["refId"] for target in targets}) == len(targets), place
        assert {source["uid"] for source in sources} == {"${datasource}"}, place


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
