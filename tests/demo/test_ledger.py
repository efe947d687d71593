"""The ledger survives its writers, and can be read while they write."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

from demo.shop.ledger import Entry, Ledger, Outcome, RowState, read_ledger

NOW = datetime(2026, 1, 1, 12, 0, 0, 123456, UTC)
ROWS = (
    RowState("shop.users", (7,), 3, None, passing=(None,)),
    RowState("shop.items", (1, 2), None, 2),
)


def entry(number: int, outcome: Outcome = Outcome.UNKNOWN) -> Entry:
    return Entry(number, NOW, NOW, ROWS, outcome)


def test_what_is_read_is_what_was_written(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl")

    ledger.intend(entry(1))
    ledger.settle(1, Outcome.COMMITTED, NOW)
    ledger.intend(entry(2, Outcome.ROLLED_BACK))

    assert ledger.entries() == {
        1: Entry(1, NOW, NOW, ROWS, Outcome.COMMITTED, NOW),
        2: Entry(2, NOW, NOW, ROWS, Outcome.ROLLED_BACK, None),
    }


def test_a_commit_without_an_answer_stays_unknown_until_it_is_settled(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.intend(entry(1))

    before = ledger.entries()[1].outcome
    ledger.settle(1, Outcome.COMMITTED, NOW)

    assert (before, ledger.entries()[1].outcome) == (Outcome.UNKNOWN, Outcome.COMMITTED)


def test_a_line_in_the_making_is_not_read(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.intend(entry(1))
    ledger.path.write_text(ledger.path.read_text() + '{"number": 2, "beg')

    assert list(ledger.entries()) == [1]


def test_a_ledger_opened_again_goes_on_where_a_killed_writer_stopped(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    Ledger(path).intend(entry(5))
    path.write_text(path.read_text() + '{"number": 6, "beg')

    again = Ledger(path)
    again.intend(entry(again.number()))

    assert list(read_ledger(path)) == [5, 6]


def test_numbers_start_above_those_that_rows_already_carry(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl")

    ledger.skip_to(40)
    ledger.skip_to(7)

    assert [ledger.number(), ledger.number()] == [40, 41]


def test_threads_share_a_ledger_without_mixing_lines_or_numbers(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl")

    def write(_: int) -> None:
        number = ledger.number()
        ledger.intend(entry(number))
        ledger.settle(number, Outcome.COMMITTED, NOW)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(400)))

    entries = ledger.entries()
    assert sorted(entries) == list(range(1, 401))
    assert {each.outcome for each in entries.values()} == {Outcome.COMMITTED}
