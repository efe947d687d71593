"""What is to be looked at first, where a part did not answer, is what the config names."""

from dataclasses import replace

import pytest

from monitor.config.sections import PLACEHOLDER_ADDRESS
from monitor.doctor import brokers, collector, server
from pipeline.settings import CollectorSettings, SourceSettings

USUAL = SourceSettings("shop", "db", 3306, "u", CollectorSettings("http://c", "shop"), "shop")
LOGS = replace(USUAL, collector=CollectorSettings("/data/logs", "logs", "files"), transport="files")


@pytest.mark.parametrize(
    ("source", "asks", "reads"),
    [
        pytest.param(USUAL, "does a Connect worker run", "do brokers run", id="the usual ones"),
        pytest.param(
            replace(USUAL, collector=CollectorSettings(kind="heartbeats")),
            "see `collector` and `kind` of shop",
            "do brokers run",
            id="whom nobody can ask",
        ),
        pytest.param(
            LOGS, "see `collector` and `kind` of shop", "see `transport` of shop", id="files"
        ),
    ],
)
def test_nobody_is_sent_to_what_the_source_has_not(
    source: SourceSettings, asks: str, reads: str
) -> None:
    assert asks in collector(source).then
    assert reads in brokers(source).then


def test_a_source_without_a_server_is_not_looked_for_at_an_address() -> None:
    assert "does the server run" in server(USUAL).then
    assert (
        "is all there that `collector` of shop names"
        in server(replace(LOGS, **PLACEHOLDER_ADDRESS)).then
    )
