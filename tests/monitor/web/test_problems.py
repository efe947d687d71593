"""Errors are problem documents, wherever they come from."""

import json
import re
from typing import Any

import httpx
import pytest

from monitor.web.answers import PROBLEM_JSON
from monitor.web.problems import COMMON
from monitor.web.status_page import DOCS
from pipeline.errors import UnreachableError
from tests.monitor.rig import USERS, Rig
from tests.monitor.web.furnished import ODD_CHANGE, WHO, Furnished

LAST = "9999-12-31T23:59:59-23:59"
GUIDE = DOCS / "guides" / "http-api.md"
WINDOW = {"since": "2026-03-28T05:00:00Z", "until": "2026-03-28T06:00:00Z"}


def require_problem(answer: httpx.Response, status: int) -> str:
    """What the problem document of *answer* says."""
    told: dict[str, Any] = answer.json()
    assert answer.status_code == status
    assert answer.headers["Content-Type"] == PROBLEM_JSON
    assert told.keys() == {"type", "title", "status", "detail", "error"}
    assert (told["type"], told["status"]) == ("about:blank", status)
    assert told["detail"] == told["error"] != ""
    return str(told["error"])


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        pytest.param("/v1/gates", 400, "the nearest is /v1/gate", id="unknown path"),
        pytest.param("/etc/passwd", 400, "no path /etc/passwd; see /docs", id="a path near none"),
        pytest.param(
            "/v1/tables/a.b/states?limt=1",
            400,
            "unknown parameter 'limt' at /v1/tables/TABLE/states, it takes none",
            id="no template of a route",
        ),
        pytest.param("/livez?x=1", 400, "unknown parameter 'x'", id="unknown parameter"),
        pytest.param(
            "/v1/gate", 400, "parameter 'table' is missing; add table=...", id="no parameter"
        ),
        pytest.param("/v1/gate?table=a&cut=x", 400, "'x'", id="no cut"),
        pytest.param("/v1/certificates/none", 404, "unknown certificate 'none'", id="unknown id"),
        pytest.param("/runbooks/none.md", 404, "no page 'none'", id="unknown page"),
    ],
)
def test_f185_a_refused_question_is_a_problem(rig: Rig, path: str, status: int, said: str) -> None:
    rig.round()

    assert said in require_problem(rig.client.get(path), status)


def test_f185_the_documented_problem_is_the_real_one(rig: Rig) -> None:
    rig.round()
    text = GUIDE.read_text(encoding="utf-8")
    (found,) = re.findall(r'curl "ADDRESS(\S+)"\n    (\{"type".*?\})\n', text, re.DOTALL)

    assert rig.client.get(found[0]).json() == json.loads(found[1])


def test_f185_each_status_of_a_problem_is_documented() -> None:
    section = GUIDE.read_text(encoding="utf-8").partition("## Requests over HTTP")[2]
    documented = {int(one) for one in re.findall(r"^\| (\d{3}) \|", section, re.MULTILINE)}

    assert documented == {*COMMON, 404, 405, 409}


def test_f185_a_wrong_method_is_a_problem_with_the_right_ones(rig: Rig) -> None:
    answer = rig.client.delete("/v1/pauses")

    said = require_problem(answer, 405)
    assert said == "/v1/pauses takes no DELETE; use GET, HEAD, POST"
    assert answer.headers["Allow"] == "GET, HEAD, POST"


@pytest.mark.parametrize(
    ("headers", "status"),
    [({"Host": "evil.example"}, 403), ({"Content-Length": str(2**30)}, 413)],
)
def test_f185_what_no_route_sees_is_a_problem(
    rig: Rig, headers: dict[str, str], status: int
) -> None:
    require_problem(rig.client.get("/livez", headers=headers), status)


def test_f185_a_request_without_the_token_is_a_problem(rig: Rig) -> None:
    rig.token = "secret"
    rig.restart()

    answer = rig.client.post("/v1/pauses", json={})

    require_problem(answer, 401)
    assert answer.headers["WWW-Authenticate"] == "Bearer"


