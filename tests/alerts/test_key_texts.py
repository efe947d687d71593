from dataclasses import replace

import pytest

from alerts.message import hidden
from alerts.model import Event, Notice
from alerts.round import AlertSettings
from checks.model import Outcome, Ruling
from tests.alerts.kit import at, firing


@pytest.mark.parametrize(
    ("text", "told"),
    [
        pytest.param('t:0:5 ["ann@example.org"]', 't:0:5 ["…"]', id="an address"),
        pytest.param(
            'key ["shop","a.b",7,"x]y\\"z"] twice', 'key ["…", "…", 7, "…"] twice', id="odd"
        ),
        pytest.param("ids [100, 120)", "ids [100, 120)", id="a range"),
        pytest.param("keys [1, 2], [3]", "keys [1, 2], [3]", id="numbers"),
        pytest.param("a [bold] word", "a [bold] word", id="no key"),
        pytest.param('["open', '["open', id="cut off"),
    ],
)
def test_f37_texts_in_keys_are_hidden_and_nothing_else(text: str, told: str) -> None:
    assert hidden(text) == told


@pytest.mark.parametrize("shown", [False, True])
def test_f37_an_alert_names_no_address_unless_it_may(*, shown: bool) -> None:
    key = 'shop.users:0:5 ["ann@example.org"]'
    lost = replace(firing(), ruling=Ruling(Outcome.FAIL, f"1 keys missing: {key}", "x", (key,)))

    told = AlertSettings(text_keys=shown).compose(Notice(Event.FIRED, lost, at(0)))

    assert ("ann@example.org" in told.subject, "ann@example.org" in told.body) == (shown, shown)
    assert "shop.users:0:5" in told.subject
