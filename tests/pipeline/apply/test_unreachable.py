"""pipeline/apply/merge_run.py over a disk that does not answer for one mirror."""

from pathlib import Path

import pytest

from pipeline.delta import entries
from pipeline.errors import UnreachableError
from pipeline.model import Op
from tests.pipeline.hand_lake import HandLake, row

C = Op.CREATE


def test_a_mirror_that_the_disk_does_not_give_stops_no_other_and_goes_on_by_itself(
    tmp_path: Path,
) -> None:
    lake = HandLake(tmp_path, others=("db.u",))
    other = {"table": "db.u", "shard": "db.u", "topic": "s.db.u"}
    lake.land(row(C, 10, 1, "a"), row(C, 10, 1, "a") | other)
    lake.run()
    log = Path(lake.settings.mirror("db.u"), "_delta_log")
    away = log.rename(log.with_name("away"))
    log.write_bytes(b"no folder")
    lake.reopen()
    lake.land(row(C, 20, 2, "b"), row(C, 20, 2, "b") | other)

    turns = {turn.table: turn for turn in (*lake.run(), *lake.run())}
    log.unlink()
    away.rename(log)
    later = {turn.table: turn for turn in (*lake.run(), *lake.run())}

    assert turns["db.t"].hold is None
    assert turns["db.u"].hold is not None
    assert turns["db.u"].hold.reason == "unreachable"
    assert "Not a directory" in turns["db.u"].hold.detail
    assert later["db.u"].hold is None
    assert lake.rows() == lake.rows("db.u") == {1: "a", 2: "b"}


def test_no_turn_is_committed_on_top_of_an_entry_that_another_writer_has_only_begun(
    tmp_path: Path,
) -> None:
    lake = HandLake(tmp_path)
    lake.land(row(C, 10, 1, "a"))
    version = lake.apply().version
    begun = Path(lake.settings.mirror("db.t"), entries.entry_name(version + 1))
    begun.touch()
    lake.land(row(C, 20, 2, "b"))

    held = lake.apply().hold
    after = begun.with_name(Path(entries.entry_name(version + 2)).name).exists()
    begun.unlink()

    assert held is not None
    assert held.reason == "unreachable"
    assert f"{begun.name} says nothing" in held.detail
    assert not after
    assert lake.apply().hold is None
    assert lake.rows() == {1: "a", 2: "b"}


def test_a_turn_whose_commit_was_not_answered_is_told_once_the_mirror_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows are in the mirror: with no other turn, nobody else would tell of them."""
    lake = HandLake(tmp_path)
    lake.play([row(C, 10, 1, "a")])
    lake.land(row(C, 20, 2, "b"), row(C, 30, 3, "c"))
    store = lake.table_format.store(lake.settings.mirror("db.t"))
    put, read = store.put_new, store.read
    unread: set[str] = set()

    def unanswered(name: str, data: bytes) -> None:
        put(name, data)
        unread.add(name)
        raise UnreachableError("no answer")

    def silent(name: str) -> bytes:
        if name in unread:
            raise UnreachableError("no answer")
        return bytes(read(name))

    monkeypatch.setattr(store, "put_new", unanswered)
    monkeypatch.setattr(store, "read", silent)
    (failed,) = lake.run()
    monkeypatch.undo()
    later = [turn for _ in range(3) for turn in lake.run()]

    assert failed.hold is not None
    assert failed.hold.reason == "unreachable"
    assert [(turn.batch, turn.account.read) for turn in later if turn.account.read] == [(1, 2)]
    assert lake.rows() == {1: "a", 2: "b", 3: "c"}