@pytest.mark.parametrize(
    ("error", "status"), [(UnreachableError("lake: no route"), 503), (ValueError("secret"), 500)]
)
def test_f185_what_fails_is_a_problem_that_shows_no_defect(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, error: Exception, status: int
) -> None:
    def fail(*_: object) -> None:
        raise error

    rig.round()
    monkeypatch.setattr(rig.gate, "decide", fail)

    said = require_problem(rig.client.get("/v1/gate", params={"table": USERS}), status)

    assert "secret" not in said


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        pytest.param(method, path, body, id=f"{method} {path}")
        for method, path, body in (
            ("GET", "/tables/no.such", None),
            ("GET", "/v1/tables/no.such/states", None),
            ("GET", "/v1/readiness/no.such", None),
            ("GET", "/v1/verdicts?table=no.such", None),
            ("GET", "/v1/verdicts?check=no_such", None),
            ("GET", "/v1/arrivals?source=none", None),
            ("GET", "/v1/lineage?name=no.such", None),
            ("GET", "/v1/quarantine?table=no.such", None),
            ("GET", "/v1/quarantine/message?id=none", None),
            ("GET", "/v1/certificates/none", None),
            ("GET", "/v1/resubmissions/none", None),
            ("GET", "/runbooks/none.md", None),
            ("GET", "/none.md", None),
            ("POST", "/v1/incidents/none/acknowledgement", {"who": "ann"}),
            ("POST", "/v1/waivers", {"id": "schema:a.b@7", **WHO}),
            ("DELETE", "/v1/waivers/none", WHO),
            ("POST", "/v1/pauses", {"tables": ["no.such"], **WHO}),
            ("POST", "/v1/pauses/ended", {"tables": ["no.such"], "who": "ann"}),
            ("POST", "/v1/bootstraps", {"tables": ["no.such"], **WHO}),
            ("POST", "/v1/rereads/cancelled", {"tables": ["no.such"], **WHO}),
            ("POST", "/v1/repairs", {"table": "no.such", "keys": ["1"], **WHO}),
            ("POST", "/v1/repairs", {"table": USERS, "incident": "none", **WHO}),
            ("POST", "/v1/replays", {"tables": "no.such", **WHO}),
            ("POST", "/v1/replays", {"tables": "none.*", **WHO}),
            ("POST", "/v1/archives", {"table": "no.such", **WINDOW, **WHO}),
            ("POST", "/v1/archives/withdrawals", {"id": "none", **WHO}),
            ("POST", "/v1/resubmissions", {"id": "none", "unchanged": True, **WHO}),
        )
    ],
)
def test_f191_a_name_that_nothing_has_is_404_on_every_route(
    full: Furnished, method: str, path: str, body: dict[str, Any] | None
) -> None:
    answer = full.client.ask(method, path, **({} if body is None else {"json": body}))

    require_problem(answer, 404)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        pytest.param("/v1/repairs", {"table": USERS, "keys": ["\ud800"]}, id="half a pair"),
        pytest.param("/v1/repairs", {"table": USERS, "keys": ['["\\ud800"]']}, id="half, escaped"),
        pytest.param("/v1/repairs", {"table": USERS, "keys": ["[" * 3000]}, id="3000 brackets"),
        pytest.param("/v1/repairs", {"table": USERS, "incident": "\ud800"}, id="no incident"),
        pytest.param("/v1/replays", {"tables": USERS, "where": "id = '\ud800'"}, id="condition"),
        pytest.param("/v1/resubmissions", {"id": ODD_CHANGE, "value": "\u202e"}, id="no base64"),
        pytest.param("/v1/archives", {"table": USERS, **WINDOW, "until": LAST}, id="beyond UTC"),
    ],
)
def test_f185_odd_values_are_refused_and_no_defect(
    full: Furnished, path: str, body: dict[str, Any]
) -> None:
    sent = json.dumps({**body, **WHO})

    answer = full.client.post(path, content=sent, headers={"Content-Type": "application/json"})

    require_problem(answer, 400)


JSON = {"Content-Type": "application/json"}
A_BODY = "send a JSON object with content-type application/json"


@pytest.mark.parametrize(
    ("headers", "content", "said"),
    [
        pytest.param(JSON, b"{", "the request's body is not JSON: ", id="half an object"),
        pytest.param(JSON, b"\xff", "the request's body is not JSON in UTF-8; ", id="no text"),
        pytest.param(JSON, b"[]", "the request's body is not a JSON object; ", id="a list"),
        pytest.param({}, b"{}", "the request's body is not a JSON object; ", id="no content type"),
        pytest.param(JSON, b"", "the request's body is not a JSON object; ", id="nothing"),
    ],
)
def test_a_body_that_is_no_object_is_told_with_what_to_send(
    full: Furnished, headers: dict[str, str], content: bytes, said: str
) -> None:
    answer = full.client.post("/v1/waivers", content=content, headers=headers)

    told = require_problem(answer, 400)
    assert told.startswith(said)
    assert told.endswith(A_BODY)


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        pytest.param(
            "/v1/waivers",
            {"id": "a", "who": "ann"},
            "key 'reason' is missing in the request's body; add it",
            id="a key that is missing",
        ),
        pytest.param(
            "/v1/waivers",
            {**WHO, "id": ""},
            "id: must not be empty; write at least one character",
            id="an empty text",
        ),
        pytest.param(
            "/v1/archives",
            {**WHO, **WINDOW, "table": USERS, "since": "2026-03-28T05:00:00"},
            "since: must have its offset from UTC, such as 2026-03-29T12:00:00Z",
            id="no offset",
        ),
        pytest.param(
            "/v1/pauses",
            {**WHO, "tables": []},
            "tables: must have at least 1 item, not 0",
            id="an empty list",
        ),
    ],
)
def test_a_value_that_is_wrong_is_told_with_its_place_and_its_fix(
    full: Furnished, path: str, body: dict[str, Any], said: str
) -> None:
    assert require_problem(full.client.post(path, json=body), 400) == said


def test_f191_the_gate_alone_answers_400_for_it(full: Furnished) -> None:
    answer = full.client.get("/v1/gate?table=no.such")

    assert require_problem(answer, 400).startswith("no table 'no.such'; known: shop.orders")


def test_f191_before_anything_has_landed_no_name_is_unknown(rig: Rig) -> None:
    assert rig.client.get("/v1/verdicts?table=no.such").json() == []
    assert rig.client.get("/v1/readiness/no.such").json()["state"] == "unknown"


def test_f191_a_probe_that_has_not_run_yet_has_a_name_all_the_same(full: Furnished) -> None:
    answer = full.client.get("/v1/verdicts?check=max_id")

    assert (answer.status_code, answer.json()) == (200, [])


def test_f191_an_unknown_state_is_refused_by_the_page(rig: Rig) -> None:
    rig.round()

    assert "the nearest is blocked" in require_problem(rig.client.get("/?state=bloked"), 400)
