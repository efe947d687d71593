"""A request that breaks a rule is refused on every route, and the answer says how to ask."""

import html
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.routing import APIRoute

from tests.monitor.rig import ORDERS, USERS, Rig


def _reading(rig: Rig) -> Iterator[str]:
    for route in rig.api().routes:
        if isinstance(route, APIRoute) and "GET" in (route.methods or ()):
            yield route.path.replace(":path", "").replace("{", "").replace("}", "")


def test_f114_a_mistyped_parameter_of_the_gate_is_refused_with_the_nearest(rig: Rig) -> None:
    rig.round()

    answer = rig.client.get("/v1/gate", params={"table": USERS, "cutt": "2027-01-01"})

    assert answer.status_code == 400
    assert answer.json()["error"] == (
        "unknown parameter 'cutt' at /v1/gate, the nearest is cut; "
        "known: copy, cut, patient, stage, table, verified, wait"
    )


def test_f114_no_route_ignores_a_parameter(rig: Rig) -> None:
    rig.round()
    paths = [*_reading(rig), "/docs", "/openapi.json"]

    answers = {path: rig.client.get(path, params={"frobnicate": "1"}) for path in paths}

    assert len(paths) > 20
    wrong = {path: one.text for path, one in answers.items() if one.status_code != 400}
    assert wrong == {}
    assert all("'frobnicate'" in one.json()["error"] for one in answers.values())


@pytest.mark.parametrize(
    ("query", "error"),
    [
        pytest.param("frobnicate", "unknown parameter 'frobnicate'", id="without a value"),
        pytest.param("Cut=2027-01-01", "the nearest is cut", id="in capitals"),
        pytest.param("cut=now&cut=2026-03-28", "'cut' occurs 2 times", id="two cuts"),
        pytest.param("wait=0&%63utt=now", "unknown parameter 'cutt'", id="encoded"),
    ],
)
def test_f114_a_question_that_may_be_read_in_two_ways_is_refused(
    rig: Rig, query: str, error: str
) -> None:
    rig.round()

    answer = rig.client.get(f"/v1/gate?table={USERS}&{query}")

    assert answer.status_code == 400
    assert error in answer.json()["error"]


def test_f114_what_is_declared_still_answers(rig: Rig) -> None:
    rig.round()
    rig.round()

    asked = {"table": [USERS, USERS], "cut": "2026-03-28", "stage": "mirror", "patient": "true"}
    page = rig.client.get("/", params={"text": "shop", "state": "", "page": "1"})

    assert rig.client.get("/v1/gate", params=asked).status_code == 200
    assert page.status_code == 200


def test_f114_post_parameters_and_unknown_body_keys_are_refused(rig: Rig) -> None:
    rig.round()
    body = {"tables": [USERS], "reason": "a", "who": "b"}

    query = rig.client.post("/v1/pauses", json=body, params={"until": "4h"})
    key = rig.client.post("/v1/pauses", json={**body, "untill": "4h"})

    assert (query.status_code, key.status_code) == (400, 400)
    assert query.json()["error"] == "unknown parameter 'until' at /v1/pauses, it takes none"
    assert key.json()["error"] == (
        "unknown key 'untill' in the request's body, the nearest is until; "
        "known: reason, tables, until, who"
    )
    assert rig.store.pauses.list(rig.now, limit=10) == ()


@pytest.mark.parametrize(
    ("path", "near"),
    [
        ("/v1/gates?table=a.b", "the nearest is /v1/gate"),
        ("/v1/table", "the nearest is /v1/tables"),
        ("/nothing-of-the-kind", "see /docs"),
    ],
)
def test_f184_a_path_that_no_route_has_is_400_and_names_the_nearest(
    rig: Rig, path: str, near: str
) -> None:
    answer = rig.client.get(path)

    assert answer.status_code == 400
    assert near in answer.json()["error"]


def test_f184_not_yet_is_told_from_any_other_404(rig: Rig) -> None:
    rig.round()
    rig.round()

    ready = rig.client.get(f"/v1/gate?table={USERS}&cut=2026-03-28")
    later = rig.client.get(f"/v1/gate?table={USERS}&cut=2027-01-01")
    other = rig.client.get("/v1/certificates/none")

    assert (ready.status_code, ready.headers["Sluice-Gate"]) == (200, "ready")
    assert (later.status_code, later.headers["Sluice-Gate"]) == (404, "not_ready")
    assert other.status_code == 404
    assert "Sluice-Gate" not in other.headers


def test_f184_a_method_that_a_route_has_not_says_which_it_has(rig: Rig) -> None:
    answer = rig.client.post("/v1/gate")

    assert (answer.status_code, answer.headers["Allow"]) == (405, "GET")


@pytest.mark.parametrize("path", ["/", "/docs", "/runbooks/lost.md"])
def test_f162_a_page_loads_nothing_from_elsewhere(rig: Rig, path: str) -> None:
    rig.round()
    answer = rig.client.get(path)

    policy = answer.headers["Content-Security-Policy"]
    assert answer.status_code == 200
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline'")
    assert not re.findall(r"<(?:script|link|img|iframe)[^>]*(?:https?:)?//", answer.text)


def test_f162_the_page_of_routes_names_each_with_its_parameters(rig: Rig) -> None:
    text = rig.client.get("/docs").text

    paths = list(rig.client.get("/openapi.json").json()["paths"])
    assert [path for path in paths if path not in html.unescape(text)] == []
    assert "<code>patient</code>" in text


def test_f191_a_table_has_a_page(rig: Rig) -> None:
    rig.round()

    answer = rig.client.get(f"/tables/{USERS}", follow_redirects=True)

    assert answer.status_code == 200
    assert USERS in answer.text


def test_each_application_answers_from_its_own_parts(tmp_path: Path) -> None:
    watched, begun = Rig(tmp_path / "watched"), Rig(tmp_path / "begun")
    watched.round()

    told = [
        [table["table"] for table in rig.client.get("/v1/tables").json()]
        for rig in (watched, begun, watched)
    ]

    assert sorted(told[0]) == [ORDERS, USERS]
    assert told[1:] == [[], told[0]]
    watched.close()
    begun.close()
