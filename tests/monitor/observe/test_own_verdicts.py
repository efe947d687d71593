"""What is wrong is told once, in words that name a part once.  Covers own_verdicts.py."""

from datetime import datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest

from checks import blocks
from monitor.observe import own_verdicts as own
from monitor.observe import probing, stalled
from monitor.observe.own_verdicts import Component, of_part
from monitor.observe.service_state import ServiceState
from pipeline.route import Router
from pipeline.settings import TableRule
from tests.monitor.rig import NOON


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


def test_every_part_that_is_blamed_is_known_by_its_name_to_who_names_tables() -> None:
    """Whatever is called so must be no table, or their incidents would be one."""
    router = Router((TableRule(r"x\.(.*)", r"\1"),))
    blamed = [*_parts(), own.MERGING, blocks.LAKE, own.source_of("shop"), own.rule_of("a.b")]
    blamed += [own.retention_of("shop"), probing.JOB, stalled.SUBJECT]

    assert [name for name in blamed if router.table(f"x.{name}") == name] == []


def _parts() -> list[str]:
    """The parts of a service with one of each kind."""
    heart = SimpleNamespace(settings=SimpleNamespace(name="shop"), ailment="")
    turns = SimpleNamespace(
        jobs=[SimpleNamespace(name="watch")], ailments={}, overdue=lambda _: dict[str, datetime]()
    )
    state = ServiceState(
        store=cast(Any, None),
        heartbeats=cast(Any, [heart]),
        requests=cast(Any, SimpleNamespace(ailment="")),
        supervisor=cast(Any, None),
        schedule=lambda: cast(Any, turns),
        ways=(),
        doubts=lambda _, __: "",
    )
    look = cast(Any, SimpleNamespace(sources=["shop"], troubles={}))
    found = state.parts(look, [cast(Any, SimpleNamespace(name="log", ailment=""))], NOON)
    assert len(found) == 6
    return [part.name for part in found]
