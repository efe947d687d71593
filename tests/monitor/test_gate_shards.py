"""The gate knows of every shard of a table, or does not open; covers monitor/gate.py."""

from dataclasses import replace
from datetime import timedelta

import pytest

from pipeline.checkpoint import Checkpoint, Existence, Gap, Quarantine
from pipeline.model import Order, Shard
from pipeline.settings import TableRule
from tests.monitor.rig import SHARDS, USERS, Rig, codes_of

DAY, EARLIER, UNASKED = "2026-03-28", "2026-03-27", "2026-03-26"
LEFT_OUT = "shop.users_2"  # the source has it, and the collector does not send it


@pytest.fixture
def rig(rig: Rig) -> Rig:
    rig.rules = (TableRule(r"shop\.users(_\d)?", USERS),)
    rig.dictionary.there = [USERS, LEFT_OUT]
    rig.restart()
    return rig


def test_a_shard_that_is_not_collected_blocks_also_while_its_source_is_too_slow(rig: Rig) -> None:
    rig.round(2)
    before = rig.ask(cut=DAY)
    rig.dictionary.silent = True
    rig.second(60)
    rig.round()

    during = rig.ask(cut=EARLIER)

    assert [status for status, _ in (before, during)] == [409, 409]


def test_a_source_that_lists_no_tables_after_a_restart_withholds_ready(rig: Rig) -> None:
    rig.dictionary.silent = True
    rig.round(2)

    status, answer = rig.ask(cut=DAY)

    codes = codes_of(answer)
    assert (status, codes) == (404, ["unlisted"])


def test_a_shard_that_was_ignored_withholds_ready_before_a_batch_under_the_new_rules(
    rig: Rig,
) -> None:
    """It has a base, though the mirror has no row of it: a certificate would stand for good."""
    rig.schema.grants = ("GRANT SELECT ON *.* TO `sluice`@`%`",)
    rig.round(2)
    mark = _with(rig, LEFT_OUT)
    rig.lake.newest = replace(mark, shards={**mark.shards, Shard.parse(f"shop/{LEFT_OUT}"): None})
    rig.restart()
    rig.ask(cut=DAY)
    rig.census.ask()

    status, answer = rig.ask(cut=DAY)

    codes = codes_of(answer)
    assert (status, codes) == (404, ["unlisted"])


@pytest.mark.parametrize("stage", ["mirror", "landed"])
def test_no_certificate_from_before_new_rules_answers_for_a_shard_that_they_add(
    rig: Rig, stage: str
) -> None:
    """Landing may be down, so no batch under the new rules shows the shard."""
    rig.schema.grants = ("GRANT SELECT ON *.* TO `sluice`@`%`",)
    rules, rig.rules = rig.rules, (TableRule(r"shop\.users", USERS),)
    rig.restart()
    rig.round(2)
    mark = _with(rig, LEFT_OUT)
    rig.lake.newest = replace(mark, shards={**mark.shards, Shard.parse(f"shop/{LEFT_OUT}"): None})
    rig.watch(2)
    before = rig.ask(cut=DAY, stage=stage)[0]
    rig.rules = rules
    rig.restart()
    rig.watch(2)
    rig.census.ask()

    status, answer = rig.ask(cut=DAY, stage=stage)

    assert (before, status, codes_of(answer)) == (200, 409, ["revoked", "unlisted"])


@pytest.mark.parametrize(
    ("shard", "topic"),
    [
        pytest.param('shop.we"ird', "shop.shop.we_ird", id="a name that no topic may have"),
        pytest.param("shop.users", "shop", id="a schema change"),
        pytest.param("shop.users", "shop.all", id="a topic that is named after no table"),
    ],
)
def test_what_nobody_could_read_blocks_the_table_it_may_be_of(
    rig: Rig, shard: str, topic: str
) -> None:
    rig.dictionary.there = []
    rig.round(2)
    assert rig.ask(cut=EARLIER)[0] == 200
    unread = Quarantine(
        None, 1, 1, (f"{topic}:0:5@1",), tuple(SHARDS) if topic == "shop.all" else ()
    )
    rig.lake.newest = _with(rig, shard, quarantine={f"topic:{topic}": unread})
    rig.second(2)

    status, answer = rig.ask(SHARDS.get(f"shop/{shard}", shard), cut=UNASKED)

    codes = codes_of(answer)
    assert status == 409
    assert "quarantine" in codes


def _with(rig: Rig, shard: str, **more: object) -> Checkpoint:
    mark = rig.newest
    added = Shard("shop", shard)
    shards = {**mark.shards, added: SHARDS.get(str(added), shard)}
    bases = {**mark.bases, added: mark.bases[Shard("shop", USERS)]}
    return replace(mark, shards=shards, bases=bases, **more)  # type: ignore[arg-type]


def test_a_look_is_judged_with_the_shards_of_its_own_mark(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another who asks may bring a newer one, in which a shard that has lost rows is gone."""
    rig.dictionary.there = [USERS]
    rig.restart()
    rig.round(2)
    mark = _with(rig, LEFT_OUT)
    mark = replace(mark, shards={**mark.shards, Shard.parse(f"shop/{LEFT_OUT}"): USERS})
    gap = Gap("g", "shop.x", 0, 0, 1, "lost", shards=(f"shop/{LEFT_OUT}",))
    rig.lake.newest = replace(mark, gaps={"g": gap})
    rig.second()
    old = rig.watcher.look(timedelta())
    rig.second()
    gone = Existence(Order(1, 9, 0), there=False)
    rig.lake.newest = replace(mark, existing={Shard.parse(f"shop/{LEFT_OUT}"): gone})
    new = rig.watcher.look(timedelta())

    seen = {}
    for name, look in (("old", old), ("new", new)):
        monkeypatch.setattr(rig.watcher, "look", lambda *_, look=look: look)
        _, answer = rig.ask(cut=EARLIER)
        seen[name] = codes_of(answer)

    assert seen == {"old": ["unlisted"], "new": ["unchecked"]}
