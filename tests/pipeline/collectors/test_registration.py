"""What a person chose stays, unless a demand forbids it; what is missing is added."""

from collections.abc import Mapping

import pytest

from pipeline.collectors.collector import Registration
from pipeline.finding import Demand

WANTED = {"pace": "1", "mode": "whole", "password": "${env:X}", "only": "shop"}
FIRM = (Demand("mode", "values are cut", good=("whole", "full")), Demand("kept", "", good=("on",)))


def _registration(now: Mapping[str, str] | None) -> Registration:
    return Registration(
        WANTED, FIRM, (frozenset({"only", "not"}),), "password".__eq__, lambda: now, lambda _: None
    )


@pytest.mark.parametrize(
    ("now", "changed"),
    [
        pytest.param(WANTED, {}, id="as it is to be"),
        pytest.param({**WANTED, "pace": "9"}, {}, id="a choice stays"),
        pytest.param({**WANTED, "more": "1"}, {}, id="what is beside stays"),
        pytest.param({**WANTED, "mode": "FULL"}, {}, id="another value that will do"),
        pytest.param({**WANTED, "mode": "cut"}, {"mode": "whole"}, id="one that will not"),
        pytest.param({**WANTED, "kept": "off"}, {"kept": "on"}, id="good where it is not set"),
        pytest.param({**WANTED, "password": "raw"}, {}, id="a secret stays"),
        pytest.param(
            {"mode": "whole", "password": "raw", "not": "crm"}, {"pace": "1"}, id="one is enough"
        ),
        pytest.param({}, WANTED, id="nothing is set"),
        pytest.param(None, WANTED, id="not registered"),
    ],
)
def test_f52_only_what_is_missing_or_forbidden_is_changed(
    now: Mapping[str, str] | None, changed: Mapping[str, str]
) -> None:
    registration = _registration(now)

    told = registration.differences(now)

    assert {one.name: one.after for one in told} == changed
    assert registration.target(now) == {**(now or {}), **changed}
    assert [one.name for one in told] == sorted(changed)


def test_a_difference_is_told_as_in_a_diff_with_its_reason() -> None:
    registration = _registration(None)

    told = registration.differences({"mode": "cut", "password": "raw", "only": "shop"})

    assert [str(one) for one in told] == ["~ mode: cut -> whole", "+ pace=1"]
    assert told[0].why == "values are cut"


def test_a_secret_is_never_shown_and_a_reference_is() -> None:
    registration = _registration(None)

    assert registration.shown("password", "raw") == "(hidden)"
    assert registration.shown("password", "${env:X}") == "${env:X}"
    assert registration.shown("pace", "raw") == "raw"
