"""Suites of Great Expectations on every changed row, and on the whole."""

import hashlib
import json
import math
import os
import struct
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from checks.model import NotYet, Outcome, Ruling, Undecided
from checks.probes import expectations as probe_module
from checks.probes.expectations import Content, Expectations, Look
from checks.validation import MEMORY, load_results
from checks.world import LargeLooks, Range
from pipeline.errors import ConfigError, ProofError
from pipeline.invariants.expectations import Expectations as Held
from pipeline.model import Fence, Shard, Table
from pipeline.suites import (
    MOST_KEYS,
    ExpectationResult,
    ExpectationSettings,
    SuiteAnswer,
    SuiteLook,
    evaluate_by_spark,
    evaluate_rows,
    find_mistakes,
    find_strange_columns,
    find_unmet,
    import_expectations,
    is_share,
    list_read_columns,
    make_frame,
    name_row,
    read_suite,
)
from tests.checks import suite_cases
from tests.checks.world_fake import ONE, TABLE, TWO, FakeMirror, FakeWorld

# Great Expectations imports what Python and pandas have deprecated.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")

THOROUGH = pytest.mark.thorough  # to import Great Expectations costs more than hundreds of tests

DAY = datetime(2026, 1, 1, tzinfo=UTC)
NOT_NULL = "expect_column_values_to_not_be_null"
BETWEEN = "expect_column_values_to_be_between"
QUANTILES = "expect_column_quantile_values_to_be_between"
DIVERGENCE = "expect_column_kl_divergence_to_be_less_than"
UNIQUE = "expect_column_values_to_be_unique"
QUERY = "unexpected_rows_expectation"
MATCH = "expect_column_values_to_match_regex"
SCHEMA_MATCH = "expect_column_values_to_match_json_schema"
IN_SET = "expect_column_values_to_be_in_set"
COUNT = "expect_table_row_count_to_be_between"
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("email", pa.string()),
        ("paid", pa.decimal128(10, 2)),
        ("at", pa.timestamp("us", "UTC")),
        (
            "_sluice",
            pa.struct([("source", pa.string()), ("shard", pa.string()), ("batch", pa.int64())]),
        ),
    ]
)


@dataclass
class RowsWorld(FakeWorld):
    """A world whose mirror has the rows of ``held``: id -> batch, row."""

    held: dict[int, tuple[int, Mapping[str, Any]]] = field(default_factory=dict)
    newest: int = 0
    rewritten: str = "never"
    loading: bool = False
    spark: "FakeLooks" = field(default_factory=lambda: FakeLooks())  # noqa: PLW0108  - defined below

    def merge(self, id_: int, **values: Any) -> None:
        self.newest += 1
        own = {"email": "a@b", "paid": Decimal(1), "at": DAY, **values}
        shard = {"source": ONE.source, "shard": (TWO if id_ > 50 else ONE).name}
        about = {**shard, "batch": self.newest}
        self.held[id_] = self.newest, {"id": id_, **own, "_sluice": about}

    def delete(self, id_: int) -> None:
        self.newest += 1
        self.held.pop(id_, None)

    def mirror(self, table: Table) -> Any:
        return RowsMirror({}, self.newest, rewritten=self.rewritten, held=self.held)

    def reached(self, table: Table, fences: Sequence[Fence]) -> bool:
        return not self.loading

    def large_looks(self) -> LargeLooks:
        return self.spark


@dataclass
class FakeLooks:
    """Spark answers when a test lets it."""

    asked: list[SuiteLook] = field(default_factory=list)
    found: SuiteAnswer | NotYet | None = None
    failure: str = ""  # of each look at a whole

    def answer(self, key: tuple[str, str, int | None]) -> SuiteAnswer | NotYet | None:
        if self.failure and key[-1] is None:
            raise ProofError(self.failure)
        return self.found if self.asked and key == self.asked[-1].key else None

    def ask(self, look: SuiteLook) -> None:
        self.asked.append(look)
        self.found = NotYet("Spark evaluates it")


