"""Errors are problem documents, wherever they come from.

Covers monitor/web/problems.py.
"""

from typing import Any

import httpx
import pytest

from monitor.web.answers import PROBLEM_JSON
from pipeline.errors import UnreachableError
from tests.monitor.rig import USERS, Rig


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
        pytest.param("/livez?x=1", 400, "unknown parameter 'x'", id="unknown parameter"),
        pytest.param("/v1/gate", 400, "table: Field required", id="no parameter"),
        pytest.param("/v1/gate?table=a&cut=x", 400, "'x'", id="no cut"),
        pytest.param("/v1/certificates/none", 404, "no certificate 'none'", id="unknown id"),
        pytest.param("/runbooks/none.md", 404, "no page 'none'", id="unknown page"),
    ],
)
def test_f185_a_refused_question_is_a_problem(rig: Rig, path: str, status: int, said: str) -> None:
    rig.round()

    assert said in require_problem(rig.client.get(path), status)


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


@pytest.mark.parametrize("path", ["/", "/livez", f"/v1/gate?table={USERS}", "/v1/tables"])
def test_f191_head_is_answered_as_get(rig: Rig, path: str) -> None:
    rig.round()
    rig.round()

    asked, headed = rig.client.get(path), rig.client.head(path)

    assert headed.status_code == asked.status_code == 200
    assert headed.headers["Content-Type"] == asked.headers["Content-Type"]
