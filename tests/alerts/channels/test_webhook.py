import hashlib
import hmac
import json
import logging
import threading
from datetime import timedelta

import pytest

from alerts.channels.webhook import Webhook
from alerts.model import Event
from alerts.outbox import BusyError, RefusedError
from pipeline.errors import UnreachableError
from tests.alerts.channels.receiver import Receiver
from tests.alerts.kit import START, at, message


def test_a_receiver_can_check_who_sent_it_and_when(receiver: Receiver) -> None:
    Webhook(receiver.url, secret="between us").send([message()], at(0))

    (got,) = receiver.got
    stamp = got.headers["Sluice-Timestamp"]
    signed = hmac.new(b"between us", stamp.encode() + b"." + got.body, hashlib.sha256)
    assert got.headers["Sluice-Signature"] == f"v1={signed.hexdigest()}"
    assert int(stamp) == START.timestamp()
    assert got.headers["Content-Type"] == "application/json"


def test_another_secret_or_body_or_time_gives_another_signature(receiver: Receiver) -> None:
    for secret, number, minute in (("a", 1, 0), ("b", 1, 0), ("a", 2, 0), ("a", 1, 1)):
        Webhook(receiver.url, secret).send([message(number)], at(minute))

    assert len({got.headers["Sluice-Signature"] for got in receiver.got}) == 4


def test_without_a_secret_it_is_unsigned(receiver: Receiver) -> None:
    Webhook(receiver.url).send([message()], at(0))

    assert "Sluice-Signature" not in receiver.got[0].headers


def test_the_body_is_the_neutral_message(receiver: Receiver) -> None:
    Webhook(receiver.url).send([message(1), message(2, Event.CLEARED)], at(0))

    body = json.loads(receiver.got[0].body)
    first, second = body["messages"]
    assert body["version"] == 1
    assert first["id"] == message(1).id
    assert (first["kind"], first["event"], first["tables"]) == ("lost", "fired", ["shop.t1"])
    assert first["opened"] == "2026-03-01T00:00:00+00:00"
    assert first["ended"] is None
    assert second["ended"] == "2026-03-01T00:01:00+00:00"


@pytest.mark.parametrize(
    ("status", "headers", "after"),
    [
        pytest.param(429, {"Retry-After": "30"}, timedelta(seconds=30), id="too many requests"),
        pytest.param(503, {}, None, id="a server error"),
        pytest.param(500, {"Retry-After": "soon"}, None, id="a pause that cannot be read"),
        pytest.param(408, {}, None, id="a timeout of the receiver"),
        pytest.param(
            503,
            {
                "Date": "Sun, 01 Mar 2026 00:00:00 GMT",
                "Retry-After": "Sun, 01 Mar 2026 00:02:00 GMT",
            },
            timedelta(minutes=2),
            id="a pause given as a date",
        ),
    ],
)
def test_a_busy_receiver_asks_for_a_pause(
    receiver: Receiver, status: int, headers: dict[str, str], after: timedelta | None
) -> None:
    receiver.answers = [(status, headers, "")]

    with pytest.raises(BusyError, match=f"127.0.0.1 answered {status}") as caught:
        Webhook(receiver.url).send([message()], at(0))

    assert caught.value.after == after


@pytest.mark.parametrize("status", [301, 400, 401, 404, 413])
def test_a_refusal_says_what_was_answered_and_not_where(receiver: Receiver, status: int) -> None:
    receiver.answers = [(status, {"Location": "http://elsewhere"}, "no\nsuch hook")]

    with pytest.raises(RefusedError, match=f"127.0.0.1 answered {status}: ") as caught:
        Webhook(receiver.url).send([message()], at(0))

    assert "very-secret" not in str(caught.value)


def test_a_receiver_that_never_answers_is_given_up_in_time(receiver: Receiver) -> None:
    receiver.silent = threading.Event()

    with pytest.raises(UnreachableError, match="ReadTimeout"):
        Webhook(receiver.url, timeout=timedelta(seconds=0.2)).send([message()], at(0))


def test_the_address_is_never_logged(receiver: Receiver, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    Webhook(receiver.url).send([message()], at(0))

    assert len(receiver.got) == 1
    assert "very-secret" not in caplog.text
