from dataclasses import replace

import pytest

from pipeline.checkpoint import Epoch
from pipeline.landing.epochs import explain_log_change, observe_head
from pipeline.model import Head
from pipeline.sources.mysql.position import binlog_position

UUID = "11111111-1111-1111-1111-111111111111"
OTHER = "22222222-2222-2222-2222-222222222222"
KNOWN = Epoch(3, UUID, binlog_position(5, 1000, f"{UUID}:1-100"), heartbeat=7)


@pytest.mark.parametrize(
    ("head", "word"),
    [
        pytest.param(
            Head(UUID, binlog_position(5, 1000, f"{UUID}:1-100")), None, id="nothing happened"
        ),
        pytest.param(
            Head(UUID, binlog_position(6, 4, f"{UUID}:1-120")), None, id="the log went on"
        ),
        pytest.param(
            Head(OTHER, binlog_position(5, 1000, f"{UUID}:1-100")), "replaced", id="another server"
        ),
        pytest.param(
            Head(UUID, binlog_position(1, 155, f"{UUID}:1-1")), "went back", id="its log was reset"
        ),
        pytest.param(
            Head(UUID, binlog_position(5, 4000, f"{UUID}:1-30")),
            "no longer has",
            id="reset, and grown past the old",
        ),
    ],
)
def test_only_the_connected_server_moves_the_epoch(head: Head, word: str | None) -> None:
    why = explain_log_change(KNOWN, head)

    assert (why is None) == (word is None)
    assert word is None or word in str(why)


def test_a_new_epoch_remembers_the_heartbeat_and_the_transactions_it_began_at() -> None:
    epoch = observe_head(KNOWN, Head(OTHER, binlog_position(1, 4)), heartbeat=42)

    assert epoch == Epoch(4, OTHER, binlog_position(1, 4, ""), heartbeat=42, before=KNOWN.position)


def test_the_same_log_keeps_its_epoch_and_raises_its_head() -> None:
    epoch = observe_head(KNOWN, Head(UUID, binlog_position(6, 4, f"{UUID}:1-120")), heartbeat=42)

    assert epoch == replace(KNOWN, position=binlog_position(6, 4, f"{UUID}:1-120"))


def test_the_first_head_ever_seen_is_epoch_one() -> None:
    assert observe_head(None, Head(UUID, binlog_position(6, 4)), heartbeat=-1).number == 1