@dataclass
class RowsMirror(FakeMirror):
    held: Mapping[int, tuple[int, Mapping[str, Any]]] = field(default_factory=dict)

    def rows(self) -> int:
        return len(self.held)

    def rows_after(
        self, batch: int | None, columns: Collection[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        kept = [row for at, row in self.held.values() if batch is None or at > batch]
        names = (*(SCHEMA.names if columns is None else columns), "_sluice")
        yield pa.RecordBatch.from_pylist(
            kept, pa.schema([one for one in SCHEMA if one.name in names])
        )

    def rows_of(self, shard: Shard, column: str, span: Range) -> Sequence[Mapping[str, Any]]:
        assert column == "id"
        rows = [row for id_, (_, row) in self.held.items() if id_ in range(*span)]
        return [one for one in rows if one["_sluice"]["shard"] == shard.name]


def expect(kind: str, severity: Any = "critical", **kwargs: Any) -> ExpectationSettings:
    return ExpectationSettings(kind, kwargs, severity)


def look(probe: Expectations, world: FakeWorld) -> Ruling | str:
    """The ruling of a round, or why there is none."""
    reading = probe.measure(TABLE, world)
    if isinstance(reading, NotYet | Undecided):
        return reading.why
    return probe.judge(reading, [])


def judge_suite(probe: Expectations, world: FakeWorld) -> Ruling:
    found = look(probe, world)
    assert isinstance(found, Ruling), found
    return found


def judge_emails(
    rows: pa.Table, table: Table, suite: Sequence[ExpectationSettings]
) -> tuple[ExpectationResult, ...]:
    """As `evaluate_rows`, where each expectation is that a row has an email."""
    bad = [name_row(table, row) for row in rows.to_pylist() if row["email"] is None]
    found = ExpectationResult(
        "", not bad, unexpected=len(bad), keys=tuple(bad[:MOST_KEYS]), rows=rows.num_rows
    )
    return (found,) * len(suite)


def evaluate_by_fakes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Use `judge_emails`, and import no Great Expectations; return how many rows each call took."""
    taken = list[int]()

    def evaluate(rows: pa.Table, *said: Any) -> tuple[ExpectationResult, ...]:
        taken.append(rows.num_rows)
        return judge_emails(rows, *said)

    monkeypatch.setattr(probe_module, "evaluate_rows", evaluate)
    monkeypatch.setattr(probe_module, "import_expectations", lambda _: None)
    monkeypatch.setattr(probe_module, "list_read_columns", lambda *_: None)
    monkeypatch.setattr(probe_module, "split_expectations", lambda suite: (tuple(suite), ()))
    monkeypatch.setattr(probe_module, "is_share", lambda one: "mostly" in one.kwargs)
    return taken


@pytest.fixture
def world() -> RowsWorld:
    made = RowsWorld()
    made.merge(1, email="top-secret-1", paid=Decimal("1.50"))
    made.merge(2, email=None, paid=Decimal("9.99"))
    return made


@THOROUGH
def test_an_empty_mirror_has_its_columns() -> None:
    suite = (expect(COUNT, min_value=0), expect(NOT_NULL, column="email"))

    ruling = judge_suite(Expectations(suite=suite), RowsWorld())

    assert (ruling.outcome, ruling.reason) == (Outcome.PASS, "2 expectations are met by all 0 rows")


@pytest.mark.parametrize(
    ("suite", "outcome", "says"),
    [
        pytest.param(
            [expect(NOT_NULL, column="id")],
            Outcome.PASS,
            "1 expectation is met by all 2 rows",
            id="met",
        ),
        pytest.param(
            [expect(NOT_NULL, column="email"), expect(NOT_NULL, column="id")],
            Outcome.FAIL,
            f"{NOT_NULL}(email): 1 of 2 rows; looked at all 2 rows",
            id="not met",
        ),
        pytest.param(
            [expect(BETWEEN, column="paid", max_value=5)],
            Outcome.FAIL,
            f"{BETWEEN}(paid): 1 of 2 rows",
            id="decimals compare",
        ),
        pytest.param(
            [expect(BETWEEN, column="at", min_value="2026-01-02T00:00:00")],
            Outcome.FAIL,
            f"{BETWEEN}(at): 2 of 2 rows",
            id="times compare in UTC",
        ),
        pytest.param(
            [expect(NOT_NULL, column="email", mostly=0.5)], Outcome.PASS, "met by", id="mostly"
        ),
        pytest.param(
            [expect(NOT_NULL, column="email", row_condition="id < 2", condition_parser="pandas")],
            Outcome.PASS,
            "met by",
            id="row condition",
        ),
        pytest.param(
            [expect(NOT_NULL, "info", column="email")],
            Outcome.PASS,
            f"0 of 1 expectations are met by all 2 rows; not met, and only mentioned: {NOT_NULL}",
            id="info",
        ),
        pytest.param(
            [expect(NOT_NULL, column="gone")],
            Outcome.UNKNOWN,
            "(gone): it names an unknown",
            id="no column",
        ),
        pytest.param(
            [expect("expect_magic", column="id")], Outcome.UNKNOWN, "no expectation", id="none"
        ),
        pytest.param([expect(NOT_NULL, colum="id")], Outcome.UNKNOWN, "is unknown", id="misspelt"),
    ],
)
@THOROUGH
def test_a_suite_is_evaluated_on_the_whole_at_first(
    world: RowsWorld, suite: list[ExpectationSettings], outcome: Outcome, says: str
) -> None:
    ruling = judge_suite(Expectations(tuple(suite)), world)

    assert (ruling.outcome, says in ruling.reason) == (outcome, True), ruling


@THOROUGH
def test_each_changed_row_is_looked_at_once_and_no_other(world: RowsWorld) -> None:
    probe = Expectations((expect(NOT_NULL, column="id"),))
    judge_suite(probe, world)
    assert look(probe, world) == "nothing was merged since the last look"
    for id_ in range(10, 40):
        world.merge(id_)

    assert "by 30 rows changed after batch 2" in judge_suite(probe, world).reason
    world.merge(3)
    assert "by 1 row changed after batch 32" in judge_suite(probe, world).reason


@THOROUGH
def test_a_bad_row_fails_until_it_is_good_whatever_changes_meanwhile(world: RowsWorld) -> None:
    probe = Expectations((expect(NOT_NULL, column="email"),))
    world.merge(2)
    assert judge_suite(probe, world).outcome is Outcome.PASS
    world.merge(7, email=None)
    world.merge(60, email=None)
    bad = judge_suite(probe, world)
    world.merge(8)
    still = judge_suite(probe, world)
    world.merge(7)
    world.merge(60)

    assert (bad.outcome, bad.keys, bad.more) == (
        Outcome.FAIL,
        (f"{ONE}:7", f"{TWO}:60"),
        0,
    )
    assert (still.outcome, still.keys) == (Outcome.FAIL, bad.keys)
    assert judge_suite(probe, world).outcome is Outcome.PASS


@pytest.mark.parametrize("id_", [7, 60], ids=["a row", "a row of another shard"])
def test_a_finding_that_a_killed_process_has_not_told_is_found_again(
    world: RowsWorld, monkeypatch: pytest.MonkeyPatch, id_: int
) -> None:
    evaluate_by_fakes(monkeypatch)
    monkeypatch.setattr(probe_module, "_looked", {})
    probe = Expectations((expect(NOT_NULL, column="email"),))
    world.merge(2)
    assert judge_suite(probe, world).outcome is Outcome.PASS
    world.merge(id_, email=None)
    probe.measure(TABLE, world)
    assert look(probe, world) == "nothing was merged since the last look"

    probe_module._looked.clear()

    assert judge_suite(probe, world).outcome is Outcome.FAIL
    assert look(probe, world) == "nothing was merged since the last look"


def refuse_memory(monkeypatch: pytest.MonkeyPatch, check: str) -> None:
    """The stored memory of *check* is unreadable until it is replaced."""
    recall, remember, unreadable = RowsWorld.recall, RowsWorld.remember, {check}

    def refuse(
        own: RowsWorld, table: Table, check: str, *, lasting: bool = False
    ) -> Mapping[str, Any] | None:
        if check in unreadable:
            raise ProofError(f"the stored memory of check {check} is unreadable")
        return recall(own, table, check, lasting=lasting)

    def replace_it(own: RowsWorld, table: Table, check: str, memory: Mapping[str, Any]) -> None:
        unreadable.discard(check)
        remember(own, table, check, memory)

    monkeypatch.setattr(RowsWorld, "recall", refuse)
    monkeypatch.setattr(RowsWorld, "remember", replace_it)


@THOROUGH
@pytest.mark.parametrize(
    "change",
    [None, {"whole": 7}, {"whole": {}}, {"batch": "x"}, {"since": "x"}, {"whole_at": "2026-03-02"}],
)
def test_all_is_looked_at_where_what_was_seen_is_unreadable(
    world: RowsWorld, change: Mapping[str, Any] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    probe = Expectations((expect(NOT_NULL, column="email"),))
    judge_suite(probe, world)
    if change is None:
        refuse_memory(monkeypatch, "expectations")
    else:
        world.memory["expectations"] = {**world.memory["expectations"], **change}

    again = judge_suite(probe, world)

    assert (again.outcome, again.keys) == (Outcome.FAIL, (f"{ONE}:2",))
    assert again.reason.endswith("looked at all 2 rows")
    assert look(probe, world) == "nothing was merged since the last look"


@THOROUGH
def test_changes_are_looked_at_where_the_result_of_the_page_is_unreadable(
    world: RowsWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    probe = Expectations((expect(NOT_NULL, column="id"),))
    judge_suite(probe, world)
    world.merge(3)
    refuse_memory(monkeypatch, MEMORY)

    assert "by 1 row changed" in judge_suite(probe, world).reason
    assert look(probe, world) == "nothing was merged since the last look"
    assert [one.rows for one in load_results(world.memory[MEMORY])] == [1]


def test_a_finding_that_is_unreadable_ends_with_its_expectations(
    world: RowsWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_memory(monkeypatch, "expectations")

    assert judge_suite(Expectations(), world).reason == "no expectations are set for it"
    assert look(Expectations(), world) == "no expectations are set for it"


NO_NULL = Expectations((expect(NOT_NULL, column="email"),))


def test_a_look_takes_what_changed_since_the_last_one_and_the_rows_that_were_unmet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken, world = evaluate_by_fakes(monkeypatch), RowsWorld()
    world.merge(1)
    judge_suite(NO_NULL, world)
    world.merge(7, email=None)
    world.merge(60, email=None)
    for first in range(100, 500, 100):
        for id_ in range(first, first + 100):
            world.merge(id_)
        found = judge_suite(NO_NULL, world)
    world.merge(7)

    assert (found.keys, taken) == ((f"{ONE}:7", f"{TWO}:60"), [1, 102, 102, 102, 102])
    assert "looked at 100 rows changed after batch 303, and 2 that did not meet" in found.reason
    assert judge_suite(NO_NULL, world).keys == (f"{TWO}:60",)
    world.delete(60)
    world.merge(3)
    ended = judge_suite(NO_NULL, world)
    assert (ended.outcome, taken[-2:]) == (Outcome.PASS, [2, 1])


@pytest.mark.parametrize(
    ("probe", "bad"),
    [
        pytest.param(NO_NULL, 21, id="too many to find by key"),
        pytest.param(
            Expectations((expect(NOT_NULL, column="email", mostly=0.5),)), 1, id="a share of rows"
        ),
    ],
)
def test_all_that_changed_is_taken_where_some_unmet_rows_are_not_found_alone(
    monkeypatch: pytest.MonkeyPatch, probe: Expectations, bad: int
) -> None:
    taken, world = evaluate_by_fakes(monkeypatch), RowsWorld()
    world.merge(1)
    judge_suite(probe, world)
    for id_ in range(100, 100 + bad):
        world.merge(id_, email=None)
    for id_ in (2, 3):
        world.merge(id_)
        found = judge_suite(probe, world)

    assert (taken, found.outcome) == ([1, bad + 1, bad + 2], Outcome.FAIL)


STEPS = st.one_of(
    st.tuples(st.just("merge"), st.integers(0, 60)),
    st.tuples(st.just("spoil"), st.integers(0, 60)),
    st.tuples(st.just("delete"), st.integers(0, 60)),
    st.tuples(st.just("look"), st.just(0)),
)


@given(st.lists(STEPS, max_size=120), st.sampled_from([3, 1000]))
def test_a_check_fails_exactly_while_a_row_that_changed_since_the_whole_is_bad(
    steps: list[tuple[str, int]], most: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        evaluate_by_fakes(patch)
        world, probe = RowsWorld(), replace(NO_NULL, rows=most)
        world.merge(1)
        judge_suite(probe, world)
        for step, id_ in (*steps, ("merge", 2), ("look", 0)):
            if step == "merge":
                world.merge(id_)
            elif step == "spoil":
                world.merge(id_, email=None)
            elif step == "delete":
                world.delete(id_)
            elif isinstance(found := look_with_spark(probe, world), Ruling):
                bad = [row for _, row in world.held.values() if row["email"] is None]
                assert (found.outcome is Outcome.FAIL) == bool(bad)
                assert found.more + len(found.keys) == len(bad)


def look_with_spark(probe: Expectations, world: RowsWorld) -> Ruling | str:
    """As `look`; Spark answers at once."""
    found = look(probe, world)
    if not isinstance(found, str) or "Spark" not in found:
        return found
    asked = world.spark.asked[-1]
    (rows,) = world.mirror(TABLE).rows_after(asked.after)
    results = judge_emails(pa.table(rows), TABLE, asked.expectations)
    world.spark.found = SuiteAnswer(asked.batch, rows.num_rows, results)
    answer = look(probe, world)
    world.spark.found = None
    return answer


@THOROUGH
def test_what_the_whole_lacks_stays_until_another_look_at_the_whole(world: RowsWorld) -> None:
    probe = Expectations((expect(COUNT, min_value=4), expect(NOT_NULL, column="id")))
    first = judge_suite(probe, world)
    world.merge(3)
    world.merge(4)
    between = judge_suite(probe, world)
    world.time += timedelta(hours=1)

    assert (first.outcome, between.outcome) == (Outcome.FAIL, Outcome.FAIL)
    assert COUNT in between.reason
    assert judge_suite(probe, world).outcome is Outcome.PASS


def test_changed_rows_are_looked_at_while_the_look_at_the_whole_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    evaluate_by_fakes(monkeypatch)
    world, probe = RowsWorld(), replace(NO_NULL, rows=2)
    world.merge(1)
    judge_suite(probe, world)
    world.time += timedelta(days=1)
    world.spark.failure = "Spark did not evaluate shop.orders"
    for id_ in (2, 3):
        world.merge(id_)
    with pytest.raises(ProofError, match=world.spark.failure):
        look(probe, world)
    world.merge(2, email=None)
    bad = judge_suite(probe, world)
    unchanged = look(probe, world)
    world.merge(2)
    with pytest.raises(ProofError, match=world.spark.failure):
        look(probe, world)
    world.spark.failure = ""
    whole = look_with_spark(probe, world)

    assert (bad.outcome, bad.keys) == (Outcome.FAIL, (f"{ONE}:2",))
    assert unchanged == "nothing was merged since the last look"
    assert isinstance(whole, Ruling)
    assert (whole.outcome, "all 3 rows" in whole.reason) == (Outcome.PASS, True)


def wait_for_whole(world: RowsWorld, probe: Expectations) -> SuiteLook:
    """Rows 1 to 3 were good; a day later Spark evaluates them."""
    world.merge(1)
    judge_suite(probe, world)
    world.time += timedelta(days=1)
    world.merge(2)
    world.merge(3)
    assert look(probe, world) == "Spark evaluates it: there are more than 2 rows"
    return world.spark.asked[-1]


def answer_met(asked: SuiteLook, rows: int) -> SuiteAnswer:
    return SuiteAnswer(asked.batch, rows, (ExpectationResult("", True, rows=rows),))


def test_changed_rows_are_looked_at_while_spark_evaluates_the_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    evaluate_by_fakes(monkeypatch)
    world, probe = RowsWorld(), replace(NO_NULL, rows=2)
    asked = wait_for_whole(world, probe)
    world.merge(2, email=None)
    bad = judge_suite(probe, world)
    unchanged = look(probe, world)
    world.spark.found = answer_met(asked, 3)
    late = look(probe, world)
    world.spark.found = None
    again = judge_suite(probe, world)
    world.merge(2)

    assert (bad.outcome, bad.keys) == (Outcome.FAIL, (f"{ONE}:2",))
    assert unchanged == "nothing was merged since the last look"
    assert late == "rows that changed after the look at the whole are evaluated next"
    assert (again.outcome, again.keys) == (Outcome.FAIL, (f"{ONE}:2",))
    assert "looked at 1 row changed after batch 3" in again.reason
    assert judge_suite(probe, world).outcome is Outcome.PASS
    assert world.spark.asked == [asked]


def test_good_rows_that_changed_while_spark_evaluates_the_whole_are_looked_at_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken, (world, probe) = evaluate_by_fakes(monkeypatch), (RowsWorld(), replace(NO_NULL, rows=2))
    asked = wait_for_whole(world, probe)
    world.merge(4)
    good = look(probe, world)
    world.spark.found = answer_met(asked, 3)
    whole = judge_suite(probe, world)
    world.spark.found = None
    after = judge_suite(probe, world)

    assert (good, taken) == ("Spark evaluates it", [1, 2, 1, 1])
    assert [one.outcome for one in (whole, after)] == [Outcome.PASS, Outcome.PASS]
    assert "all 3 rows" in whole.reason
    assert "1 row changed after batch 3" in after.reason


def test_a_changed_row_that_cannot_be_evaluated_is_unknown_while_spark_evaluates_the_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    evaluate_by_fakes(monkeypatch)
    world, probe = RowsWorld(), replace(NO_NULL, rows=2)
    wait_for_whole(world, probe)
    broken = ExpectationResult("not evaluated", None)
    monkeypatch.setattr(probe_module, "evaluate_rows", lambda *_: (broken,))
    world.merge(2)

    assert judge_suite(probe, world).outcome is Outcome.UNKNOWN


@pytest.mark.parametrize("failure", ["", "Spark did not evaluate shop.orders"])
def test_changes_that_cannot_be_read_hide_nothing_about_the_whole(
    monkeypatch: pytest.MonkeyPatch, failure: str
) -> None:
    evaluate_by_fakes(monkeypatch)
    world, probe = RowsWorld(), replace(NO_NULL, rows=2)
    wait_for_whole(world, probe)
    world.merge(2)
    world.spark.failure = failure

    def refuse(*_: Any) -> None:
        raise ProofError("a file of the mirror is unreadable")

    monkeypatch.setattr(RowsMirror, "rows_after", refuse)

    if failure:
        with pytest.raises(ProofError, match=failure):
            look(probe, world)
    else:
        assert look(probe, world) == "Spark evaluates it"


def test_what_the_whole_did_not_meet_stays_while_the_next_look_at_it_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    evaluate_by_fakes(monkeypatch)
    world, probe = RowsWorld(), replace(NO_NULL, rows=2)
    world.merge(1, email=None)
    for id_ in (2, 3):
        world.merge(id_)
    first = look_with_spark(probe, world)
    world.time += timedelta(hours=1)
    world.spark.failure = "Spark did not evaluate shop.orders"
    unchanged = look(probe, world)
    world.merge(3)
    changed = judge_suite(probe, world)

    assert isinstance(first, Ruling)
    assert (first.outcome, first.keys) == (Outcome.FAIL, (f"{ONE}:1",))
    assert unchanged == "nothing was merged since the last look"
    assert (changed.outcome, changed.keys) == (Outcome.FAIL, (f"{ONE}:1",))


def test_the_first_look_at_the_whole_waits_for_spark_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken, (world, probe) = evaluate_by_fakes(monkeypatch), (RowsWorld(), replace(NO_NULL, rows=1))
    world.merge(1)
    world.merge(2)
    asked = look(probe, world)
    world.merge(3, email=None)
    waits = look(probe, world)
    world.spark.failure = "Spark did not evaluate shop.orders"

    with pytest.raises(ProofError, match=world.spark.failure):
        look(probe, world)
    assert (asked, waits) == (
        "Spark evaluates it: there are more than 1 rows",
        "Spark evaluates it",
    )
    assert taken == []


@THOROUGH
def test_duplicates_are_found_in_the_whole_only(world: RowsWorld) -> None:
    probe = Expectations((expect(UNIQUE, column="email"),))
    assert judge_suite(probe, world).outcome is Outcome.PASS
    world.merge(3, email="top-secret-1")
    assert look(probe, world) == "its expectations are about the whole table"
    world.time += timedelta(days=1)

    assert judge_suite(probe, world).keys == (f"{ONE}:1", f"{ONE}:3")


@pytest.mark.parametrize("what", ["suite", "rewritten", "rolled back"])
@THOROUGH
def test_what_no_batch_shows_is_looked_at_as_a_whole(world: RowsWorld, what: str) -> None:
    probe = Expectations((expect(NOT_NULL, column="id"),))
    judge_suite(probe, world)
    world.merge(3)
    if what == "suite":
        probe = Expectations((expect(NOT_NULL, column="paid"),))
    elif what == "rewritten":
        world.rewritten = "renamed"
    else:
        world.newest = 1

    assert "all 3 rows" in judge_suite(probe, world).reason


@THOROUGH
def test_a_look_names_twenty_rows_and_counts_the_others(world: RowsWorld) -> None:
    for id_ in range(10, 40):
        world.merge(id_, email=None)

    probe = Expectations((expect(NOT_NULL, column="email"),))
    reading = probe.measure(TABLE, world)

    assert isinstance(reading, Content)
    found = probe.judge(reading, [])
    assert (len(found.keys), found.more) == (20, 11)
    assert [len(one.keys) for one in reading.results] == [20]


@THOROUGH
def test_no_value_of_a_row_leaves_the_probe(world: RowsWorld) -> None:
    probe = Expectations((expect(IN_SET, column="email", value_set=["x"]),))

    reading = probe.measure(TABLE, world)

    assert isinstance(reading, Content)
    assert "secret" not in str(reading)
    assert "secret" not in str(probe.judge(reading, []))
    assert "secret" not in str(world.memory)
    assert reading.value == 1.0


@THOROUGH
def test_the_newest_result_of_each_look_is_kept_for_people(world: RowsWorld) -> None:
    counted = expect(COUNT, min_value=3)
    lowest = expect("expect_column_min_to_be_between", column="id", min_value=0)
    probe = Expectations((expect(NOT_NULL, column="email"), counted, lowest))
    look(probe, world)
    world.merge(3)
    look(probe, world)

    changes, whole = load_results(world.memory[MEMORY])

    assert (whole.after, whole.rows, whole.batch) == (None, 2, 2)
    email, count, low = whole.shown
    assert (email.met, email.unexpected, email.rows) == (False, 1, 2)
    assert email.keys == ("shop/shop_00.orders:2",)
    assert (count.met, count.observed, count.arguments) == (False, "2", '{"min_value": 3}')
    assert (low.met, low.observed) == (True, ""), "a row has the lowest value"
    assert (changes.rows, [one.type for one in changes.shown]) == (1, [NOT_NULL])


SUMMED = [expect(f"expect_column_{one}_to_be_between", column="pay") for one in ("mean", "sum")]


@THOROUGH
@pytest.mark.parametrize(
    ("pay", "more", "shown"),
    [
        pytest.param([1.0] * 10, {}, ["1", "10"], id="many values"),
        pytest.param([123456.0], {}, ["", ""], id="one row"),
        pytest.param([123456.0] + [None] * 20, {}, ["", ""], id="one value"),
        pytest.param([123456.0] + [math.nan] * 20, {}, ["", ""], id="one number"),
        pytest.param(
            [123456.0] + [1.0] * 20,
            {"row_condition": "id == 0", "condition_parser": "pandas"},
            ["", ""],
            id="rows of a condition",
        ),
    ],
)
def test_the_value_of_a_single_row_is_never_observed(
    pay: list[float | None], more: dict[str, str], shown: list[str]
) -> None:
    rows = pa.table({"id": [*range(len(pay))], "pay": pa.array(pay, pa.float64())})
    suite = [replace(one, kwargs={**one.kwargs, "min_value": 0, **more}) for one in SUMMED]
    count = expect(COUNT, min_value=1, **more)

    *summed, counted = evaluate_rows(rows, TABLE, [*suite, count])

    assert [one.observed for one in summed] == shown
    assert all(one.met is not None for one in (*summed, counted))
    assert counted.observed == ("" if more else str(len(pay)))


@THOROUGH
def test_more_rows_than_fit_are_evaluated_by_spark_and_no_sample(world: RowsWorld) -> None:
    probe = Expectations((expect(NOT_NULL, column="id"), expect(COUNT, min_value=1)), rows=1)

    assert look(probe, world) == "Spark evaluates it: there are more than 1 rows"
    world.merge(3)
    assert look(probe, world) == "Spark evaluates it"
    (asked,) = world.spark.asked
    unmet = ExpectationResult(f"{NOT_NULL}(id): 1 of 2 rows", False, unexpected=1, keys=("k",))
    world.spark.found = SuiteAnswer(asked.batch, 2, (unmet, ExpectationResult(COUNT, True)))
    found = judge_suite(probe, world)

    assert (asked.after, asked.batch, len(asked.expectations)) == (None, 2, 2)
    assert (found.outcome, found.keys) == (Outcome.FAIL, ("k",))
    assert "looked at all 2 rows" in found.reason
    world.merge(4)
    assert look(probe, world) == "Spark evaluates it: there are more than 1 rows"
    assert (world.spark.asked[1].after, world.spark.asked[1].expectations) == (2, (probe.suite[0],))


@THOROUGH
def test_a_query_is_evaluated_by_spark_of_however_few_rows(world: RowsWorld) -> None:
    query = {"unexpected_rows_query": "SELECT * FROM {batch} WHERE id > 9"}
    probe = Expectations((expect(NOT_NULL, column="id"), expect(QUERY, **query)))

    found = look(probe, world)

    assert list(probe.mistakes()) == []
    assert found == f"Spark evaluates it: {QUERY} has a query"
    assert [one.expectations for one in world.spark.asked] == [probe.suite]


def test_a_query_that_reads_no_mirror_is_a_mistake() -> None:
    asked = expect(QUERY, unexpected_rows_query="SELECT * FROM orders WHERE id > 9")

    ((_, fault),) = find_mistakes([asked])

    assert fault == "kwargs.unexpected_rows_query: reads no mirror; write FROM {batch}"


def test_a_pattern_that_only_spark_reads_differently_is_evaluated_in_memory() -> None:
    asked = expect("expect_column_values_to_match_regex", column="v", regex=r"\bcaf\b")

    (found,) = evaluate_rows(pa.table({"id": [1], "v": ["a caf"]}), TABLE, [asked])

    assert found.met is True
    assert len(list(find_mistakes([asked]))) == 1


@dataclass
class WideMirror(RowsMirror):
    """A mirror whose ``count`` rows are views of the same text of ``size`` bytes, or of 6."""

    count: int = 3
    size: int = 6
    buffer: int = 6

    def rows(self) -> int:
        return self.count

    def rows_after(
        self, batch: int | None, columns: Collection[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        data = b"a@b.com" * (self.buffer // 7 + 1)
        view = struct.pack("<i4sii", max(self.size, 13), data[:4], 0, 0)
        buffers = [None, pa.py_buffer(view * self.count), pa.py_buffer(data)]
        email = pa.Array.from_buffers(pa.string_view(), self.count, buffers)
        ids = pa.array(range(self.count), pa.int64())
        own = pa.array([None] * self.count, SCHEMA.field("_sluice").type)
        yield pa.record_batch({"id": ids, "email": email, "_sluice": own})


@pytest.mark.parametrize(
    ("count", "size", "by_spark"),
    [
        pytest.param(3, 20, False, id="few texts of a file with many"),
        pytest.param(62, 2**20, False, id="below 64 MiB"),
        pytest.param(65, 2**20, True, id="above 64 MiB"),
        pytest.param(8192, 2**26, True, id="above what one column of Arrow holds"),
    ],
)
def test_rows_with_more_bytes_than_fit_are_evaluated_by_spark(
    monkeypatch: pytest.MonkeyPatch, count: int, size: int, *, by_spark: bool
) -> None:
    taken, world = evaluate_by_fakes(monkeypatch), RowsWorld()
    wide = WideMirror({}, 1, rewritten="never", count=count, size=size, buffer=2**26)
    monkeypatch.setattr(world, "mirror", lambda _: wide)

    found = look(NO_NULL, world)

    if by_spark:
        assert found == "Spark evaluates it: the rows have more than 64 MiB"
    assert (len(world.spark.asked), taken) == ((1, []) if by_spark else (0, [count]))


def test_an_expectation_that_two_looks_do_not_meet_counts_once() -> None:
    def unmet(column: str, rows: int, severity: Any = "critical") -> ExpectationResult:
        text = f"{NOT_NULL}({column}): {rows} of 50 rows"
        return ExpectationResult(text, False, severity, rows, ("k",), 50)

    def judge(*looks: tuple[ExpectationResult, ...]) -> tuple[str, float]:
        made = tuple(Look(n or None, 50, results) for n, results in enumerate(looks))
        reading = Content(made)
        return NO_NULL.judge(reading, []).reason.partition("; ")[0], reading.value

    email, paid, at = unmet("email", 41), unmet("paid", 2), unmet("at", 3, "info")
    text = f"not met: {email.text}"
    assert judge((email,), (unmet("email", 7),)) == (text, 1)
    assert judge((email, at), (unmet("email", 7), unmet("at", 4, "info"))) == (text, 2)
    assert judge((email,), (unmet("email", 7), paid)) == (f"{text} and 1 more", 2)
    assert judge((email, unmet("email", 9)), (email,)) == (f"{text} and 1 more", 2)
    assert judge((email,), (unmet("email", 41, "warning"),)) == (f"{text} and 1 more", 2)


def test_without_a_suite_or_a_whole_snapshot_there_is_nothing_to_rule_on() -> None:
    first = RowsWorld(loading=True)

    assert look(Expectations(), RowsWorld()) == "no expectations are set for it"
    assert look(Expectations((expect(NOT_NULL),)), first) == "its first snapshot is not merged yet"


@THOROUGH
def test_an_empty_mirror_meets_what_is_about_rows_and_not_a_count() -> None:
    rows, count = expect(NOT_NULL, column="id"), expect(COUNT, min_value=1)

    assert look(Expectations((rows,)), RowsWorld()) == "the mirror is empty"
    assert judge_suite(Expectations((rows, count)), RowsWorld()).outcome is Outcome.FAIL


EXPORTED: Mapping[str, Any] = {
    "name": "orders",
    "id": None,
    "expectations": [
        {
            "type": NOT_NULL,
            "kwargs": {
                "column": "email",
                "row_condition": {"pass_through_filter": "id > 1", "type": "pass_through"},
                "condition_parser": "pandas",
            },
            "meta": {},
            "severity": "warning",
        }
    ],
    "meta": {"great_expectations_version": "1.24.1"},
    "notes": None,
}


NUMBERED: Mapping[str, Any] = {
    "expectations": [{"type": BETWEEN, "kwargs": {"column": "id", "min_value": 1}}]
}
IDLE = "nothing was merged since the last look"


def with_file(tmp_path: Path, suite: Any, pattern: str = "shop.*") -> Expectations:
    (tmp_path / "orders.json").write_text(json.dumps(suite), encoding="utf-8")
    return Expectations(suites={pattern: "orders.json"}).located_from(tmp_path)


@THOROUGH
def test_an_exported_suite_is_read_as_it_is(tmp_path: Path, world: RowsWorld) -> None:
    import great_expectations as gx  # noqa: PLC0415  - takes seconds
    import great_expectations.expectations as gxe  # noqa: PLC0415

    made = gxe.ExpectColumnValuesToNotBeNull(
        column="email", row_condition="id > 1", condition_parser="pandas", severity="warning"
    )
    suite = gx.ExpectationSuite(name="orders", expectations=[made])
    assert suite.to_json_dict() == EXPORTED

    found = judge_suite(with_file(tmp_path, EXPORTED), world)

    assert (found.outcome, found.keys) == (Outcome.FAIL, (f"{ONE}:2",))
    assert "1 of 1 rows" in found.reason
    assert list(with_file(tmp_path, EXPORTED).mistakes()) == []


@THOROUGH
def test_the_log_of_great_expectations_has_no_line_for_each_look(
    world: RowsWorld, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO"):
        judge_suite(Expectations((expect(NOT_NULL, column="id"),)), world)

    told = [one for one in caplog.records if one.name.startswith("great_expectations")]
    assert [one.getMessage() for one in told if one.levelname == "INFO"] == []


def test_an_idle_table_reads_and_digests_its_suite_once_and_again_once_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = list[str]()
    evaluate_by_fakes(monkeypatch)
    read, digest = Path.read_text, hashlib.sha256

    def count_reads(path: Path, *said: Any, **more: Any) -> str:
        done.append("read")
        return read(path, *said, **more)

    def count_digests(data: bytes) -> Any:
        done.append("digested")
        return digest(data)

    probe, world = with_file(tmp_path, NUMBERED), RowsWorld()
    world.merge(1)
    judge_suite(probe, world)
    monkeypatch.setattr(Path, "read_text", count_reads)
    monkeypatch.setattr(hashlib, "sha256", count_digests)

    assert [look(probe, world) for _ in range(3)] == [IDLE] * 3
    assert done == []

    (tmp_path / "orders.json").write_text(json.dumps(NUMBERED).replace("1", "1.0"))

    assert "the only row" in judge_suite(probe, world).reason
    assert look(probe, world) == IDLE
    assert done == ["read", "digested"]


def test_a_suite_that_cannot_be_read_any_more_is_broken_and_the_same_is_found_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluate_by_fakes(monkeypatch)
    probe, world = with_file(tmp_path, NUMBERED), RowsWorld()
    world.merge(1)
    judge_suite(probe, world)
    (tmp_path / "orders.json").rename(tmp_path / "away.json")

    assert "orders.json: cannot be read: No such file" in str(look(probe, world))
    (tmp_path / "away.json").rename(tmp_path / "orders.json")
    assert look(probe, world) == IDLE


def test_a_file_counts_for_the_tables_that_its_pattern_names(tmp_path: Path) -> None:
    probe = with_file(tmp_path, EXPORTED, "other.*")

    assert look(probe, RowsWorld()) == "no expectations are set for it"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param(None, "orders.json: cannot be read: No such file", id="absent"),
        pytest.param("{'a'", "orders.json: line 1, column 2: is not JSON", id="not JSON"),
        pytest.param("[]", "orders.json: expectations: must be a list", id="no suite"),
        pytest.param(
            '{"expectations": [{"kwargs": {}}]}', "expectations[0]: must have `type`", id="no type"
        ),
        pytest.param(
            '{"expectations": [{"expectation_type": "x"}]}', "Great Expectations 0.x", id="old"
        ),
        pytest.param(
            '{"expectations": [{"type": "x", "severity": "high"}]}',
            "expectations[0].severity: must be critical",
            id="severity",
        ),
        pytest.param(
            '{"expectations": [{"type": "expect_column_values_to_match_regex",'
            ' "kwargs": {"column": "id", "regex": "\\ud83d"}}]}',
            r"expectations[0]: contains \ud83d, half of a surrogate pair; write the whole",
            id="half of a surrogate pair",
        ),
    ],
)
def test_a_file_that_is_no_suite_is_refused(tmp_path: Path, text: str | None, says: str) -> None:
    if text is not None:
        (tmp_path / "orders.json").write_text(text, encoding="utf-8")

    with pytest.raises(ConfigError, match=r"suites: shop\.orders: ") as refused:
        Expectations(suites={"shop.orders": "orders.json"}).located_from(tmp_path)

    assert says in str(refused.value)


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("~nosuchuser/x.json", "the home directory of that user is not known; write the full"),
        ("x\0.json", "cannot be read: embedded null byte; correct the path"),
        ("deep.json", "is nested too deeply for a suite; write `json.dumps("),
    ],
)
def test_a_path_or_a_depth_that_no_suite_has_is_refused(
    tmp_path: Path, path: str, says: str
) -> None:
    (tmp_path / "deep.json").write_text("[" * 100_000, encoding="utf-8")

    with pytest.raises(ConfigError, match=r"suites: shop\.orders: ") as refused:
        Expectations(suites={"shop.orders": path}).located_from(tmp_path)

    assert says in str(refused.value)


def test_a_suite_is_a_file_of_at_most_16_mib(tmp_path: Path) -> None:
    exported = json.dumps(EXPORTED)
    os.mkfifo(tmp_path / "pipe.json")
    for name, size in (("most.json", 16 << 20), ("large.json", (16 << 20) + 1)):
        (tmp_path / name).write_text(exported + " " * (size - len(exported)), encoding="utf-8")

    assert read_suite(str(tmp_path / "most.json"))
    for path, says in (
        ("/dev/zero", "is a pipe or a device; name a file"),
        (str(tmp_path / "pipe.json"), "is a pipe or a device; name a file"),
        (str(tmp_path / "large.json"), "is above 16 MiB; divide it into smaller suites"),
    ):
        with pytest.raises(ConfigError, match=f"{path}: {says}"):
            read_suite(path)


def quantiles(asked: Sequence[float], *ranges: Sequence[float | None]) -> dict[str, Any]:
    return {"quantile_ranges": {"quantiles": asked, "value_ranges": ranges}}


@pytest.mark.parametrize(
    ("kind", "least", "most", "is_mistake"),
    [
        (BETWEEN, 5, 1, True),
        (BETWEEN, 1.5, 1, True),
        ("expect_column_value_lengths_to_be_between", 5, 1, True),
        (BETWEEN, 1, 1, False),
        (BETWEEN, 5, None, False),
    ],
)
def test_bounds_that_no_number_is_between_are_a_mistake(
    kind: str, least: float, most: float | None, *, is_mistake: bool
) -> None:
    asked = expect(kind, column="id", min_value=least, max_value=most)

    found = list(find_mistakes([asked]))

    assert found == [(0, "kwargs: min_value is above max_value; correct them")][:is_mistake]


@pytest.mark.parametrize(
    ("kind", "kwargs", "says"),
    [
        (SCHEMA_MATCH, {"json_schema": {"$schema": 5}}, "$['$schema']: 5 is not of type"),
        (SCHEMA_MATCH, {"json_schema": {"$schema": []}}, "$['$schema']: [] is not of type"),
        (NOT_NULL, {"mostly": []}, "kwargs.mostly: must be one value; correct it"),
        (IN_SET, {"value_set": {"a": 1}}, "kwargs.value_set: must be a list; correct it"),
        (NOT_NULL, {"row_condition": ""}, "kwargs: its row condition is empty; leave it out"),
        (QUANTILES, {"quantile_ranges": []}, "kwargs.quantile_ranges: must be `{quantiles:"),
        (QUANTILES, quantiles([0.5]), "with a range for each quantile; correct it"),
        (QUANTILES, quantiles([0.5], [2, 1]), "with a range for each quantile; correct it"),
        (QUANTILES, quantiles([5], [1, 2]), "with a range for each quantile; correct it"),
        (DIVERGENCE, {"threshold": 1}, "kwargs.partition_object: is missing, and the column"),
        (
            DIVERGENCE,
            {"partition_object": {}, "threshold": 1},
            "kwargs.partition_object: must have",
        ),
        (MATCH, {}, "kwargs.regex: is empty; name a regular expression"),
        (MATCH, {"regex": 5}, "kwargs.regex: must be a text, and is 5; quote it"),
        (f"{MATCH}_list", {"regex_list": ["a", 5]}, "kwargs.regex_list: must be a text, and is 5;"),
        (BETWEEN, {"min_value": 10**400}, f"do not fit {BETWEEN}: int too large to convert to"),
        (NOT_NULL, {"mostly": 10**400}, f"do not fit {NOT_NULL}: int too large to convert to"),
    ],
)
def test_an_argument_that_nothing_reads_is_a_mistake_and_unknown_beside_other_results(
    kind: str, kwargs: dict[str, Any], says: str
) -> None:
    suite = [expect(kind, column="doc", **kwargs), expect(NOT_NULL, column="id")]

    (mistake,) = find_mistakes(suite)
    found = evaluate_rows(pa.table({"id": [1], "doc": ["a"]}), TABLE, suite)

    assert mistake[0] == 0
    assert says in mistake[1]
    assert [one.met for one in found] == [None, True]


@pytest.mark.parametrize("pairs", [{"a": 1}, {"ab": 1}, ["ab"], {}])
def test_pairs_are_a_list_of_lists(pairs: Any) -> None:
    columns = {"column_A": "id", "column_B": "id"}
    asked = expect("expect_column_pair_values_to_be_in_set", value_pairs_set=pairs, **columns)

    assert [*find_mistakes([asked])] == [
        (0, "kwargs.value_pairs_set: must be a list of pairs; correct it")
    ]


@pytest.mark.parametrize(
    ("kind", "kwargs"),
    [
        (QUANTILES, quantiles([0.1, 1], [None, 5], [1, 9.5])),
        (DIVERGENCE, {"partition_object": {"values": ["a"], "weights": [1]}, "threshold": 1}),
        (DIVERGENCE, {"partition_object": {"bins": [0, 9], "weights": [1]}, "threshold": 1}),
        (SCHEMA_MATCH, {"json_schema": {"type": "object"}}),
        (IN_SET, {"value_set": []}),
    ],
)
def test_an_argument_of_the_documented_form_is_no_mistake(
    kind: str, kwargs: dict[str, Any]
) -> None:
    assert [*find_mistakes([expect(kind, column="doc", **kwargs)])] == []


def test_spark_says_which_expectation_it_does_not_evaluate() -> None:
    suite = (expect("expect_column_values_to_be_dateutil_parseable", column="at"),)
    ended = threading.Event()
    ended.set()

    answer = evaluate_by_spark(EndlessFrame(ended, ended), SuiteLook(TABLE, 0, 0, None, "", suite))

    assert [one.met for one in answer.results] == [None]
    assert "(at): Spark does not evaluate it; use expect_column_values_to_match_strf" in str(answer)
    assert [*find_mistakes(suite)] == []


def test_a_number_as_a_column_is_the_column_of_that_name() -> None:
    asks = [expect(NOT_NULL, column=number) for number in (5, 6)]

    assert [number for number, _ in find_strange_columns(asks, ["5"])] == [1]


def test_what_asks_for_columns_is_no_mistake_without_them() -> None:
    asks = [
        expect("expect_column_to_exist", column="gone"),
        expect("expect_table_columns_to_match_set", column_set=["gone"]),
        expect(NOT_NULL, column="gone"),
    ]

    assert [number for number, _ in find_strange_columns(asks, ["id"])] == [2]


@THOROUGH
@pytest.mark.parametrize("state", ["`stat` == 1", "stat == 1", {"column": "stat", "parameter": 1}])
def test_a_column_mistyped_in_a_row_condition_is_named(state: Any) -> None:
    asked = expect(NOT_NULL, column="id", row_condition=state, condition_parser="pandas")

    (found,) = find_strange_columns([asked], ["id", "state"])
    unmet = list(find_unmet(pa.table({"id": [1], "state": [2]}), "shop.orders", [asked]))

    what = "has no column 'stat', which row_condition names; the nearest is state; correct it"
    assert found == (0, what)
    assert unmet == [
        (f"{NOT_NULL}(id): its row_condition names an unknown column; correct it", None)
    ]


def test_a_finding_ends_with_its_expectations(world: RowsWorld, tmp_path: Path) -> None:
    world.memory = {"expectations": {"state": "of an earlier suite"}, MEMORY: {"whole": {}}}
    probe = with_file(tmp_path, {"expectations": []})

    ended = judge_suite(probe, world)

    assert (ended.outcome, ended.reason) == (Outcome.PASS, "no expectations are set for it")
    assert load_results(world.memory[MEMORY]) == ()
    assert look(probe, world) == "no expectations are set for it"
    world.memory["expectations"] = {"state": "of an earlier pattern"}
    assert judge_suite(Expectations(suites={"other.*": "x"}), world).outcome is Outcome.PASS


@THOROUGH
def test_a_finding_ends_when_the_mirror_is_empty(world: RowsWorld) -> None:
    probe = Expectations((expect(NOT_NULL, column="email"),))
    assert judge_suite(probe, world).outcome is Outcome.FAIL
    world.held.clear()
    world.rewritten = "truncated"

    ended = judge_suite(probe, world)

    assert (ended.outcome, ended.reason) == (Outcome.PASS, "the mirror is empty")
    assert look(probe, world) == "the mirror is empty"
    world.merge(3, email=None)
    assert judge_suite(probe, world).outcome is Outcome.FAIL


@THOROUGH
def test_a_mistake_in_a_file_is_named_with_its_position(tmp_path: Path) -> None:
    good = EXPORTED["expectations"][0]
    listed = [
        good,
        {"type": "expect_column_values_to_not_be_nul", "kwargs": {}},
        {"type": NOT_NULL, "kwargs": {"colum": "id"}},
        {"type": BETWEEN, "kwargs": {"column": "id", "min_value": {"$PARAMETER": "low"}}},
        {"type": MATCH, "kwargs": {"column": "id", "regex": "(?!a)b"}},
        {"type": f"{MATCH}_list", "kwargs": {"column": "id", "regex_list": []}},
        {
            "type": "expect_column_values_to_match_json_schema",
            "kwargs": {"column": "id", "json_schema": {"items": {"pattern": "(?=a)b"}}},
        },
        {
            "type": "expect_column_values_to_match_json_schema",
            "kwargs": {"column": "id", "json_schema": {"$ref": "http://127.0.0.1/x"}},
        },
        {
            "type": "expect_column_values_to_match_json_schema",
            "kwargs": {"column": "id", "json_schema": {"type": "strng"}},
        },
        {"type": MATCH, "kwargs": {"column": "id", "regex": "^[[:digit:]]+$"}},
        {
            "type": "expect_column_values_to_match_like_pattern",
            "kwargs": {"column": "id", "like_pattern": "a%"},
        },
    ]
    probe = with_file(tmp_path, {**EXPORTED, "expectations": listed})

    found = list(probe.mistakes())

    at = f"suites: shop.*: {tmp_path}/orders.json: expectations"
    assert [one.startswith(f"{at}[{n}].") for n, one in enumerate(found, 1)] == [True] * 10
    assert f"the nearest is {NOT_NULL}" in found[0]
    assert f"do not fit {NOT_NULL}: column is required, colum is unknown" in found[1]
    assert "write its value" in found[2]
    assert "kwargs.regex: RE2 cannot read '(?!a)b'" in found[3]
    assert "regex_list" in found[4]
    assert "kwargs.json_schema: RE2 cannot read '(?=a)b'" in found[5]
    assert "kwargs.json_schema: has a `$ref` to another document" in found[6]
    assert "kwargs.json_schema: has a fault, $.type: 'strng' is not" in found[7]
    assert "kwargs.regex: Java, by which Spark evaluates large tables, reads" in found[8]
    assert "needs an SQL database, which a mirror is not; write a regular" in found[9]
    assert list(probe.column_mistakes("shop.orders", ("id", "e_mail"))) == [
        f"{at}[0].kwargs: shop.orders has no column 'email'; the nearest is e_mail; correct it"
    ]


@THOROUGH
@pytest.mark.parametrize("parser", ["pandas", "spark"])
def test_a_row_condition_runs_no_code(tmp_path: Path, world: RowsWorld, parser: str) -> None:
    made = tmp_path / "made"
    texts = (
        f"@pd.io.common.os.system('touch {made}') == 0",
        f"id > 0 and email.to_csv('{made}') != 5",
    )
    equal = {"type": "comparison", "column": {"name": "email"}, "operator": "=="}
    quoted = ("x\\", "`", f"`' == email or @pd.io.common.os.mkdir('{made}') == 0) #")
    escaped = {"type": "or", "conditions": [equal | {"parameter": one} for one in quoted]}
    asks = [
        expect(NOT_NULL, column="email", row_condition=one, condition_parser=parser)
        for one in (
            *texts,
            {"type": "pass_through", "pass_through_filter": texts[0]},
            escaped,
            equal | {"parameter": "a", "conditions": 5},
        )
    ]
    listed = [{"type": one.type, "kwargs": one.kwargs} for one in asks]
    probe = with_file(tmp_path, {"expectations": listed})

    mistakes = list(probe.mistakes())
    found = judge_suite(probe, world)
    unmet = list(find_unmet(pa.table({"id": [1], "email": ["a"]}), "shop.orders", asks))

    assert [f"[{n}].kwargs: its row condition" in one for n, one in enumerate(mistakes)] == [
        True
    ] * 5
    assert found.outcome is Outcome.UNKNOWN
    assert [places for _, places in unmet] == [None] * 5
    assert not made.exists()


@THOROUGH
def test_what_is_nested_too_deeply_is_unknown_and_says_so() -> None:
    kind = "expect_column_values_to_match_json_schema"
    rows = pa.table({"id": [1, 2], "doc": ["[1]", '{"a":' * 900 + "1" + "}" * 900]})
    schema, condition = list[Any](), dict[str, Any]()
    for _ in range(400):
        schema, condition = [{"allOf": schema}], {"type": "and", "conditions": [condition]}
    deep = expect(kind, column="doc", json_schema=schema[0])
    suite = [
        expect(kind, column="doc", json_schema={"additionalProperties": {"$ref": "#"}}),
        deep,
        expect(NOT_NULL, column="id", row_condition=condition),
    ]

    found = evaluate_rows(rows, TABLE, suite)

    assert [one.met for one in found] == [None] * 3
    assert "a value is nested too deeply" in found[0].text
    assert "nested in more than 100 levels" in dict(find_mistakes(suite))[1]


@THOROUGH
def test_a_value_whose_references_double_at_each_level_is_unknown_and_says_so() -> None:
    rows = pa.table({"id": [1], "doc": ['{"a":' * 25 + "1" + "}" * 25]})
    node = {"properties": {"a": {"$ref": "#/$defs/n"}}}
    schema = {"$ref": "#/$defs/n", "$defs": {"n": {"allOf": [node, node]}}}
    kind = "expect_column_values_to_match_json_schema"

    (found,) = evaluate_rows(rows, TABLE, [expect(kind, column="doc", json_schema=schema)])

    assert found.met is None
    assert "too many `$ref`s of its json_schema; where several parts of an `allOf`" in found.text


def test_a_constant_that_only_python_reads_is_no_json() -> None:
    texts = ["NaN", '{"a": [-Infinity]}', '{"a": "NaN"}']
    asked = expect("expect_column_values_to_be_json_parseable", column="doc")

    (found,) = evaluate_rows(pa.table({"id": [1, 2, 3], "doc": texts}), TABLE, [asked])

    assert (found.met, found.unexpected) == (False, 2)


@pytest.mark.parametrize("text", ["NaN", "Infinity"])
def test_what_is_no_json_is_unknown(text: str) -> None:
    rows = pa.table({"id": [1, 2], "doc": ["1", text]})
    asked = expect(
        "expect_column_values_to_match_json_schema", column="doc", json_schema={"type": "number"}
    )

    (found,) = evaluate_rows(rows, TABLE, [asked])

    assert found.met is None


@pytest.mark.parametrize(
    ("text", "why"),
    [
        pytest.param("[" * 1100 + "]" * 1100, "a value is nested too deeply", id="nested"),
        pytest.param(
            '{"n": ' + "1" * 4301 + "}", "a value has a number of more digits than", id="digits"
        ),
    ],
)
def test_json_that_python_cannot_read_is_unknown_and_says_so(text: str, why: str) -> None:
    rows = pa.table({"id": [1, 2], "doc": ["{}", text]})
    asks = [
        expect("expect_column_values_to_be_json_parseable", column="doc"),
        expect("expect_column_values_to_match_json_schema", column="doc", json_schema={}),
    ]

    found = evaluate_rows(rows, TABLE, asks)

    assert [one.met for one in found] == [None, None]
    assert all(why in one.text for one in found)
    assert [places for _, places in find_unmet(rows, "shop.orders", asks)] == [None, None]


def test_a_number_too_large_for_a_float_hides_no_other_value() -> None:
    rows = pa.table({"id": [1, 2, 3], "doc": ["0.015", "9" * 400 + ".0", "9" * 400]})
    asked = expect(SCHEMA_MATCH, column="doc", json_schema={"multipleOf": 0.01})

    (found,) = evaluate_rows(rows, TABLE, [asked])

    assert (found.met, found.keys) == (False, (f"{ONE}:1", f"{ONE}:2"))


def test_a_text_that_is_no_json_is_named_beside_a_null() -> None:
    rows = pa.table({"id": [1, 2, 3], "doc": ["{", None, '"a"']})
    asked = expect("expect_column_values_to_be_json_parseable", column="doc")

    (found,) = evaluate_rows(rows, TABLE, [asked])

    assert (found.met, found.unexpected, found.keys) == (False, 1, (f"{ONE}:1",))


OWN = """
from great_expectations.execution_engine import PandasExecutionEngine
from great_expectations.expectations.expectation import ColumnMapExpectation
from great_expectations.expectations.metrics import ColumnMapMetricProvider
from great_expectations.expectations.metrics import column_condition_partial


class ColumnValuesHaveAt(ColumnMapMetricProvider):
    condition_metric_name = "column_values.have_at"

    @column_condition_partial(engine=PandasExecutionEngine)
    def _pandas(cls, column, **kwargs):
        return column.str.contains("@")


class ExpectColumnValuesToHaveAt(ColumnMapExpectation):
    map_metric = "column_values.have_at"


class ExpectColumnValuesToMostlyHaveAt(ColumnMapExpectation):
    map_metric = "column_values.have_at"
    mostly: float = 0.9
"""


@THOROUGH
def test_expectations_of_the_user_come_from_a_module(
    tmp_path: Path, world: RowsWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "our_expectations.py").write_text(OWN, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    probe = Expectations((expect("expect_column_values_to_have_at", column="email"),))
    mine = replace(probe, modules=("our_expectations",))

    assert list(mine.mistakes()) == []
    assert judge_suite(mine, world).keys == (f"{ONE}:1",)
    shares = expect("expect_column_values_to_mostly_have_at", column="email")
    assert [is_share(one) for one in (shares, *mine.suite)] == [True, False]
    held = Held((shares, *mine.suite), {}, mine.modules)
    assert "suite[0].kwargs.mostly: holds no row" in next(held.share_doubts())
    assert list_read_columns(mine.suite, ("id",)) is None
    absent = replace(probe, modules=("no_such_module",))
    assert next(iter(absent.mistakes())).startswith("modules: no_such_module: its import fails")
    assert "no_such_module" in str(look(absent, world))


EMAIL_OF_NEW = expect(
    NOT_NULL, column="email", row_condition='at > "2026-01-01"', condition_parser="pandas"
)
SAME_SUM = expect("expect_multicolumn_sum_to_equal", column_list=["a", "b"], sum_total=1)


@THOROUGH
@pytest.mark.parametrize(
    ("suite", "columns"),
    [
        pytest.param((expect(NOT_NULL, column="email"),), {"email"}, id="one"),
        pytest.param((EMAIL_OF_NEW, SAME_SUM), {"email", "at", "a", "b"}, id="several"),
        pytest.param((expect(UNIQUE, column="email"),), {"email"}, id="unique"),
        pytest.param(
            (expect("expect_column_mean_to_be_between", column="paid"),), {"paid"}, id="mean"
        ),
        pytest.param((expect(COUNT, min_value=1),), None, id="whole table"),
        pytest.param((EMAIL_OF_NEW, expect(COUNT, min_value=1)), None, id="also whole table"),
        pytest.param((expect("expect_column_to_exist", column="a"),), None, id="names of columns"),
        pytest.param((expect("expect_column_values_to_be_ours", column="a"),), None, id="unknown"),
        pytest.param((expect(NOT_NULL, column="a", result_format="SUMMARY"),), None, id="a format"),
    ],
)
def test_a_look_reads_the_columns_that_the_suite_names_and_the_key(
    suite: tuple[ExpectationSettings, ...], columns: set[str] | None
) -> None:
    expected = None if columns is None else {"id", *columns}

    assert list_read_columns(suite, ("id",)) == expected


@THOROUGH
@pytest.mark.filterwarnings("ignore:All-NaN:RuntimeWarning")
def test_an_expectation_is_met_alike_on_all_columns_and_on_those_that_are_read() -> None:
    table = Table("shop.orders", (ONE,), ("id",), "id")
    suite = [case.settings for case in suite_cases.CASES]
    columns = [list_read_columns([one], table.key) for one in suite]

    fewer = [
        evaluate_rows(
            suite_cases.TABLE.select(sorted(own & {*suite_cases.SCHEMA.names})), table, [one]
        )
        for one, own in zip(suite, columns, strict=True)
        if own is not None
    ]

    known = [one for one, own in zip(suite, columns, strict=True) if own is not None]
    assert [one for (one,) in fewer] == list(evaluate_rows(suite_cases.TABLE, table, known))
    assert len(known) > len(suite) / 2


WAITING = """
import threading

from great_expectations.execution_engine import PandasExecutionEngine
from great_expectations.expectations.expectation import ColumnMapExpectation
from great_expectations.expectations.metrics import ColumnMapMetricProvider
from great_expectations.expectations.metrics import column_condition_partial

BEGUN, ENDED = threading.Event(), threading.Event()


class ColumnValuesWait(ColumnMapMetricProvider):
    condition_metric_name = "column_values.wait"

    @column_condition_partial(engine=PandasExecutionEngine)
    def _pandas(cls, column, **kwargs):
        BEGUN.set()
        ENDED.wait(60)
        return column.notnull()


class ExpectColumnValuesToWait(ColumnMapExpectation):
    map_metric = "column_values.wait"
"""


@dataclass
class EndlessFrame:
    """A frame of Spark that takes until ``ended`` to say its columns."""

    begun: threading.Event
    ended: threading.Event
    columns: tuple[str, ...] = ()

    @property
    def schema(self) -> tuple[Any, ...]:
        self.begun.set()
        self.ended.wait(60)
        return ()

    def drop(self, *_: str) -> "EndlessFrame":
        return self

    def selectExpr(self, *_: str) -> "EndlessFrame":  # noqa: N802  - Spark's name
        return self

    def count(self) -> int:
        return 0


@pytest.mark.parametrize("where", ["memory", "Spark"])
@THOROUGH
def test_an_evaluation_that_does_not_end_delays_no_other_and_no_merge(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "waiting_expectations.py").write_text(WAITING, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    import_expectations(["waiting_expectations"])
    module = import_module("waiting_expectations")
    begun, ended = module.BEGUN, module.ENDED
    begun.clear()
    ended.clear()
    rows, not_null = pa.table({"id": [1, None]}), (expect(NOT_NULL, column="id"),)
    endless = (expect("expect_column_values_to_wait", column="id"),)
    asked = SuiteLook(TABLE, 0, 0, None, "state", endless)

    def look_endlessly() -> tuple[ExpectationResult, ...]:
        if where == "memory":
            return evaluate_rows(rows, TABLE, endless)
        return evaluate_by_spark(EndlessFrame(begun, ended), asked).results

    with ThreadPoolExecutor(3) as pool:
        try:
            first = pool.submit(look_endlessly)
            assert begun.wait(60)
            merged = pool.submit(lambda: [*find_unmet(rows, TABLE.name, not_null)])
            looked = pool.submit(evaluate_rows, rows, TABLE, not_null)
            assert [places for _, places in merged.result(20)] == [(1,)]
            assert [one.met for one in looked.result(20)] == [False]
            assert not first.done()
        finally:
            ended.set()
    assert len(first.result()) == 1


@THOROUGH
def test_evaluations_at_the_same_time_keep_their_rows_apart() -> None:
    expected = (expect(IN_SET, column="id", value_set=[0]), expect(UNIQUE, column="id"))

    def unmet(bad: int) -> list[int]:
        rows = pa.table({"id": [*[0] * 50, *range(1, bad + 1)]})
        return [one.unexpected for one in evaluate_rows(rows, TABLE, expected)]

    with ThreadPoolExecutor(8) as pool:
        assert [*pool.map(unmet, range(40))] == [[bad, 50] for bad in range(40)]


@THOROUGH
def test_a_text_on_which_python_never_ends_is_looked_at() -> None:
    rows = pa.table({"mail": ["\u00e9" + "a" * 1000 + "!", "a@x", None]})
    asked = ExpectationSettings(MATCH, {"column": "mail", "regex": r"^(\w+\.?\s?)+@x$"})

    ((text, places),) = find_unmet(rows, "shop.orders", (asked,))

    assert (places, text) == ((0,), f"{MATCH}(mail): 1 of 3 rows")


def test_a_whole_number_stays_whole_beside_nulls() -> None:
    large = 2**60 + 1
    rows = pa.table({"n": pa.array([large, None]), "s": pa.array([1, None], pa.int16())})

    frame = make_frame(rows)

    assert int(frame["n"][0]) == large
    assert str(frame["s"][0]) == "1"


def test_inline_and_exported_expectations_are_one_thing(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(EXPORTED), encoding="utf-8")

    (one,) = read_suite(str(tmp_path / "a.json"))

    assert one == expect(NOT_NULL, "warning", **EXPORTED["expectations"][0]["kwargs"])
