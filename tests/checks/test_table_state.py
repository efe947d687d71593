"""A table's state follows from what is known of it, whatever it was before."""

from datetime import UTC, datetime

import pytest

from checks.blocks import Pause
from checks.model import Reason
from checks.table_state import TableFacts, TableState, state_of

NOON = datetime(2026, 3, 29, 12, tzinfo=UTC)
PAUSE = Pause("shop.a", "a migration", "ann", NOON)
GAP, BASE = Reason("gap", "a gap"), Reason("no_base", "no base yet")
GROWN = TableFacts(based=True, bare=False)


@pytest.mark.parametrize(
    ("facts", "state", "why"),
    [
        pytest.param(GROWN, "incremental", "", id="all goes on"),
        pytest.param(
            TableFacts(False, True, blocked=(BASE,)), "new", "no base yet", id="it has nothing yet"
        ),
        pytest.param(
            TableFacts(True, True), "new", "nothing is merged into its mirror yet", id="no mirror"
        ),
        pytest.param(
            TableFacts(False, True, first="3 of 5 rows", blocked=(BASE,)),
            "bootstrap",
            "3 of 5 rows",
            id="its first snapshot is read",
        ),
        pytest.param(
            TableFacts(False, True, reread="3 rows", blocked=(BASE,)),
            "bootstrap",
            "3 rows",
            id="it is read by request before it had anything",
        ),
        pytest.param(
            TableFacts(False, False, reread="3 rows", blocked=(BASE,)),
            "re-bootstrap",
            "3 rows",
            id="it lost its base, and is read again",
        ),
        pytest.param(
            TableFacts(True, False, reread="3 rows", blocked=(GAP,)),
            "re-bootstrap",
            "3 rows",
            id="it is read again for a gap",
        ),
        pytest.param(
            TableFacts(True, False, blocked=(GAP, BASE)), "held", "a gap", id="something blocks it"
        ),
        pytest.param(
            TableFacts(False, False, blocked=(BASE,)),
            "held",
            "no base yet",
            id="a mirror of which a shard has no base",
        ),
        pytest.param(
            TableFacts(False, True, blocked=(BASE, GAP)), "held", "no base yet", id="both, and bare"
        ),
        pytest.param(
            TableFacts(True, False, "first", "again", (GAP,), PAUSE),
            "paused",
            PAUSE.told,
            id="a person comes first",
        ),
    ],
)
def test_state(facts: TableFacts, state: str, why: str) -> None:
    assert state_of(facts) == (TableState(state), why)
