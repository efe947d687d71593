"""The benchmark of traces finds each key that it searches for."""

from pathlib import Path

from bench.trace import INSERTED, UPDATED, make_log, make_rows, measure


def test_both_searches_find_all_changes_of_a_key(tmp_path: Path) -> None:
    log = make_log(tmp_path, 3, rows=30_000, keys=100)

    inserted = [one.found for one in measure(log, INSERTED, 20_000)]
    updated = [one.found for one in measure(log, UPDATED, 7)]

    keys = [key for batch in range(3) for key in make_rows(batch, 30_000, 100)["key"].to_pylist()]
    assert [len(one.changes) for one in inserted] == [1, 1]
    assert [len(one.changes) for one in updated] == [keys.count('["s","db.updated","7"]')] * 2
    assert all(one.whole for one in (*inserted, *updated))
