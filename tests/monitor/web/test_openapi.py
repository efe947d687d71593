"""Whatever is asked, the API answers as its OpenAPI document declares."""

import copy
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import FailureGroup
from schemathesis.core.result import Ok
from schemathesis.core.transport import Response
from schemathesis.generation import GenerationMode
from schemathesis.generation.case import Case
from schemathesis.python import asgi
from schemathesis.schemas import APIOperation, BaseSchema
from schemathesis.specs.openapi.checks import (
    allow_header_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from monitor.web.api import SERVICE_ROUTES
from monitor.web.deps import Access
from monitor.web.history import HISTORY_ROUTES
from monitor.web.problems import Api
from tests.monitor.web.furnished import Furnished

Operation = APIOperation[Any, Any, Any, Any]
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    allow_header_conformance,
]
EXAMPLES = {GenerationMode.POSITIVE: 12, GenerationMode.NEGATIVE: 8}
"""Requests to each operation that keep to its document, and that do not: some 800 in all, and a
third of these under the profile `brief`."""


def operations(document: Mapping[str, Any], app: object) -> Iterator[Operation]:
    schema: BaseSchema = schemathesis.openapi.from_dict(dict(document))
    schema.app = app
    for one in schema.get_all_operations():
        assert isinstance(one, Ok), one
        yield one.ok()


def ask(operation: Operation, app: Any, mode: GenerationMode) -> list[Response]:
    """What the operation answers; raises where the document does not declare that."""
    answers = list[Response]()

    @settings(
        derandomize=True,
        database=None,
        deadline=None,
        max_examples=EXAMPLES[mode] // (3 if settings().max_examples <= 20 else 1),
        phases=[Phase.generate],
        suppress_health_check=[*HealthCheck],
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def one(case: Case[Any]) -> None:
        answer = case.call(base_url="http://sluice", session=client)
        answers.append(answer)
        case.validate_response(answer, checks=CHECKS)

    with asgi.get_client(app) as client, suppress(Unsatisfiable):  # nothing could be wrong in it
        one()
    return answers


def test_f185_no_answer_is_undeclared(full: Furnished) -> None:
    asked, statuses = dict[GenerationMode, int](), set[int]()

    for operation in operations(full.app.openapi(), full.app):
        for mode in EXAMPLES:
            answers = ask(operation, full.app, mode)
            statuses |= {one.status_code for one in answers}
            asked[mode] = asked.get(mode, 0) + bool(answers)

    assert asked[GenerationMode.POSITIVE] > 40
    assert asked[GenerationMode.NEGATIVE] > 20
    assert statuses >= {200, 400, 404}


@pytest.mark.parametrize(
    ("path", "method", "status"),
    [("/v1/verdicts", "get", "400"), ("/v1/readiness/{table}", "get", "404"), ("/", "get", "200")],
)
def test_f185_what_is_no_longer_declared_is_found(
    full: Furnished, path: str, method: str, status: str
) -> None:
    document = copy.deepcopy(full.app.openapi())
    del document["paths"][path][method]["responses"][status]
    (operation,) = (
        one for one in operations(document, full.app) if (one.path, one.method) == (path, method)
    )

    with pytest.raises(FailureGroup, match="Undocumented status code"):
        [ask(operation, full.app, mode) for mode in EXAMPLES]


def test_f185_a_body_that_is_not_as_declared_is_found(full: Furnished) -> None:
    document = copy.deepcopy(full.app.openapi())
    document["components"]["schemas"]["HopLag"]["properties"]["lag_seconds"] = {"type": "string"}
    (operation,) = (one for one in operations(document, full.app) if one.path == "/v1/tables")

    with pytest.raises(FailureGroup, match="schema"):
        ask(operation, full.app, GenerationMode.POSITIVE)


TAKEN = {"get /v1/waivers/", "post /v1/waivers/"}
"""Of another route: the id of a waiver may be any text."""


def test_f185_a_path_with_a_slash_too_many_is_refused_as_declared(full: Furnished) -> None:
    told = dict[str, int]()
    for path, operations in full.app.openapi()["paths"].items():
        if "{" in path or path == "/":
            continue
        for method in operations:
            answer = full.client.ask(method.upper(), f"{path}/")

            told[f"{method} {path}/"] = answer.status_code

    assert {way for way, status in told.items() if status != 400} <= TAKEN
    assert len(told) > 30


@pytest.mark.parametrize(
    ("access", "writing", "reading"),
    [
        pytest.param(Access(), False, False, id="no token"),
        pytest.param(Access(token="t"), True, False, id="a token on loopback"),
        pytest.param(Access(token="t", beyond=True), True, True, id="reached from elsewhere"),
    ],
)
def test_f185_the_token_is_declared_where_it_is_needed(
    access: Access, writing: bool, reading: bool
) -> None:
    routes = (*HISTORY_ROUTES.routes, *SERVICE_ROUTES.routes)
    document = Api(access, routes=routes).openapi()

    scheme = document["components"]["securitySchemes"]["token"]
    assert (scheme["type"], scheme["scheme"]) == ("http", "bearer")
    needed = {
        f"{method} {path}": {} not in operation["security"]
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
    }
    assert needed["post /v1/waivers"] is writing
    assert needed["delete /v1/waivers/{id_}"] is writing
    assert needed["get /v1/waivers"] is reading
    assert needed["get /v1/service"] is reading
    assert needed["get /metrics"] is False
    every = [one for operations in document["paths"].values() for one in operations.values()]
    assert all({"token": []} in one["security"] for one in every)
