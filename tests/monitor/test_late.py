"""`/v1/late` and `sluice late`: which days must be computed again."""

import json
from collections.abc import Callable
from datetime import timedelta

import click
import pytest
from click.testing import CliRunner, Result

from monitor.commands import late
from pipeline.image import Image, LateChanges
from tests.monitor.rig import NOON, USERS, Rig

CUT = NOON - timedelta(hours=14)


@pytest.fixture
def told(rig: Rig) -> Rig:
    """An image of users for which changes of two batches came too late."""
    rig.round(2)
    ones = (
        LateChanges(7, 2, {"2026-03-27": 2}, NOON - timedelta(hours=2)),
        LateChanges(9, 3, {"": 1, "2026-03-28": 2}, NOON),
    )
    image = Image(CUT, 1, 1, (), {}, CUT, NOON + timedelta(days=7), "2026-03-28", late=ones)
    rig.set_images(image)
    rig.write_heartbeat()
    rig.cycle.watch()
    return rig


@pytest.fixture
def sluice(told: Rig, server: str) -> Callable[..., Result]:
    def run(verb: click.Command, *words: str) -> Result:
        return CliRunner().invoke(verb, [*words, "--server", server])

    return run


def test_what_came_too_late_is_listed_with_its_days(told: Rig) -> None:
    found = told.client.get("/v1/late").json()

    assert [(one["table"], one["day"], one["rows"]) for one in found] == [
        (USERS, "2026-03-28", 2),
        (USERS, "2026-03-28", 3),
    ]
    assert found[1]["days"] == {"": 1, "2026-03-28": 2}
    assert found[1]["batch"] == 9


@pytest.mark.parametrize(
    ("since", "batches"),
    [
        pytest.param("2026-03-29T09:59:59Z", [7, 9], id="before both"),
        pytest.param("2026-03-29T11:00:00Z", [9], id="between"),
        pytest.param("2026-03-29", [], id="the end of that day"),
    ],
)
def test_only_what_landed_since(told: Rig, since: str, batches: list[int]) -> None:
    found = told.client.get("/v1/late", params={"since": since}).json()

    assert [one["batch"] for one in found] == batches
    assert told.client.get("/v1/late", params={"since": "x"}).status_code == 400


def test_the_verb_says_it_in_lines_and_in_json(sluice: Callable[..., Result]) -> None:
    lines, data = sluice(late.COMMAND), sluice(late.COMMAND, "--json")
    none = sluice(late.COMMAND, "--since", "2026-03-29")

    assert lines.output.splitlines()[1] == (
        "shop.users 2026-03-28: 3 changes landed at 2026-03-29T12:00:00+00:00, batch 9 "
        "(no day: 1, 2026-03-28: 2)"
    )
    assert len(json.loads(data.output)) == 2
    assert none.output == ("no change came too late for an image, and no file for its partition\n")


def test_an_image_that_lacks_changes_is_not_ready(told: Rig) -> None:
    asked = {"table": USERS, "stage": "image", "cut": CUT.isoformat().replace("+00:00", "Z")}
    told.gate.published = lambda _: True

    answer = told.client.get("/v1/gate", params=asked).json()

    reasons = {one["code"]: one["text"] for one in answer["tables"][0]["reasons"]}
    assert answer["ready"] is False
    assert "5 changes from before the cut" in reasons["image_late"]
