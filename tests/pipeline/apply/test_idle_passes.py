"""What a pass costs that has nothing to do; `passes` itself is tested in test_passes."""

import json
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from pipeline.apply.landed_state import LandedState
from pipeline.apply.merge_run import MergeRequest
from pipeline.delta.log import Snapshot, load_snapshot
from pipeline.delta.store import Store
from pipeline.model import Op, ShardId
from pipeline.reports import Gap, dump_gap, load_gap
from pipeline.tables.delta import table_format
from tests.pipeline.apply.test_foreign_writes import deleted, intrude
from tests.pipeline.hand_lake import HandLake, row

TABLES = tuple(f"db.u{number:02d}" for number in range(30))


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each mirror's log was looked at."""
    found = Counter[str]()

    def counted(store: Store, known: Snapshot | None = None) -> Snapshot | None:
        found[store.uri] += 1
        return load_snapshot(store, known)

    monkeypatch.setattr(table_format, "load_snapshot", counted)
    return found


@pytest.fixture
def idle(tmp_path: Path) -> HandLake:
    """Many mirrors, all applied."""
    lake = HandLake(tmp_path, others=TABLES)
    own = [{"table": name, "shard": name, "topic": f"s.{name}"} for name in TABLES]
    lake.land(*({**row(Op.CREATE, 10, 1, "a"), **names} for names in own))
    for _ in range(3):
        lake.run()
    return lake


def test_f42_a_pass_with_nothing_due_looks_at_a_few_mirrors_only(
    idle: HandLake, opened: Counter[str]
) -> None:
    assert idle.run() == ()

    assert 0 < opened.total() <= 20


def test_f42_a_pass_with_one_mirror_due_opens_that_one_and_a_few(
    idle: HandLake, opened: Counter[str]
) -> None:
    idle.land({**row(Op.CREATE, 20, 2, "b"), "table": "db.u07", "shard": "db.u07"})

    done = idle.run()

    assert [turn.table for turn in done] == ["db.u07"]
    assert opened.total() <= 25


@pytest.fixture
def baseless(tmp_path: Path) -> HandLake:
    """Many tables that have landed and have no mirror: each is held by a gap of its own."""
    lake = HandLake(tmp_path, others=TABLES)
    own = [{"table": name, "shard": name, "topic": f"s.{name}"} for name in TABLES]
    lake.land(*({**row(Op.CREATE, 10, 1, "a"), **names} for names in own))
    gaps = [Gap(f"g@{name}", f"s.{name}", 0, 1, 2, "", shards=(f"s/{name}",)) for name in TABLES]
    lake.checkpoint = replace(lake.checkpoint, gaps={g.id: dump_gap(g) for g in gaps})
    return lake


def test_held_tables_without_a_mirror_are_not_looked_for_in_each_pass(
    baseless: HandLake, opened: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = baseless.run()
    opened.clear()
    monkeypatch.setattr(baseless.runner, "clock", lambda: baseless.now - timedelta(minutes=10))

    baseless.run()

    assert {turn.hold and turn.hold.reason for turn in first} == {"gap"}
    assert len(first) == len(TABLES)
    assert opened.total() <= 20


def test_a_mirror_that_is_put_back_is_found(baseless: HandLake) -> None:
    """Such as from a backup; the table is held until then, and tried again now and then."""
    baseless.run()
    baseless.checkpoint = replace(baseless.checkpoint, gaps={})

    turns = baseless.run()

    assert {turn.hold for turn in turns} == {None}
    assert len(turns) == len(TABLES)


def test_each_gap_is_read_once_however_many_tables_and_passes(
    baseless: HandLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    loads = json.loads

    def counted(text: str) -> Any:
        read.append(text)
        return loads(text)

    load_gap.cache_clear()
    monkeypatch.setattr("pipeline.reports.json.loads", counted)

    for _ in range(3):
        baseless.run()

    told = [text for text in read if '"why"' in text]
    assert len(told) == len(TABLES)


@pytest.mark.parametrize("relation", ["größe", 'a"b', "a.b", "a\\b"])
def test_a_gap_holds_a_table_of_any_name(tmp_path: Path, relation: str) -> None:
    name = str(ShardId("db", relation))
    lake = HandLake(tmp_path, others=(name,))
    gap = Gap("g@0", f"s.{name}", 0, 1, 2, "", shards=(f"s/{name}",))
    own = {"table": name, "shard": name, "topic": "s.other"}
    lake.land({**row(Op.CREATE, 10, 1, "a"), **own})
    lake.checkpoint = replace(lake.checkpoint, gaps={gap.id: dump_gap(gap)})

    (turn,) = lake.run()

    assert turn.hold is not None
    assert turn.hold.reason == "gap"


def test_a_damaged_mirror_is_read_again_less_and_less_often(
    tmp_path: Path, opened: Counter[str]
) -> None:
    lake = HandLake(tmp_path, others=("db.u",))
    other = {"table": "db.u", "shard": "db.u", "topic": "s.db.u"}
    lake.land(row(Op.CREATE, 10, 1, "a") | other)
    lake.run()
    folder = Path(lake.settings.mirror("db.u"))
    whole = {one: one.read_text() for one in (folder / "_delta_log").glob("*.json")}
    for entry in whole:
        entry.write_text("{")
    lake.reopen()
    landed, looks = LandedState(lake.checkpoint, lake.catalog), list[int]()
    for seconds in (0, 1, 0.5, 1, 3, 5, 60, 60):
        opened.clear()
        lake.now += timedelta(seconds=seconds)
        (turn,) = lake.runner.run(landed, MergeRequest())
        assert turn.hold is not None
        assert turn.hold.reason == "log_damaged"
        looks.append(opened[str(folder)])
    for entry, text in whole.items():
        entry.write_text(text)
    lake.now += timedelta(seconds=60)

    (freed,) = lake.runner.run(landed, MergeRequest())

    assert [bool(one) for one in looks] == [True, False, False, True, False, True, True, True]
    assert sum(looks) <= 2 * 5
    assert freed.hold is None


def test_a_mirror_with_a_foreign_commit_is_looked_at_less_and_less_often(
    tmp_path: Path, opened: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = HandLake(tmp_path)
    lake.play([row(Op.CREATE, 10, 1, "a")])
    intrude(lake, deleted(lake), operation="DELETE")
    landed = LandedState(lake.checkpoint, lake.catalog)
    held = lake.run()
    counted = list[Snapshot]()
    monkeypatch.setattr(lake.runner.table_format, "count", counted.append)
    looks, holds = list[int](), list[str]()
    for seconds in (0, 1, 2, 3, 0, 60, 0):
        opened.clear()
        lake.now += timedelta(seconds=seconds)
        (turn,) = lake.runner.run(landed, MergeRequest())
        looks.append(opened.total())
        holds += [turn.hold.id] if turn.hold else []

    assert held[-1].hold is not None
    assert holds == [held[-1].hold.id] * 7, "it is told all the same"
    assert [bool(one) for one in looks] == [False, False, True, False, False, True, False]
    assert counted == [], "rows are counted when it is judged, once"
    (freed,) = lake.runner.run(landed, MergeRequest(frozenset(holds)))
    assert freed.hold is None
