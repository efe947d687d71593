"""The example DAGs against small stand-ins for Airflow, with its sensor's documented behaviour."""

import runpy
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
HANDED_ON = {
    "mirror": {"shop.orders": 41, "shop.users": 7},
    "image": {"shop.orders": [41, None], "shop.users": [7, "lake/images/dt=2026-03-28"]},
}


class HttpError(Exception):
    """What the hook raises, and ends the sensor with."""


@dataclass
class PokeReturnValue:
    is_done: bool
    xcom_value: Any = None


class Sensor:
    """Keeps what it was built with, and pokes as the provider does."""

    built: list["Sensor"]

    def __init__(self, **settings: Any) -> None:
        self.settings, self.output = settings, SimpleNamespace(of=settings["task_id"])
        self.built.append(self)

    def poke(self, status: int, answer: dict[str, Any]) -> Any:
        if status == 200:
            return self.settings["response_check"](SimpleNamespace(json=lambda: answer))
        if str(status) in self.settings["response_error_codes_allowlist"]:
            return False
        raise HttpError(f"{status}:refused")


@pytest.fixture(params=["airflow_gate", "airflow_image"])
def sensor(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Sensor:
    """An example's gate, after the DAG was built as Airflow would build it."""
    ran: list[Any] = []

    def dag(**_: Any) -> Callable[[Any], Any]:
        return lambda body: body

    def task(_: Any) -> Callable[[Any], None]:
        return ran.append

    class Built(Sensor):
        built: list[Sensor] = []  # noqa: RUF012  - one list for one test

    fakes: dict[str, dict[str, Any]] = {
        "airflow.decorators": {"dag": dag, "task": task},
        "airflow.providers.http.sensors.http": {"HttpSensor": Built},
        "airflow.sensors.base": {"PokeReturnValue": PokeReturnValue},
    }
    for name, members in fakes.items():
        module = ModuleType(name)
        vars(module).update(members)
        monkeypatch.setitem(sys.modules, name, module)
    runpy.run_path(str(EXAMPLES / f"{request.param}.py"))
    (gate,) = Built.built
    assert ran == [gate.output]
    return gate


def gate_answer(state: str) -> dict[str, Any]:
    path = "lake/images/dt=2026-03-28"
    tables = [
        {"table": "shop.orders", "version": 41, "path": None},
        {"table": "shop.users", "version": 7, "path": path},
    ]
    return {"state": state, "ready": state == "ready", "tables": tables}


def test_a_ready_gate_ends_the_wait_and_hands_on_the_certified_versions(sensor: Sensor) -> None:
    found = sensor.poke(200, gate_answer("ready"))

    stage = sensor.settings["request_params"]["stage"]
    assert found == PokeReturnValue(True, HANDED_ON[stage])


@pytest.mark.parametrize("status", [404, 503], ids=["not yet or unknown", "no answer to be had"])
def test_it_waits(sensor: Sensor, status: int) -> None:
    assert sensor.poke(status, {}) is False


@pytest.mark.parametrize("status", [409, 400, 401], ids=["blocked", "no such table", "not allowed"])
def test_it_fails_at_once(sensor: Sensor, status: int) -> None:
    with pytest.raises(HttpError):
        sensor.poke(status, {})
    assert sensor.settings["retries"] == 0


def test_a_200_that_is_not_ready_opens_nothing(sensor: Sensor) -> None:
    assert sensor.poke(200, gate_answer("not_ready")) == PokeReturnValue(False)


def test_it_asks_what_the_gate_takes(sensor: Sensor) -> None:
    params = sensor.settings["request_params"]

    assert sensor.settings["endpoint"] == "v1/gate"
    assert set(params) <= {"table", "cut", "stage", "wait", "patient"}
