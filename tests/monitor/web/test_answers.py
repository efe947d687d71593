"""Each route answers what the OpenAPI document says it does."""

from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute
from pydantic import TypeAdapter, ValidationError

from checks.model import Outcome, Ruling, Verdict
from monitor.web.answers import PROBLEM_JSON
from monitor.web.api import GATE_HEADER
from monitor.web.render import render_instant
from tests.monitor.rig import ORDERS, USERS, Rig
from tests.monitor.web.furnished import ODD_CHANGE, WHO, Furnished

Step = tuple[str, str, int, Any, Any]
"""Method, path as it is declared, status, values for the path and the query, and the body."""


FIRST, LAST = "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"


def steps(ids: dict[str, str]) -> list[Step]:
    """One question for each answer that an operation declares, in an order that gives it."""
    window = {"table": USERS, "since": "2026-03-28T05:00:00Z", "until": "2026-03-28T06:00:00Z"}
    waiver = {"id": ids["waivable"], "until": "2027-01-01T00:00:00Z", **WHO}
    return [
        ("GET", "/v1/tables", 200, {}, None),
        ("GET", "/v1/tables/{table}/states", 200, {"table": USERS}, None),
        ("GET", "/v1/tables/{table}/ledger", 200, {"table": USERS}, None),
        ("GET", "/v1/tables/{table}/trace", 200, {"table": USERS, "key": "7", "wait": 0}, None),
        ("GET", "/v1/readiness/{table}", 200, {"table": USERS}, None),
        ("GET", "/v1/readiness/{table}", 200, {"table": ORDERS}, None),
        ("GET", "/v1/readiness/{table}", 200, {"table": USERS, "cut": LAST}, None),
        ("GET", "/v1/readiness/{table}", 200, {"table": USERS, "cut": FIRST}, None),
        ("GET", "/v1/gate", 404, {"table": USERS, "cut": LAST}, None),
        ("GET", "/v1/gate", 200, {"table": USERS, "cut": "2026-03-28"}, None),
        ("GET", "/v1/gate", 404, {"table": USERS, "cut": "2027-01-01"}, None),
        ("GET", "/v1/gate", 404, {"table": USERS, "stage": "copy", "copy": "cache"}, None),
        ("GET", "/v1/gate", 409, {"table": [USERS, ORDERS], "cut": "2026-03-28"}, None),
        ("GET", "/v1/late", 200, {}, None),
        ("GET", "/v1/arrivals", 200, {"source": "logs"}, None),
        ("GET", "/v1/certificates/{number}", 200, {"number": ids["certificate"]}, None),
        ("GET", "/v1/states", 200, {}, None),
        ("GET", "/v1/verdicts", 200, {"table": ORDERS, "check": "range_counts"}, None),
        ("GET", "/v1/checks", 200, {"table": USERS}, None),
        ("GET", "/v1/incidents", 200, {}, None),
        ("GET", "/v1/incidents/{number}", 200, {"number": ids["incident"]}, None),
        (
            *("POST", "/v1/incidents/{number}/acknowledgement", 200),
            *({"number": ids["incident"]}, {"who": "ann"}),
        ),
        ("GET", "/v1/incidents", 200, {"state": "firing"}, None),
        ("POST", "/v1/waivers", 201, {}, waiver),
        ("POST", "/v1/waivers", 200, {}, waiver),
        ("DELETE", "/v1/waivers/{id_}", 200, {"id_": ids["waivable"]}, WHO),
        ("GET", "/v1/waivers", 200, {}, None),
        ("GET", "/v1/lineage", 200, {"name": "db.t"}, None),
        ("GET", "/livez", 200, {}, None),
        ("GET", "/readyz", 200, {}, None),
        ("GET", "/v1/service", 200, {}, None),
        ("POST", "/v1/bootstraps", 202, {}, {"tables": [USERS], **WHO}),
        ("GET", "/v1/bootstraps", 200, {}, None),
        ("GET", "/v1/rereads", 200, {}, None),
        ("POST", "/v1/rereads/cancelled", 200, {}, {"tables": ["shop.*"], **WHO}),
        ("POST", "/v1/repairs", 202, {}, {"table": USERS, "keys": ["7"], **WHO}),
        ("POST", "/v1/replays", 202, {}, {"tables": ORDERS, "where": "id = 7", **WHO}),
        ("GET", "/v1/rereads", 200, {"limit": 10_000}, None),
        ("POST", "/v1/pauses", 201, {}, {"tables": [USERS], **WHO}),
        ("POST", "/v1/pauses/ended", 200, {}, {"tables": [USERS], "who": "ann"}),
        ("GET", "/v1/pauses", 200, {}, None),
        ("POST", "/v1/archives", 201, {}, {**window, "column": "d", "before": "2025-01-01", **WHO}),
        ("POST", "/v1/archives/withdrawals", 201, {}, {"id": ids["archive"], **WHO}),
        ("GET", "/v1/archives", 200, {}, None),
        ("GET", "/v1/quarantine", 200, {"every": True}, None),
        ("GET", "/v1/quarantine/message", 200, {"id": ODD_CHANGE, "letters": 9}, None),
        ("GET", "/v1/resubmissions", 200, {}, None),
        ("GET", "/v1/resubmissions/{number}", 200, {"number": ids["resubmission"]}, None),
    ]


