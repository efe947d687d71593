"""S11: a replay stamped "five minutes ago" from a replica that lags by more takes rows back."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from pipeline.model import Head, Op, Origin
from pipeline.sources.mysql.position import binlog_position, explain_behind_fence
from pipeline.sources.row_reader import ReadFence
from tests.builders.lake import LocalLake, row

SEEDS_STAMP = timedelta(minutes=5)
LIVE = "11111111-0000-0000-0000-000000000000"


@pytest.fixture
def lake(tmp_path: Path) -> LocalLake:
    return LocalLake(tmp_path)


def seeds_winner(lag: timedelta) -> str:
    """The row was changed *lag* ago; the replica does not know yet, and is asked now."""
    now = timedelta(hours=12)
    live, replayed = (now - lag + timedelta(seconds=1), "new"), (now - SEEDS_STAMP, "stale")
    return max(live, replayed)[1]


def test_s11_the_seeds_replay_wins_with_stale_rows_once_the_replica_lags_more() -> None:
    assert seeds_winner(timedelta(minutes=4)) == "new"
    assert seeds_winner(timedelta(minutes=6)) == "stale"


def executed(ends: int, server: str) -> Head:
    return Head(server, binlog_position(7, 1_000, f"{LIVE}:1-{ends}"))


@pytest.mark.parametrize(
    ("replica", "missing"),
    [
        pytest.param(executed(90, "replica"), f"{LIVE}:1-100 is needed", id="it lags"),
        pytest.param(executed(100, "replica"), None, id="it is as far as the fence"),
        pytest.param(executed(120, "replica"), None, id="it is further"),
        pytest.param(Head("replica", binlog_position(7, 99_999)), "executed", id="it tells none"),
    ],
)
def test_s11_a_replica_that_lags_is_not_read_at_all(replica: Head, missing: str | None) -> None:
    head = executed(100, "primary")

    found = explain_behind_fence(ReadFence(head, 1, head.position), replica)

    assert found is None if missing is None else found is not None and missing in found


OLDER, SINCE = row(Op.UPDATE, 90, 1, "older"), row(Op.UPDATE, 110, 1, "since")
GONE = row(Op.DELETE, 120, 1, "since")
REPLAYED = row(Op.READ, 100, 1, "replayed", origin=int(Origin.REPLAY))
ABSENT = row(Op.DELETE, 100, 1, origin=int(Origin.REPAIR), before=json.dumps({"id": "1"}))


@pytest.mark.parametrize(
    ("batches", "left"),
    [
        pytest.param([[OLDER], [REPLAYED]], {1: "replayed"}, id="over what is older"),
        pytest.param([[OLDER, SINCE], [REPLAYED]], {1: "since"}, id="never over what came since"),
        pytest.param([[OLDER, SINCE, REPLAYED]], {1: "since"}, id="nor in one batch"),
        pytest.param([[REPLAYED], [OLDER]], {1: "replayed"}, id="an old change that comes again"),
        pytest.param([[OLDER, SINCE], [GONE], [REPLAYED]], {}, id="what went stays away"),
        pytest.param(
            [[REPLAYED], [SINCE], [GONE], [REPLAYED, OLDER, SINCE]], {}, id="also if all is resent"
        ),
        pytest.param([[OLDER], [ABSENT]], {}, id="a key that is absent goes"),
        pytest.param([[OLDER], [ABSENT], [OLDER]], {}, id="and stays away if it is sent again"),
        pytest.param([[OLDER], [ABSENT], [SINCE]], {1: "since"}, id="until it is made anew"),
        pytest.param([[SINCE], [ABSENT]], {1: "since"}, id="or was already"),
    ],
)
def test_s11_what_is_read_again_wins_by_its_place_in_the_log_alone(
    lake: LocalLake, batches: list[list[dict[str, Any]]], left: dict[int, str]
) -> None:
    assert lake.play(*batches) == left
