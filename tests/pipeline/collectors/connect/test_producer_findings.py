"""The producer's settings as they hold in the end: the connector's, the worker's, Connect's own."""

from collections.abc import Mapping

import pytest

from pipeline.collectors.connect.findings import producer_findings
from pipeline.finding import NOTE, REFUSE, WARN, FindingSeverity

IN_FLIGHT = "max.in.flight.requests.per.connection"
PROMPT = {"offset.flush.interval.ms": "1000"}
STATED = {
    "producer.override.acks": "all",
    "producer.override.retries": "2147483647",
    "producer.override.enable.idempotence": "true",
    f"producer.override.{IN_FLIGHT}": "5",
}


@pytest.mark.parametrize(
    ("connector", "worker", "expected"),
    [
        pytest.param({}, PROMPT, {}, id="Connect's own are safe"),
        pytest.param(STATED, PROMPT, {}, id="stated"),
        pytest.param({"producer.override.acks": "1"}, PROMPT, {"acks": REFUSE}, id="one ack"),
        pytest.param({}, {**PROMPT, "producer.acks": "0"}, {"acks": REFUSE}, id="worker's acks"),
        pytest.param(
            {"producer.override.acks": "-1"},
            {**PROMPT, "producer.acks": "0"},
            {},
            id="the connector's go first",
        ),
        pytest.param(
            {"producer.override.retries": "0"}, PROMPT, {"retries": REFUSE}, id="no retries"
        ),
        pytest.param(
            {f"producer.override.{IN_FLIGHT}": "5"}, PROMPT, {IN_FLIGHT: REFUSE}, id="reorders"
        ),
        pytest.param(
            {f"producer.override.{IN_FLIGHT}": "${file:kafka.properties:most}"},
            PROMPT,
            {IN_FLIGHT: WARN},
            id="a reference is not known here",
        ),
        pytest.param(
            {**STATED, f"producer.override.{IN_FLIGHT}": "${env:MOST}"},
            PROMPT,
            {},
            id="whatever it is, idempotence keeps the order",
        ),
        pytest.param(
            {},
            {"offset.flush.interval.ms": "${env:FLUSH}"},
            {"flush_unseen": NOTE},
            id="of flushes",
        ),
        pytest.param(
            {}, None, {"producer_unseen": NOTE, "flush_unseen": NOTE}, id="worker not known"
        ),
        pytest.param(STATED, None, {"flush_unseen": NOTE}, id="stated, worker not known"),
        pytest.param({}, {}, {"offset.flush.interval.ms": WARN}, id="offsets once a minute"),
        pytest.param({}, {"offset.flush.interval.ms": "5000"}, {}, id="5 s will do"),
    ],
)
def test_producer_settings_are_ruled_as_they_hold(
    connector: Mapping[str, str],
    worker: Mapping[str, str] | None,
    expected: Mapping[str, FindingSeverity],
) -> None:
    found = producer_findings(connector, "collector:shop", worker)

    assert {finding.code: finding.severity for finding in found} == expected
    assert all(finding.fix for finding in found)