def declared(app: FastAPI) -> dict[tuple[str, str, int], Any]:
    """The type of each answer in JSON that is no problem."""
    return {
        (method, route.path_format, int(status)): answer["model"]
        for route in app.routes
        if isinstance(route, APIRoute)
        for method in route.methods or ()
        for status, answer in route.responses.items()
        if "model" in answer
    }


def test_f185_every_answer_is_as_declared_and_has_no_key_more(full: Furnished) -> None:
    types, seen = declared(full.app), set[tuple[str, str, int]]()

    for method, path, status, values, body in steps(full.ids):
        query = {name: value for name, value in values.items() if f"{{{name}}}" not in path}
        more = {"params": query} | ({} if body is None else {"json": body})
        answer = full.client.ask(method, path.format(**values), **more)
        assert answer.status_code == status, (method, path, answer.text)
        told = answer.json()
        assert told not in ([], {}), (method, path)
        TypeAdapter(types[method, path, status]).validate_python(told, strict=True, extra="forbid")
        seen.add((method, path, status))

    unseen = types.keys() - seen
    assert unseen == {("GET", "/readyz", 503), ("POST", "/v1/resubmissions", 202)}


def test_f185_a_value_that_is_no_number_is_null(rig: Rig) -> None:
    rig.round()
    ruling = Ruling(Outcome.FAIL, "endless", "endless")
    rig.recorder.tell([Verdict(USERS, "range_counts", ruling, rig.clock(), value=float("inf"))])

    answer = rig.client.get("/v1/verdicts", params={"table": USERS, "check": "range_counts"})

    assert [one["value"] for one in answer.json()] == [None]


def test_f185_a_local_time_before_standard_time_is_given_in_utc() -> None:
    then = datetime(1800, 1, 1, tzinfo=ZoneInfo("Europe/Berlin"))

    assert render_instant(then) == "1799-12-31T23:06:32+00:00"


def test_f185_the_types_refuse_what_is_not_declared(full: Furnished) -> None:
    told = full.client.get("/v1/tables").json()
    known = TypeAdapter[Any](declared(full.app)["GET", "/v1/tables", 200])
    told[0]["hops"][0]["frobnicate"] = 1

    with pytest.raises(ValidationError, match="frobnicate"):
        known.validate_python(told, extra="forbid")


def test_f185_every_operation_declares_its_errors_and_no_422(full: Furnished) -> None:
    document = full.client.get("/openapi.json").json()

    assert "HTTPValidationError" not in document["components"]["schemas"]
    operations = [one for some in document["paths"].values() for one in some.values()]
    assert len(operations) > 35
    for operation in operations:
        answers = operation["responses"]
        assert "422" not in answers
        for status in ("400", "401", "403", "413", "500", "503"):
            assert PROBLEM_JSON in answers[status]["content"], operation["operationId"]
        for status, answer in answers.items():
            for kind, told in answer.get("content", {}).items():
                assert told["schema"], (operation["operationId"], status, kind)


def test_f185_the_gate_declares_its_statuses_and_its_header(full: Furnished) -> None:
    document = full.client.get("/openapi.json").json()
    answers = document["paths"]["/v1/gate"]["get"]["responses"]

    assert {"200", "404", "409"} < answers.keys()
    for status in ("200", "404", "409"):
        assert "not_ready" in answers[status]["headers"][GATE_HEADER]["schema"]["enum"]
        schema = answers[status]["content"]["application/json"]["schema"]
        assert schema == {"$ref": "#/components/schemas/GateAnswer"}


def test_f185_a_service_that_does_not_work_answers_as_declared(full: Furnished) -> None:
    full.rig.second(100)
    answer = full.client.get("/readyz")
    full.rig.second(-100)

    assert answer.status_code == 503
    known = TypeAdapter[Any](declared(full.app)["GET", "/readyz", 503])
    known.validate_python(answer.json(), extra="forbid")
