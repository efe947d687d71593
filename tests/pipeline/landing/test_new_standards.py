"""Rows that were written otherwise are a gap, which only a later base closes."""

from dataclasses import replace

from pipeline.checkpoint import Checkpoint, Existence, RowStandards
from pipeline.landing.gaps import detect_new_standards
from pipeline.model import Order
from pipeline.reports import load_gap
from pipeline.settings import StandardRule
from pipeline.standards.mask import LetterMask
from pipeline.standards.table_standards import NO_STANDARDS, Standards
from tests.builders import batch_context

NAME = "s/shop.users"
RULES = Standards((StandardRule("shop.users", ("id",), (("mask", LetterMask(("name",))),)),))
OTHER = Standards((StandardRule("shop.users", ("id",), (("mask", LetterMask(("name",), 1)),)),))
BEFORE = Checkpoint("main", 6, shards={NAME: "shop.users", "s/shop.a": "shop.a"})
MADE = replace(BEFORE, batch=7)
DIGEST = RULES.digest("shop.users")


def test_standards_of_rows_that_were_there_make_a_gap_of_that_table_alone() -> None:
    found = detect_new_standards(
        MADE, batch_context(BEFORE, standards=RULES, settings_changed=True)
    )

    assert found.standards == {NAME: RowStandards(DIGEST, 7)}
    (gap,) = map(load_gap, found.gaps.values())
    assert (gap.shards, gap.batch, gap.id) == ((NAME,), 7, f"standards:{NAME}@7")


def test_so_do_other_ones_and_none_any_more() -> None:
    known = replace(MADE, standards={NAME: RowStandards(DIGEST)})

    for rules in (OTHER, NO_STANDARDS):
        found = detect_new_standards(
            known, batch_context(known, standards=rules, settings_changed=True)
        )
        assert found.standards[NAME] == RowStandards(rules.digest("shop.users"), 7)
        assert list(found.gaps) == [f"standards:{NAME}@7"]


def test_a_shard_that_is_seen_for_the_first_time_has_no_other_rows() -> None:
    for anew in (True, False):
        found = detect_new_standards(
            MADE, batch_context(replace(BEFORE, shards={}), standards=RULES, settings_changed=anew)
        )

        assert found.standards == {NAME: RowStandards(DIGEST, -1)}
        assert not found.gaps


def test_what_is_as_it_was_changes_nothing() -> None:
    known = replace(MADE, standards={NAME: RowStandards(DIGEST, 3)})

    assert (
        detect_new_standards(known, batch_context(known, standards=RULES, settings_changed=True))
        == known
    )
    assert (
        detect_new_standards(
            MADE, batch_context(BEFORE, standards=NO_STANDARDS, settings_changed=True)
        )
        is MADE
    )


def test_a_shard_that_is_gone_is_noted_and_misses_nothing() -> None:
    gone = replace(MADE, existing={NAME: Existence(Order(1, 1, 1), there=False)})

    found = detect_new_standards(
        gone, batch_context(BEFORE, standards=RULES, settings_changed=True)
    )

    assert found.standards == {NAME: RowStandards(DIGEST, 7)}
    assert not found.gaps
