"""Rules or standards that changed while nothing ran: what landed before is a gap."""

from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.checkpoint import Checkpoint, Existence, RowStandards
from pipeline.landing.gaps import detect_new_rules, detect_new_standards
from pipeline.model import Order, PartitionEnd, Shard, TopicPartition
from pipeline.settings import Router, StandardRule, TableRule
from pipeline.standards.mask import LetterMask
from pipeline.standards.table_standards import NO_STANDARDS, Standards
from tests.builders import batch_context
from tests.builders.harness import LandingHarness, load_gaps
from tests.builders.values import by_shard

IGNORED = Router((TableRule(r"db\.t", "x", ignore=True),))
ELSEWHERE = Router((TableRule(r"db\.t", "all.t"),))
SHARDS = {"a/db.t": "db.t", "a/db.u": "db.u"}
MARK = Checkpoint(
    "main", 6, shards=by_shard(SHARDS), offsets={TopicPartition("a.db.t", 1): PartitionEnd(40)}
)
NEXT = replace(MARK, batch=7)


def with_rules(harness: LandingHarness, router: Router) -> LandingHarness:
    """The same lake, landed on by a process with other rules."""
    found = LandingHarness(harness.home, harness.topics)
    found.loop.router = router
    return found


@pytest.fixture
def harness(tmp_path: Path) -> LandingHarness:
    """A table with its base, and a row of it."""
    made = LandingHarness(tmp_path)
    made.topics.alter("a", 100, "name", kind="CREATE")
    made.topics.put("a", 200, "one")
    made.land()
    return made


def test_what_came_while_a_table_was_ignored_is_a_gap_once_it_no_longer_is(
    harness: LandingHarness,
) -> None:
    """Else it would be READY without those rows: its base is older than they are."""
    ignoring = with_rules(harness, IGNORED)
    ignoring.topics.put("a", 300, "two")
    ignoring.land()
    again = with_rules(ignoring, Router())
    again.topics.put("a", 400, "three")

    again.land()

    assert ignoring.checkpoint.shards == {Shard("a", "db.t"): None}
    assert ignoring.checkpoint.gaps == {}
    assert again.short() == [("a/db.t",)]


def test_rows_landed_for_one_table_are_a_gap_of_the_other_that_its_shard_goes_to(
    harness: LandingHarness,
) -> None:
    """Else the new table would be READY with none of the rows that are in the old one's mirror."""
    moved = with_rules(harness, ELSEWHERE)
    moved.topics.put("b", 300, "elsewhere")

    told = moved.land()

    (gap,) = told.gaps
    assert (gap.id, gap.shards, gap.batch) == ("rules:a/db.t@1", ("a/db.t",), 1)
    assert (gap.topic, gap.partition, gap.until) == ("a.db.t", 0, 1)
    assert moved.checkpoint.shards[Shard.parse("a/db.t")] == "all.t"


def test_the_same_rules_change_nothing(harness: LandingHarness) -> None:
    again = with_rules(harness, Router())
    again.topics.put("a", 300, "two")

    assert again.land().gaps == ()


def test_it_is_told_once_and_stays_until_a_person_or_a_base_closes_it(
    harness: LandingHarness,
) -> None:
    moved = with_rules(harness, ELSEWHERE)
    for pos in (300, 400):
        moved.topics.put("a", pos, "more")
        told = moved.land()

    moved.topics.put("a", 500, "more")

    assert [gap.id for gap in told.gaps] == ["rules:a/db.t@1"]
    assert moved.land("rules:a/db.t@1").gaps == ()


def test_a_shard_that_is_gone_needs_nothing() -> None:
    gone = replace(NEXT, existing={Shard.parse("a/db.t"): Existence(Order(1, 1, 1), there=False)})

    made = detect_new_rules(gone, batch_context(MARK, router=ELSEWHERE, settings_changed=True))

    assert (made.gaps, made.shards[Shard.parse("a/db.t")]) == ({}, "all.t")


def test_it_says_where_the_rows_stood_and_what_helps() -> None:
    (gap,) = load_gaps(
        detect_new_rules(NEXT, batch_context(MARK, router=ELSEWHERE, settings_changed=True))
    )

    assert (gap.topic, gap.partition, gap.first, gap.until) == ("a.db.t", 1, 0, 40)
    assert gap.why == (
        "`tables` now maps a/db.t to all.t (before: db.t), so its earlier rows are missing there;"
        " run `sluice bootstrap all.t --reason ...`"
    )


