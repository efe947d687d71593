"""S13: `t4 > t1 + t2 + t3` says ready when a lag is missing, frozen or idle."""

from datetime import timedelta
from typing import Any

import pytest

from checks.blocks import Inputs
from checks.readiness import Question, ReadinessPolicy, ReadinessState, assess
from pipeline.lags.samples import Samples
from pipeline.model import Acknowledged, Missing, Stage
from pipeline.sources.mysql.position import binlog_position
from tests.checks.samples import (
    CUT,
    GATING,
    NOW,
    TABLE,
    fence_series,
    healthy_checkpoint,
    lags,
    samples,
)

HOUR = timedelta(hours=1)


def their_rule(t4: timedelta, *delays: timedelta | None) -> bool:
    """The seed's: a delay that was not delivered counts as none."""
    return t4 > sum((delay or timedelta() for delay in delays), timedelta())


def their_delays(taken: Samples) -> list[timedelta | None]:
    """What their metrics show: the last number seen, however old; nothing for an idle hop."""
    found = lags(taken)
    return [None if isinstance(hop.lag, Missing) else hop.lag for hop in found.hops]


@pytest.mark.parametrize(
    "bent",
    [
        pytest.param({"acknowledged": Missing("canal's gauge is gone")}, id="missing"),
        pytest.param(
            {"ages": {"mark": HOUR}, "landed": healthy_checkpoint(through=10)}, id="frozen"
        ),
        pytest.param(
            {"fences": fence_series(until=NOW - HOUR)}, id="idle or stalled, nobody can tell"
        ),
        pytest.param({"landed": healthy_checkpoint(through=0)}, id="nothing ever landed"),
        pytest.param(
            {"acknowledged": Acknowledged(binlog_position(0, 0))},
            id="the collector stands at its start",
        ),
    ],
)
def test_s13_a_lag_that_is_missing_frozen_or_idle_is_never_ready(bent: dict[str, Any]) -> None:
    taken = samples(**bent)

    theirs = their_rule(NOW - CUT, *their_delays(taken))
    ours = assess(
        Question(Stage.MIRROR, CUT),
        Inputs(TABLE, taken, lags(taken)),
        ReadinessPolicy(gating=GATING),
    )

    assert theirs
    assert ours.state is ReadinessState.UNKNOWN
