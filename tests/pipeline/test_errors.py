"""What errors of others are called in ours."""

import pytest
from kafka.errors import KafkaTimeoutError

from pipeline.errors import class_and_text


@pytest.mark.parametrize(
    ("error", "told"),
    [
        pytest.param(KafkaTimeoutError("no answer"), "KafkaTimeoutError: no answer", id="kafka's"),
        pytest.param(OSError("no route"), "OSError: no route", id="one without its class"),
    ],
)
def test_the_class_of_an_error_is_named_once(error: Exception, told: str) -> None:
    assert class_and_text(error) == told
