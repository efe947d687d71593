import json
from dataclasses import replace

from alerts.channels.slack import Slack
from alerts.model import Event, Message
from tests.alerts.channels.receiver import Receiver
from tests.alerts.kit import at, message


def send_to_slack(receiver: Receiver, *messages: Message) -> dict[str, object]:
    Slack(receiver.url).send(messages, at(0))
    body: dict[str, object] = json.loads(receiver.got[-1].body)
    return body


def test_one_message_is_its_subject_and_its_facts(receiver: Receiver) -> None:
    body = send_to_slack(receiver, message(1))

    assert str(body["text"]).startswith(":red_circle: LOST shop.t1 range_counts: 2 rows short")
    assert "docs/runbooks/lost.md#range_counts" in json.dumps(body["blocks"])


def test_what_is_over_looks_different(receiver: Receiver) -> None:
    body = send_to_slack(receiver, message(1, Event.CLEARED))

    assert str(body["text"]).startswith(":large_green_circle: resolved: ")


def test_a_digest_lists_subjects_and_counts_the_rest(receiver: Receiver) -> None:
    body = send_to_slack(receiver, *(message(number) for number in range(50)))

    text = json.dumps(body["blocks"])
    assert body["text"] == "50 alerts"
    assert "shop.t19 " in text
    assert "shop.t20 " not in text
    assert "and 30 more on the status page" in text
    assert isinstance(body["blocks"], list)
    assert len(body["blocks"]) <= 50


def test_nothing_in_a_message_can_mention_or_link(receiver: Receiver) -> None:
    body = send_to_slack(receiver, replace(message(1), subject="<!channel> & <http://x|y>"))

    assert "&lt;!channel&gt; &amp; &lt;http://x|y&gt;" in str(body["text"])


def test_a_long_body_fits_into_its_section(receiver: Receiver) -> None:
    body = send_to_slack(receiver, replace(message(1), body="x" * 10_000))

    sections = body["blocks"]
    assert isinstance(sections, list)
    assert max(len(section["text"]["text"]) for section in sections) <= 3000
