"""How many mirrors maintenance reads, and who waits for it; not what it does to one of them."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from pipeline.apply.maintenance import LakeMaintenance
from pipeline.changelog.maintenance import LogMaintenance
from pipeline.delta import maintenance
from pipeline.delta.log import Snapshot, load_snapshot
from pipeline.delta.store import Store
from pipeline.model import Op
from pipeline.tables.delta import table_format
from pipeline.tables.delta.rewrite import TOGETHER
from pipeline.tables.delta.table_format import DeltaMirrors
from tests.builders.lake import NOW, LocalLake, row
from tests.pipeline.apply.keeping import mirror, named, on_disk

TABLES = tuple(f"db.u{number:02d}" for number in range(12))


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each mirror's log was looked at."""
    found = Counter[str]()

    def counted(store: Store, known: Snapshot | None = None) -> Snapshot | None:
        found[store.uri.rpartition("/")[2]] += 1
        return load_snapshot(store, known)

    monkeypatch.setattr(table_format, "load_snapshot", counted)
    return found


def own(name: str) -> dict[str, str]:
    return {"table": name, "shard": name, "topic": f"s.{name}"}


@pytest.fixture(scope="module")
def pattern(tmp_path_factory: pytest.TempPathFactory) -> LocalLake:
    made = LocalLake(tmp_path_factory.mktemp("pattern"), others=TABLES)
    made.land(*({**row(Op.CREATE, 10, 1, "a"), **own(name)} for name in TABLES))
    made.run()
    return made


@pytest.fixture
def lake(pattern: LocalLake, tmp_path: Path) -> LocalLake:
    """Many mirrors of one row each, all applied and known."""
    made = pattern.copied(tmp_path)
    for _ in range(2):
        made.run()
    return made


def upkeep(lake: LocalLake) -> LakeMaintenance:
    """As a lane has it: of the mirrors that its passes know."""
    return LakeMaintenance(lake.settings, lake.log, lake.runner.mirrors, lambda: NOW)


def maintain(lake: LocalLake, keeping: LakeMaintenance) -> None:
    applied = {name: lake.runner.applied(name) for name in lake.checkpoint.tables}
    keeping.run(lake.checkpoint, {}, applied, lake.runner.held.is_held)


def test_mirrors_that_merges_know_are_not_looked_at_again(
    lake: LocalLake, opened: Counter[str]
) -> None:
    keeping = upkeep(lake)

    for _ in range(3):
        maintain(lake, keeping)

    assert opened == {}


def test_only_a_mirror_that_has_something_to_do_is_looked_at(
    lake: LocalLake, opened: Counter[str]
) -> None:
    keeping = upkeep(lake)
    maintain(lake, keeping)
    for key in range(2, 2 + TOGETHER):
        lake.land({**row(Op.CREATE, 10 + key, key, "b"), **own("db.u07")})
        lake.run()
    opened.clear()

    maintain(lake, keeping)
    maintain(lake, keeping)

    assert opened.keys() == {"u07"}
    assert named(mirror(lake, "db.u07")) == 1


def test_a_mirror_that_is_held_is_asked_about_until_it_is_not(lake: LocalLake) -> None:
    keeping, asked = upkeep(lake), list[str]()
    for key in range(2, 2 + TOGETHER):
        lake.land({**row(Op.CREATE, 10 + key, key, "b"), **own("db.u07")})
        lake.run()

    def held(table: str) -> bool:
        asked.append(table)
        return len(asked) < 3

    for _ in range(4):
        keeping.run(lake.checkpoint, {}, {}, held)

    assert asked == ["db.u07"] * 3
    assert named(mirror(lake, "db.u07")) == 1


def test_a_restart_is_no_reason_for_a_checkpoint(lake: LocalLake) -> None:
    for key in range(2, 2 + maintenance.EVERY):
        lake.land({**row(Op.CREATE, 10 + key, key, "b"), **own("db.u07")})
        lake.run()
    maintain(lake, upkeep(lake))
    path = mirror(lake, "db.u07")
    before = on_disk(path, "*.checkpoint.parquet")

    lake.reopen()
    lake.land({**row(Op.CREATE, 90, 90, "c"), **own("db.u07")})
    lake.run()
    lake.run()
    maintain(lake, upkeep(lake))

    assert len(before) == 1
    assert on_disk(path, "*.checkpoint.parquet") == before


def test_each_mirror_is_a_turn_of_its_own_and_the_change_log_none(
    lake: LocalLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeping, seen = upkeep(lake), list[str]()
    logged, worn = LogMaintenance.run, DeltaMirrors.worn

    @contextmanager
    def turn(_: str) -> Iterator[None]:
        seen.append("(")
        yield
        seen.append(")")

    def of_log(*given: Any) -> None:
        seen.append("log")
        logged(*given)

    def of_mirror(*given: Any) -> bool:
        assert seen[-1] == "("
        return worn(*given)

    monkeypatch.setattr(LogMaintenance, "run", of_log)
    monkeypatch.setattr(DeltaMirrors, "worn", of_mirror)

    for _ in range(2):
        keeping.run(lake.checkpoint, {}, {}, lambda _: False, lock=turn)

    assert seen == ["log", *["(", ")"] * len(lake.checkpoint.tables), "log"], "then all are well"


def test_waiting_for_merges_comes_to_an_end(lake: LocalLake) -> None:
    """A pass of ten minutes comes in before each mirror: one is enough, the rest next time."""
    now, turns = [NOW], list[str]()

    @contextmanager
    def turn(table: str) -> Iterator[None]:
        now[0] += timedelta(minutes=10)
        turns.append(table)
        yield

    keeping = LakeMaintenance(lake.settings, lake.log, lake.runner.mirrors, lambda: now[0])
    for _ in range(3):
        keeping.run(lake.checkpoint, {}, {}, lambda _: False, lock=turn)

    assert len(turns) == len({*turns}) == 3, "each time another one"