@pytest.mark.parametrize(
    ("old", "went"),
    [("db.t", "(before: db.t), so"), (None, "(before: no table), so")],
    ids=["another table's", "ignored"],
)
def test_it_says_where_the_rules_before_had_sent_it(old: str | None, went: str) -> None:
    before = replace(MARK, shards={Shard.parse("a/db.t"): old})

    (gap,) = load_gaps(
        detect_new_rules(NEXT, batch_context(before, router=ELSEWHERE, settings_changed=True))
    )

    assert went in gap.why


@pytest.mark.parametrize(
    ("offsets", "place"),
    [
        pytest.param({"a.db.s:0": 7, "a.db.t:1": 40}, ("a.db.t", 1, 0, 40), id="its own topic"),
        pytest.param({"a.db.s:0": 7}, ("db.t", 0, 0, 0), id="no topic of its name"),
    ],
)
def test_it_stands_where_its_shards_rows_do(
    offsets: dict[str, int], place: tuple[str, int, int, int]
) -> None:
    made = replace(
        NEXT,
        offsets={TopicPartition.parse(name): PartitionEnd(end) for name, end in offsets.items()},
    )

    (gap,) = load_gaps(
        detect_new_rules(made, batch_context(MARK, router=ELSEWHERE, settings_changed=True))
    )

    assert (gap.topic, gap.partition, gap.first, gap.until) == place


# standards

NAME = "s/shop.users"
RULES = Standards((StandardRule("shop.users", ("id",), (("mask", LetterMask(("name",))),)),))
OTHER = Standards((StandardRule("shop.users", ("id",), (("mask", LetterMask(("name",), 1)),)),))
BEFORE = Checkpoint(
    "main", 6, shards={Shard.parse(NAME): "shop.users", Shard.parse("s/shop.a"): "shop.a"}
)
MADE = replace(BEFORE, batch=7)
DIGEST = RULES.digest("shop.users")


def test_standards_of_rows_that_were_there_make_a_gap_of_that_table_alone() -> None:
    found = detect_new_standards(
        MADE, batch_context(BEFORE, standards=RULES, settings_changed=True)
    )

    assert found.standards == {Shard.parse(NAME): RowStandards(DIGEST, 7)}
    (gap,) = load_gaps(found)
    assert (gap.shards, gap.batch, gap.id) == ((NAME,), 7, f"standards:{NAME}@7")


def test_so_do_other_ones_and_none_any_more() -> None:
    known = replace(MADE, standards={Shard.parse(NAME): RowStandards(DIGEST)})

    for rules in (OTHER, NO_STANDARDS):
        found = detect_new_standards(
            known, batch_context(known, standards=rules, settings_changed=True)
        )
        assert found.standards[Shard.parse(NAME)] == RowStandards(rules.digest("shop.users"), 7)
        assert list(found.gaps) == [f"standards:{NAME}@7"]


def test_a_shard_that_is_seen_for_the_first_time_has_no_other_rows() -> None:
    for anew in (True, False):
        found = detect_new_standards(
            MADE, batch_context(replace(BEFORE, shards={}), standards=RULES, settings_changed=anew)
        )

        assert found.standards == {Shard.parse(NAME): RowStandards(DIGEST, -1)}
        assert not found.gaps


def test_what_is_as_it_was_changes_nothing() -> None:
    known = replace(MADE, standards={Shard.parse(NAME): RowStandards(DIGEST, 3)})

    assert (
        detect_new_standards(known, batch_context(known, standards=RULES, settings_changed=True))
        == known
    )
    assert detect_new_standards(known, batch_context(known, standards=RULES)) is known
    assert (
        detect_new_standards(
            MADE, batch_context(BEFORE, standards=NO_STANDARDS, settings_changed=True)
        )
        is MADE
    )


def test_a_shard_that_is_gone_is_noted_and_misses_nothing() -> None:
    gone = replace(MADE, existing={Shard.parse(NAME): Existence(Order(1, 1, 1), there=False)})

    found = detect_new_standards(
        gone, batch_context(BEFORE, standards=RULES, settings_changed=True)
    )

    assert found.standards == {Shard.parse(NAME): RowStandards(DIGEST, 7)}
    assert not found.gaps
