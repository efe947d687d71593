import structlog

from alerts.channels.log import Log
from alerts.model import Event
from tests.alerts.kit import at, message


def test_each_message_is_one_line_with_facts_as_keys() -> None:
    with structlog.testing.capture_logs() as lines:
        Log().send([message(1), message(2, Event.CLEARED)], at(0))

    assert [line["log_level"] for line in lines] == ["warning", "info"]
    assert lines[0]["event"].startswith("LOST shop.t1 range_counts")
    assert (lines[0]["alert"], lines[0]["state"]) == ("lost", "fired")
    assert lines[0]["runbook"] == "docs/runbooks/lost.md#range_counts"
