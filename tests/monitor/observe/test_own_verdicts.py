"""What is wrong is told once, in words that name a part once.  Covers own_verdicts.py."""

import pytest

from monitor.observe.own_verdicts import Component, of_part
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
