"""S12: a producer that never tries again skips what one transient error hits; ours is refused."""

from collections.abc import Iterator

import pytest

from pipeline.collectors.connect.findings import producer_findings
from pipeline.finding import REFUSE

CHANGES = ("insert 1", "update 1", "insert 2")


def send_with_retries(retries: int, failures: int) -> list[str]:
    """What arrives when the second send fails *failures* times; the producer then goes on."""
    errors: Iterator[bool] = iter([False, *[True] * failures])
    tries = dict.fromkeys(CHANGES, 0)
    arrived = []
    for change in CHANGES:
        while next(errors, False):
            tries[change] += 1
            if tries[change] > retries:
                break
        else:
            arrived.append(change)
    return arrived


def test_s12_the_seeds_producer_skips_a_change() -> None:
    assert send_with_retries(retries=0, failures=1) == ["insert 1", "insert 2"]


def test_s12_a_producer_that_may_try_again_does_not() -> None:
    assert send_with_retries(retries=2147483647, failures=3) == list(CHANGES)


@pytest.mark.parametrize(
    ("connector", "worker"),
    [
        pytest.param({"producer.override.retries": "0"}, {}, id="in the connector"),
        pytest.param({}, {"producer.retries": "0"}, id="in the worker"),
    ],
)
def test_s12_the_doctor_refuses_it_with_the_fix(
    connector: dict[str, str], worker: dict[str, str]
) -> None:
    prompt = {**worker, "offset.flush.interval.ms": "1000"}

    found = producer_findings(connector, "collector:shop", prompt)

    assert [(f.severity, f.code) for f in found] == [(REFUSE, "retries")]
    assert found[0].fix == "producer.override.retries=2147483647 in the connector's config"


def test_s12_once_fixed_it_is_fine() -> None:
    fixed = {"producer.override.retries": "2147483647"}
    worker = {"producer.retries": "0", "offset.flush.interval.ms": "1000"}

    assert producer_findings(fixed, "collector:shop", worker) == []
