"""Tests how far a mirror may be merged whose changes have no positions in the log."""

from dataclasses import replace

import pytest

from pipeline.apply.catalog import Catalog
from pipeline.apply.landed_state import LandedState
from pipeline.checkpoint import Checkpoint
from pipeline.heartbeats import HeartbeatHistory
from pipeline.model import Order, Shard
from pipeline.settings import Router
from tests.builders.values import by_shard
from tests.pipeline.reading import readings

CALM = HeartbeatHistory(highest=900, order=Order(1, 0, 7), last=900, raised=51)
SHARDS: dict[str, str | None] = {"a/db.t_0": "db.t", "b/db.t_1": "db.t", "c/db.u": "db.u"}
MARK = Checkpoint("prod", 60, shards=by_shard(SHARDS), tables={"db.t": 60, "db.u": 58})


def through(mark: Checkpoint, *sources: str) -> dict[str, int]:
    """*sources* are those in the config."""
    return dict(LandedState(mark, Catalog(Router(), readings(*sources or "abc"))).target_batches)


@pytest.mark.parametrize(
    ("trails", "table"),
    [
        pytest.param({}, 60, id="changes have places in the log"),
        pytest.param({"a": CALM}, 50, id="what came behind the newest may be sent again"),
        pytest.param({"a": replace(CALM, last=880)}, 50, id="it is sent again now"),
        pytest.param({"a": replace(CALM, over=51)}, -1, id="it came back in the newest's batch"),
        pytest.param({"a": replace(CALM, over=49)}, 50, id="it came back before"),
        pytest.param({"a": CALM, "b": replace(CALM, raised=41)}, 40, id="of two the earlier"),
    ],
)
def test_a_mirror_takes_up_no_row_that_may_be_an_older_one(
    trails: dict[str, HeartbeatHistory], table: int
) -> None:
    assert through(replace(MARK, heartbeat_histories=trails)) == {"db.t": table, "db.u": 58}


def test_one_whose_newest_change_is_older_waits_for_nothing() -> None:
    assert through(replace(MARK, heartbeat_histories={"c": replace(CALM, raised=60)}))["db.u"] == 58


def test_a_source_that_left_the_config_keeps_no_mirror_waiting() -> None:
    """Its trail is not forgotten: if it comes back while it is sent again, nothing is READY."""
    left = replace(MARK, batch=600, tables={"db.t": 600})
    left = replace(left, heartbeat_histories={"a": replace(CALM, raised=599), "b": CALM})

    assert through(left, "a", "c") == {"db.t": 598}
    assert through(left, "a", "b", "c") == {"db.t": 50}


def test_where_nothing_is_sent_again_no_heartbeat_is_waited_for_until_numbers_fall() -> None:
    once = replace(CALM, once=True)

    assert through(replace(MARK, heartbeat_histories={"a": once}))["db.t"] == 60
    assert through(replace(MARK, heartbeat_histories={"a": replace(once, last=880)}))["db.t"] == 50
    assert through(replace(MARK, heartbeat_histories={"a": replace(once, over=51)}))["db.t"] == -1


@pytest.mark.parametrize(
    ("complete", "last"),
    [(50, 50), (51, -1)],
    ids=["it is whole by then", "it becomes whole later"],
)
def test_a_base_is_taken_up_as_a_whole(complete: int, last: int) -> None:
    """Below it nothing counts any more, also in a turn that does not come to its rows."""
    mark = replace(MARK, heartbeat_histories={"a": CALM}, complete={Shard("b", "db.t_1"): complete})

    assert through(mark)["db.t"] == last
