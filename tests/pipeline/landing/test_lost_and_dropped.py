"""What is lost of a shard that is dropped afterwards; covers next_mark."""

from dataclasses import replace
from typing import Any

import pytest

from pipeline.landing.facts import Facts, News, UnreadChanges
from pipeline.model import Order
from pipeline.schema.history import SchemaChange
from tests.pipeline.landing.test_next_mark import ACK, GAP, OLD, step

SHARDS = replace(OLD, shards={"s/db.t": "t", "s/db.u": "t"})
PASSED: dict[str, Any] = {"acknowledged": {"s": ACK}}


def drop(shard: str, *, snapshot: bool = False) -> Facts:
    change = SchemaChange("drop", shard, Order(1, 1, 500), None, "DROP TABLE t")
    return Facts(news=(News("s", change, snapshot=snapshot),))


@pytest.mark.parametrize(
    "lost",
    [
        pytest.param({"gaps": (GAP,)}, id="a gap"),
        pytest.param(
            {"facts": Facts(errors={"s/db.t": UnreadChanges("s", "t", 1, ("s.db.t:0:7",))})},
            id="an unread change",
        ),
    ],
)
@pytest.mark.parametrize(
    ("passed", "news", "closed"),
    [
        pytest.param(PASSED, drop("db.t"), True, id="nobody misses it any more"),
        pytest.param({}, drop("db.t"), False, id="it may be of the table made after the DROP"),
        pytest.param(PASSED, drop("db.u"), False, id="another shard of the table"),
        pytest.param(PASSED, drop("db.t", snapshot=True), False, id="a snapshot's DROP is none"),
    ],
)
def test_what_is_lost_of_a_shard_goes_with_it(
    lost: dict[str, Any], passed: dict[str, Any], news: Facts, *, closed: bool
) -> None:
    opened = step(SHARDS, **lost, **passed)

    made = step(opened, news)

    assert opened.gaps or opened.quarantine
    assert (not made.gaps and not made.quarantine) is closed
    assert "s/db.t" not in made.bases
