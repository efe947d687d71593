"""What a pass costs that has nothing to do; `passes` itself is tested in test_passes."""

from collections import Counter
from pathlib import Path

import pytest

from pipeline.apply import mirrors
from pipeline.lake.log import Snapshot, load
from pipeline.lake.store import Store
from pipeline.model import Op
from tests.pipeline.hand_lake import HandLake, row

TABLES = tuple(f"db.u{number:02d}" for number in range(30))


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each mirror's log was looked at."""
    found = Counter[str]()

    def counted(store: Store, known: Snapshot | None = None) -> Snapshot | None:
        found[store.uri] += 1
        return load(store, known)

    monkeypatch.setattr(mirrors, "load", counted)
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
