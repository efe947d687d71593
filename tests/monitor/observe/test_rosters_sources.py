"""F21: sources are asked for tables and keys side by side, and one that hangs delays no other."""

import contextlib
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from monitor.observe.tables import Roster
from pipeline.checkpoint import Checkpoint
from pipeline.errors import UnreachableError
from pipeline.model import Shard
from pipeline.settings import TableRule
from tests.monitor.observe.dictionaries import BIG, FakeDictionary
from tests.monitor.rig import NOON
from tests.pipeline.hanging import Hanging


class Three:
    """A roster over three sources, each with a shard of one folded table and a table of its own."""

    def __init__(self, hanging: Hanging) -> None:
        self.now, self.hanging = NOON, hanging
        self.sources = {
            name: FakeDictionary({f"{name}.orders": BIG, f"{name}.own": BIG}, source=name)
            for name in "abc"
        }
        rule = TableRule(shards=r"a\.orders|c\.orders", table="all.orders")
        odd = TableRule(shards=r"b\.orders", table="b.orders")
        self.roster = Roster(lambda: self.sources, (rule, odd), lambda: self.now)
        hanging.watched(self.roster.asking)

    def see(self) -> dict[str, str | None]:
        """Land a batch that knows all shards; the tables' keys, by name."""
        shards = {f"{name}/{name}.own": f"{name}.own" for name in "abc"}
        shards |= {"a/a.orders": "all.orders", "b/b.orders": "b.orders"}
        self.roster.update(Checkpoint("main", 0, shards=shards))
        return {table.name: table.id_column for table in self.roster.tables()}


KNOWN = {"a.own": "id", "all.orders": "id", "b.orders": None, "b.own": None, "c.own": "id"}


@pytest.mark.parametrize("method", ["shards", "key_columns"])
def test_f21_of_three_sources_one_hangs_for_ever_and_the_others_tell_their_tables(
    hanging: Hanging, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    three = Three(hanging)
    monkeypatch.setattr(three.sources["b"], method, hanging)

    first = three.see()
    three.now += timedelta(minutes=5)
    second = three.see()

    assert first == second == KNOWN
    assert len(hanging.stuck) == 1
    doubts = {table.name: three.roster.unlisted(table) for table in three.roster.tables()}
    why = "source b has not listed its tables: has not answered since 12:00:00 UTC"
    assert doubts == dict.fromkeys(KNOWN, "") | ({"b.orders": why} if method == "shards" else {})


def test_a_source_that_has_told_and_sent_nothing_yet_may_have_a_shard_of_any_folded_table(
    hanging: Hanging, monkeypatch: pytest.MonkeyPatch
) -> None:
    three = Three(hanging)
    monkeypatch.setattr(three.sources["c"], "shards", hanging)
    landed = Checkpoint("main", 0, shards={"a/a.own": "a.own", "a/a.orders": "all.orders"})

    three.roster.update(landed)
    before = {table.name: three.roster.unlisted(table) for table in three.roster.tables()}
    three.roster.update(replace(landed, shards={**landed.shards, "c/c.own": "c.own"}))
    after = {table.name: three.roster.unlisted(table) for table in three.roster.tables()}

    why = "source c has not listed its tables: has not answered since 12:00:00 UTC"
    assert (before["a.own"], before["all.orders"]) == ("", why)
    assert after["all.orders"] == ""


def test_f21_keys_that_are_told_late_are_taken_over_at_the_next_look(
    hanging: Hanging, monkeypatch: pytest.MonkeyPatch
) -> None:
    three = Three(hanging)
    hung = three.sources["b"]
    tell = hung.key_columns
    monkeypatch.setattr(hung, "key_columns", lambda shard: _late(hanging, tell, shard))

    before = three.see()
    hanging.release()
    after = three.see()

    assert before == KNOWN
    assert after == KNOWN | {"b.orders": "id", "b.own": "id"}


def _late(
    hanging: Hanging, tell: Callable[[Shard], tuple[str, ...]], shard: Shard
) -> tuple[str, ...]:
    with contextlib.suppress(UnreachableError):
        hanging()
    return tell(shard)
