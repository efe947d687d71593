"""A waiver ends with what it was given for."""

import pytest

from checks.blocks import SINCE_GONE, waivable
from checks.readiness import assess
from pipeline.checkpoint import Existence
from pipeline.model import Missing, Order
from tests.checks.samples import TABLE, mark
from tests.checks.test_readiness import BOTH, MIRROR, inputs


@pytest.mark.parametrize(
    ("first", "later", "ready"),
    [
        pytest.param("a cascade from a", "a cascade from b", False, id="another foreign key"),
        pytest.param("a cascade from a", f"a cascade from a{SINCE_GONE}", True, id="dropped"),
        pytest.param(
            Missing("loaded: 65 threads run"), Missing("loaded: 70 threads run"), True, id="still"
        ),
        pytest.param(Missing("down"), Missing("hidden"), False, id="another kind of not knowing"),
        pytest.param(Missing("down"), "a cascade from a", False, id="it is known by now"),
    ],
)
def test_a_waiver_of_what_no_log_shows_ends_with_it(
    first: str | Missing, later: str | Missing, ready: bool
) -> None:
    waived = frozenset({assess(MIRROR, inputs(unproven=first), BOTH).reasons[0].id})

    answer = assess(MIRROR, inputs(unproven=later, waived=waived), BOTH)

    assert answer.ready is ready
    assert all(waivable(reason.id) for reason in answer.reasons if reason.id)


@pytest.mark.parametrize(
    ("existing", "ready"),
    [
        pytest.param(Existence(Order(1, 7, 5), there=True), True, id="the same shard"),
        pytest.param(Existence(Order(1, 7, 9), there=True), False, id="made anew since"),
    ],
)
def test_a_waiver_of_a_missing_base_ends_when_the_shard_is_made_anew(
    existing: Existence, ready: bool
) -> None:
    name = str(TABLE.shards[0])
    bases = {str(TABLE.shards[1]): Order(1, 1, 1)}
    before = mark(bases=bases, existing={name: Existence(Order(1, 7, 5), there=True)})
    (reason, *_) = assess(MIRROR, inputs(taken={"landed": before}), BOTH).reasons
    now = mark(bases=bases, existing={name: existing})

    answer = assess(MIRROR, inputs(taken={"landed": now}, waived=frozenset({reason.id})), BOTH)

    assert reason.code == "no_base"
    assert waivable(reason.id)
    assert answer.ready is ready
