"""A list of demands is ruled setting by setting, and each finding says what will do instead."""

import pytest

from pipeline.finding import REFUSE, WARN, Demand, find_unmet

ONE_OF = Demand("mode", "rows get lost", good=("full", "most"), default="none")
NOT = Demand("mode", "rows get lost", bad=("none",), severity=WARN)
ABSENT = Demand("mode", "rows get lost")


@pytest.mark.parametrize(
    ("demand", "settings", "told"),
    [
        pytest.param(ONE_OF, {"mode": "most"}, None, id="one that will do"),
        pytest.param(ONE_OF, {"mode": " FULL "}, None, id="case and blanks do not matter"),
        pytest.param(ONE_OF, {"mode": "x"}, ("mode=x: rows get lost", "say full"), id="another"),
        pytest.param(ONE_OF, {}, ("mode=none (by default): rows get lost", "say full"), id="none"),
        pytest.param(NOT, {"mode": "x"}, None, id="not a bad one"),
        pytest.param(NOT, {}, None, id="absent, and no default is known"),
        pytest.param(
            NOT, {"mode": "none"}, ("mode=none: rows get lost", "say another value"), id="a bad one"
        ),
        pytest.param(
            ABSENT, {"mode": "x"}, ("mode=x: rows get lost", "say another value"), id="there at all"
        ),
    ],
)
def test_a_demand_that_is_not_met_is_a_finding(
    demand: Demand, settings: dict[str, str], told: tuple[str, str] | None
) -> None:
    found = find_unmet([demand], settings, "here", remedy="say {value}")

    assert [(one.code, one.where, one.what, one.fix) for one in found] == (
        [("mode", "here", *told)] if told else []
    )
    assert [(one.severity, one.setting) for one in found] == (
        [(demand.severity, f"mode={settings.get('mode', 'none')}")] if told else []
    )


def test_a_demand_may_bring_its_own_fix_and_order_is_kept() -> None:
    first, second = Demand("a", "why", fix="as I say"), Demand("b", "why")

    found = find_unmet([first, second], {"b": "1", "a": "1"}, "here", remedy="{name}")

    assert [(one.severity, one.fix) for one in found] == [(REFUSE, "as I say"), (REFUSE, "b")]
