"""What is wrong is told once, in words that name a part once."""

from dataclasses import replace
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from checks import blocks
from checks.model import Outcome
from monitor.observe import probing, system_checks
from monitor.observe.service_state import ServiceState
from monitor.observe.system_checks import Component, of_part
from pipeline.model import Order, SnapshotAgain
from pipeline.settings import Router, TableRule
from tests.monitor.rig import NOON

AGAIN = SnapshotAgain(Order(1, 900, 900), NOON, 7, 2, asked=False)


@pytest.mark.parametrize(
    ("ailment", "told"),
    [
        pytest.param(
            "source:shop: down: no route", "source:shop: down: no route", id="one that names itself"
        ),
        pytest.param("no route", "source:shop: no route", id="one that does not"),
        pytest.param(
            "source:other: no route", "source:shop: source:other: no route", id="another's name"
        ),
    ],
)
def test_a_part_that_is_down_is_named_once(ailment: str, told: str) -> None:
    verdict = of_part(Component("source:shop", "service", ailment), NOON)

    assert (verdict.ruling.reason, verdict.cause) == (told, "source:shop")


@pytest.mark.parametrize(
    "part",
    [
        pytest.param(Component("kafka", "service", "Kafka at k:9: refused"), id="themselves"),
        pytest.param(Component("collector:shop", "service", "500: timed out"), id="a collector"),
        pytest.param(Component("worker", "worker", "Kafka at k:9: timed out"), id="landing"),
    ],
)
def test_what_fails_because_the_brokers_do_has_them_as_its_cause(part: Component) -> None:
    brokers = Component("kafka", "service", "Kafka at k:9: refused")

    verdict = of_part(part, NOON, (brokers, part))

    assert (verdict.ruling.reason, verdict.cause) == ("kafka: Kafka at k:9: refused", "kafka")


@pytest.mark.parametrize("ailment", ["Connection refused", "FAILED: Access denied for user 'c'"])
def test_what_else_ails_a_collector_is_not_blamed_on_the_brokers(ailment: str) -> None:
    brokers = Component("kafka", "service", "Kafka at k:9: refused")
    part = Component("collector:shop", "service", ailment)

    verdict = of_part(part, NOON, (brokers, part))

    assert verdict.ruling.reason == f"collector:shop: {ailment}"
    assert verdict.cause == "collector:shop"


def test_a_disk_that_is_full_is_not_blamed_on_the_brokers() -> None:
    brokers = Component("kafka", "service", "Kafka at k:9: refused")

    assert of_part(Component("worker", "worker", "disk full"), NOON, (brokers,)).cause == "worker"


def test_every_part_that_is_blamed_is_known_by_its_name_to_who_names_tables() -> None:
    """Whatever is called so must be no table, or their incidents would be one."""
    router = Router((TableRule(r"x\.(.*)", r"\1"),))
    blamed = [
        *_parts(),
        system_checks.MERGING,
        blocks.LAKE,
        system_checks.source_of("shop"),
        system_checks.rule_of("a.b"),
    ]
    blamed += [system_checks.retention_of("shop"), probing.JOB, system_checks.SUBJECT]

    assert [name for name in blamed if router.table(f"x.{name}") == name] == []


def _parts() -> list[str]:
    """The parts of a service with one of each kind."""
    heart = SimpleNamespace(settings=SimpleNamespace(name="shop"), ailment="")
    turns = SimpleNamespace(
        jobs=[SimpleNamespace(name="watch")], ailments={}, overdue=lambda _: dict[str, datetime]()
    )
    state = ServiceState(
        store=cast(Any, SimpleNamespace(database=SimpleNamespace(ailment=""))),
        heartbeats=cast(Any, [heart]),
        requests=cast(Any, SimpleNamespace(ailment="")),
        supervisor=cast(Any, None),
        schedule=lambda: cast(Any, turns),
        ways=(),
        doubts=lambda _, __: "",
    )
    look = cast(Any, SimpleNamespace(sources=["shop"], troubles={}))
    found = state.parts(look, [cast(Any, SimpleNamespace(name="log", ailment=""))], NOON)
    assert len(found) == 8
    return [part.name for part in found]


@pytest.mark.parametrize(
    ("again", "outcome"),
    [
        pytest.param(None, Outcome.PASS, id="it never did"),
        pytest.param(AGAIN, Outcome.FAIL, id="just now"),
        pytest.param(replace(AGAIN, at=NOON - timedelta(hours=23)), Outcome.FAIL, id="today"),
        pytest.param(replace(AGAIN, at=NOON - timedelta(days=1)), Outcome.PASS, id="long ago"),
        pytest.param(replace(AGAIN, asked=True), Outcome.PASS, id="to heal what was lost"),
    ],
)
def test_a_collector_that_began_anew_is_told_for_a_day(
    again: SnapshotAgain | None, outcome: Outcome
) -> None:
    verdict = system_checks.of_snapshots("shop", again, NOON)

    assert (verdict.table, verdict.check) == ("snapshots:shop", "snapshot_again")
    assert verdict.ruling.outcome is outcome
    assert ("the collector of shop began anew" in verdict.ruling.reason) == (
        outcome is Outcome.FAIL
    )
