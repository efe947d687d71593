"""Somebody is told of an image that is missing, and of none that there could not be."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from alerts.causes import blame
from alerts.model import AlertKind
from checks.model import Outcome, Verdict
from monitor.observe.system_checks import IMAGE
from monitor.web.metrics import IMAGE_METRICS
from monitor.web.status_page import status_page
from pipeline.image import LateChanges
from pipeline.model import Order
from tests.monitor.rig import ORDERS, USERS, Rig
from tests.monitor.test_gate_images import made

YESTERDAY, BEFORE = "2026-03-28", "2026-03-27"


def look(rig: Rig) -> Verdict:
    """What is ruled of the image of users in the next round."""
    rig.second(2)
    rig.beat()
    rig.cycle.watch()
    views = {view.table.name: view for view in rig.current.board.tables}
    assert all(one.check != IMAGE for one in views[ORDERS].verdicts)
    (found,) = (one for one in views[USERS].verdicts if one.check == IMAGE)
    return found


def told(rig: Rig) -> dict[str, float]:
    """Metric -> its one value, where it has one."""
    found = ((one.name, list(one.rows(rig.current.board, rig.now))) for one in IMAGE_METRICS)
    return {name: value for name, rows in found for _, value in rows}


def _made(rig: Rig) -> None:
    made(rig, YESTERDAY)


def _older(rig: Rig) -> None:
    made(rig, BEFORE)


def _ran(rig: Rig) -> None:
    rig.cycle.started = rig.now - timedelta(days=1)


def _based_later(rig: Rig) -> None:
    _ran(rig)
    assert rig.lake.newest is not None
    bases = dict.fromkeys(rig.lake.newest.bases, Order(1, 1, 10**9))
    rig.lake.newest = replace(rig.lake.newest, bases=bases)


def _not_due(rig: Rig) -> None:
    _ran(rig)
    rig.cycle.image_due = lambda table: timedelta(hours=20) if table == USERS else None


def _late(rig: Rig) -> None:
    image = replace(made(rig, YESTERDAY), late=(LateChanges(9, 3),))
    rig.lake.mirrors[USERS] = replace(rig.lake.mirrors[USERS], images=(image,))


@pytest.mark.parametrize(
    ("given", "outcome", "says"),
    [
        pytest.param(_made, Outcome.PASS, "is there", id="it is there"),
        pytest.param(_ran, Outcome.FAIL, "no image of the cut", id="the service ran over midnight"),
        pytest.param(_older, Outcome.FAIL, "no image of the cut", id="others were made before"),
        pytest.param(_late, Outcome.FAIL, "3 changes from before", id="it lacks changes"),
        pytest.param(_not_due, Outcome.UNKNOWN, "not due", id="it may take longer"),
        pytest.param(_based_later, Outcome.UNKNOWN, "could be none", id="a table of today"),
        pytest.param(lambda _: None, Outcome.UNKNOWN, "could be none", id="a service of today"),
    ],
)
def test_what_is_said_of_the_image_of_yesterday(
    published: Rig, given: Callable[[Rig], None], outcome: Outcome, says: str
) -> None:
    given(published)

    found = look(published)

    assert (found.ruling.outcome, says in found.ruling.reason) == (outcome, True), found
    blamed = blame(found)
    assert (blamed is not None) is (outcome is Outcome.FAIL)
    assert blamed is None or blamed.kind is AlertKind.LATE
    assert told(published)["sluice_image_missing"] == float(outcome is Outcome.FAIL)


def test_the_newest_image_is_told_with_its_age_and_rows(published: Rig) -> None:
    image = replace(made(published, YESTERDAY), rows=12_345, day=YESTERDAY)
    published.lake.mirrors[USERS] = replace(published.lake.mirrors[USERS], images=(image,))

    look(published)

    numbers, page = told(published), status_page(published.current.board, published.now)
    assert numbers["sluice_image_cut_timestamp_seconds"] == image.cut.timestamp()
    assert numbers["sluice_image_rows"] == 12_345
    assert f"newest image: {YESTERDAY}, 12,345 rows" in page
    assert page.count('<span class="soft">image</span>') == 1, "of no table without images"


def test_an_image_that_lacks_changes_is_not_the_newest_that_can_be_read(published: Rig) -> None:
    _late(published)

    look(published)

    assert set(told(published)) == {"sluice_image_missing"}
    assert "no image is readable" in status_page(published.current.board, published.now)


def test_the_incident_ends_where_images_are_made_no_more(published: Rig) -> None:
    _older(published)
    for _ in range(200):
        look(published)
        published.second(4)
    (fired,) = [one for one in published.store.incidents.list(limit=10) if one.cause.check == IMAGE]

    published.cycle.image_due = lambda _: None
    published.beat()
    published.cycle.watch()

    (after,) = [one for one in published.store.incidents.list(limit=10) if one.id == fired.id]
    assert after.state.value == "resolved"
