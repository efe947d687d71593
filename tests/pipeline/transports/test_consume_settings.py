import pytest

from pipeline.errors import ConfigError
from pipeline.transports.kafka import consume_ranges
from pipeline.transports.transport import OffsetRange

SOME = [OffsetRange("t", 0, 0, 1)]


@pytest.mark.parametrize(
    ("setting", "value", "said"),
    [
        pytest.param("sasl.mechanism", "GSSAPI", "Kerberos", id="the wheel has no Kerberos"),
        pytest.param("sasl.mechanisms", "gssapi", "Kerberos", id="by its other name"),
        pytest.param("check.crcs", "false", "check.crcs: decided by Sluice", id="rule 14"),
        pytest.param("enable.auto.commit", "true", "enable.auto.commit: decided", id="rule 13"),
        pytest.param("isolation.level", "read_committed", "isolation.level: dec", id="rule 5"),
    ],
)
def test_rule_20_a_setting_that_is_not_the_operators_is_refused_by_name(
    setting: str, value: str, said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        consume_ranges({"bootstrap.servers": "localhost:1", setting: value}, SOME)


def test_rule_20_a_setting_that_the_client_does_not_know_is_refused_by_name() -> None:
    reading = consume_ranges({"bootstrap.servers": "localhost:1", "request_timeout_ms": "5"}, SOME)

    with pytest.raises(ConfigError, match="request_timeout_ms"):
        list(reading)


def test_nothing_to_read_needs_no_broker() -> None:
    nothing = [OffsetRange("t", 0, 7, 7), OffsetRange("t", 1, 0, 0)]
    reading = consume_ranges({"bootstrap.servers": "localhost:1"}, nothing)

    assert list(reading) == []
    assert [(one.asked, one.count) for one in reading.read] == [(one, 0) for one in nothing]
