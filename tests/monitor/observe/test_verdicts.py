"""The newest verdicts, found without going through those of other tables."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import event

from checks.model import Outcome, Ruling, Verdict, Verified
from monitor.observe.verdicts import LOOKED_FOR, LatestVerdicts, Rechecks, awaits_checks
from monitor.store.requests import BackfillSpec, StoredBackfill
from monitor.store.store import ServiceStore
from pipeline.backfill_state import BackfillState
from pipeline.model import Fence, Head, Origin
from pipeline.sources.mysql.position import binlog_position

NOON = datetime(2026, 3, 29, 12, tzinfo=UTC)
LETTERS = {"P": Outcome.PASS, "F": Outcome.FAIL, "?": Outcome.UNKNOWN}


def verdicts_of(sheet: str, table: str = "shop.t", check: str = "max_id") -> list[Verdict]:
    """One verdict a minute."""
    return [
        Verdict(table, check, Ruling(LETTERS[letter], ""), NOON + timedelta(minutes=minute))
        for minute, letter in enumerate(sheet)
    ]


@pytest.mark.parametrize(
    ("sheet", "kept", "passed"),
    [
        pytest.param("P", "P", 0, id="a pass"),
        pytest.param("PF", "F", 0, id="the newest stands"),
        pytest.param("PF?", "?F", 0, id="an unknown disproves nothing"),
        pytest.param("F?P", "P", 2, id="a pass clears"),
        pytest.param("??", "?", None, id="never ruled"),
    ],
)
def test_what_is_kept_of_a_check(sheet: str, kept: str, passed: int | None) -> None:
    rulings, verdicts = LatestVerdicts(), verdicts_of(sheet)
    rulings.add(verdicts)

    last = rulings.last_pass("shop.t", "max_id")

    assert [one.ruling.outcome for one in rulings.of("shop.t")] == [LETTERS[n] for n in kept]
    assert rulings.newest("shop.t", "max_id") == verdicts[-1]
    assert last == (None if passed is None else verdicts[passed])


class Name(str):
    """A table's name that counts how often it is compared."""

    __slots__ = ()
    compared = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        Name.compared += 1
        return str.__eq__(self, other)


def test_f39_a_table_is_found_without_looking_at_the_others() -> None:
    rulings = LatestVerdicts()
    for number in range(500):
        rulings.add(verdicts_of("P", Name(f"shop.t{number}")))
    before = Name.compared

    found = rulings.of(Name("shop.t7"))

    assert [one.table for one in found] == ["shop.t7"]
    assert Name.compared - before < 20
    assert all(rulings.newest(f"shop.t{number}", "max_id") for number in range(500))


def test_what_earlier_lives_ruled_is_read_by_two_questions(tmp_path: Path) -> None:
    store, rulings = ServiceStore.open(tmp_path / "s.db"), LatestVerdicts()
    for number, sheet in enumerate(("PF?", "F?P", "P", "??") * 10):
        store.verdicts.add(verdicts_of(sheet, f"shop.t{number}"))
    asked = list[str]()
    event.listen(store.database.engine, "before_cursor_execute", lambda *a: asked.append(a[2]))

    rulings.load(store.verdicts)

    assert len([text for text in asked if text.startswith("SELECT")]) == 2
    shown = [
        "".join(one.ruling.outcome.name[0] for one in rulings.of(f"shop.t{number}"))
        for number in range(4)
    ]
    assert shown == ["UF", "P", "P", "U"]
    passed = rulings.last_pass("shop.t0", "max_id")
    assert passed is not None
    assert passed.at == NOON
    store.close()


@pytest.mark.parametrize(
    ("sheet", "until"),
    [
        pytest.param("PP", None, id="never"),
        pytest.param("PF", 1, id="it is bad"),
        pytest.param("FF", 1, id="as far as it was seen"),
        pytest.param("PF?P", 3, id="the first pass ends it"),
        pytest.param("FPP", 1, id="and no later one"),
        pytest.param("FPF", 2, id="it is bad again"),
    ],
)
def test_until_when_a_check_was_bad(sheet: str, until: int | None) -> None:
    rulings = LatestVerdicts()
    rulings.add(verdicts_of(sheet))

    found = rulings.bad_until("shop.t").get("max_id")

    assert found == (None if until is None else NOON + timedelta(minutes=until))


def test_after_a_restart_a_fail_counts_as_long_as_it_was_seen(tmp_path: Path) -> None:
    store, rulings = ServiceStore.open(tmp_path / "s.db"), LatestVerdicts()
    store.verdicts.add(verdicts_of("PFPP"))
    rulings.load(store.verdicts)
    store.close()

    assert rulings.bad_until("shop.t") == {"max_id": NOON + timedelta(minutes=1)}


def test_f105_the_end_of_a_fail_outlives_a_restart(tmp_path: Path) -> None:
    store, rulings = ServiceStore.open(tmp_path / "s.db"), LatestVerdicts()
    sheet = verdicts_of("PF?PP")
    for one in sheet:
        store.verdicts.add([one])
        store.verdicts.end_fails([one] if rulings.ends_fail(one) else [])
        rulings.add([one])
    before, again = rulings.bad_until("shop.t"), LatestVerdicts()

    again.load(store.verdicts)
    store.close()

    assert again.bad_until("shop.t") == before == {"max_id": NOON + timedelta(minutes=3)}


def test_f105_a_fail_that_began_again_is_bad_for_as_long_as_it_was_seen(tmp_path: Path) -> None:
    store, rulings = ServiceStore.open(tmp_path / "s.db"), LatestVerdicts()
    sheet = verdicts_of("FPF")
    store.verdicts.add(sheet)
    store.verdicts.end_fails(sheet[1:2])
    rulings.load(store.verdicts)
    store.close()

    assert rulings.bad_until("shop.t") == {"max_id": NOON + timedelta(minutes=2)}


def test_f113_each_check_of_a_table_has_its_own_rulings() -> None:
    rulings, checks = LatestVerdicts(), ("max_id", "day_counts")
    said = {check: verdicts_of("F", check=check) for check in checks}
    for one in said.values():
        rulings.add(one)

    assert [rulings.newest("shop.t", check) for check in checks] == [
        one[0] for one in said.values()
    ]
    assert rulings.bad_until("shop.t") == dict.fromkeys(checks, NOON)


CLAIM = Verified(None, None, 4)


def test_what_was_compared_has_the_name_of_its_check() -> None:
    known = LatestVerdicts()

    known.add([replace(verdicts_of("P")[0], check="values", verified=CLAIM)])

    assert known.verified("shop.t") == replace(CLAIM, check="values", at=verdicts_of("P")[0].at)


@pytest.mark.parametrize(
    ("check", "letter", "code", "kept"),
    [
        pytest.param("values", "?", "unsupported", False, id="not to be compared any more"),
        pytest.param("values", "?", "no_schema", False, id="no columns any more"),
        pytest.param("values", "?", "put_back", False, id="an older mirror than was compared"),
        pytest.param("values", "P", "", False, id="compared by its key now"),
        pytest.param("values", "?", "unable", True, id="a source that is down"),
        pytest.param("max_id", "?", "unsupported", True, id="another check"),
        pytest.param("max_id", "P", "", True, id="another check passes"),
    ],
)
def test_a_claim_ends_when_its_check_compares_no_rows_of_the_table_any_more(
    check: str, letter: str, code: str, *, kept: bool
) -> None:
    known, (one,) = LatestVerdicts(), verdicts_of("P", check="values")
    later = replace(one, check=check, ruling=Ruling(LETTERS[letter], "", code))

    known.add([replace(one, verified=CLAIM), later])

    assert (known.verified("shop.t") is not None) is kept


def test_f113_only_a_pass_ends_a_fail() -> None:
    rulings, (fail, again, unknown, passed) = LatestVerdicts(), verdicts_of("FF?P")
    rulings.add([fail])

    assert [rulings.ends_fail(one) for one in (again, unknown, passed)] == [False, False, True]


WISH = BackfillSpec(Origin.REPAIR, checks=("range_counts",))
ENDED = NOON + timedelta(minutes=1)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ServiceStore]:
    made = ServiceStore.open(tmp_path / "s.db")
    made.backfills.add(StoredBackfill("x", "shop.a", "an incident", "ann", NOON, wish=WISH))
    made.backfills.record_states([BackfillState("x", "shop.a", "s/a", 5, 7)], ENDED)
    yield made
    made.close()


def verdict(outcome: Outcome, read: timedelta, table: str = "shop.a") -> Verdict:
    """One that came in a minute, as of what was read at the end or *read* after it."""
    ruling = Ruling(outcome, f"{outcome} it is")
    return Verdict(table, "range_counts", ruling, ENDED + timedelta(minutes=1), (_read(read),))


def _read(after: timedelta) -> Fence:
    return Fence("s", 1, ENDED + after, Head("u", binlog_position(7, 4)))


AFTER, BEFORE = timedelta(seconds=1), timedelta(0)


@pytest.mark.parametrize(
    ("ruled", "proven"),
    [
        pytest.param([verdict(Outcome.PASS, AFTER)], True, id="it passes after it"),
        pytest.param([verdict(Outcome.FAIL, AFTER)], False, id="it fails after it"),
        pytest.param([verdict(Outcome.PASS, BEFORE)], None, id="of what was read before the end"),
        pytest.param([verdict(Outcome.UNKNOWN, AFTER)], None, id="it does not know"),
        pytest.param(
            [replace(verdict(Outcome.PASS, AFTER), as_of=(_read(BEFORE), _read(AFTER)))],
            None,
            id="one of two sources was read before the end",
        ),
        pytest.param([verdict(Outcome.PASS, AFTER, "shop.b")], None, id="of another table"),
        pytest.param(
            [replace(verdict(Outcome.PASS, AFTER), as_of=())], None, id="as of no position"
        ),
        pytest.param(
            [verdict(Outcome.FAIL, AFTER), verdict(Outcome.PASS, AFTER)], True, id="the newest"
        ),
        pytest.param([], None, id="nothing was asked"),
    ],
)
def test_only_what_was_read_after_it_proves_it(
    store: ServiceStore, ruled: list[Verdict], proven: bool | None
) -> None:
    rechecks(store, ENDED, *ruled).look()

    (one,) = store.backfills.list()
    assert [proof.passed for proof in one.proofs] == ([] if proven is None else [proven])
    assert one.unchecked == (() if proven else ("range_counts",))


def test_once_it_has_passed_that_stands_and_a_fail_may_still_become_a_pass(
    store: ServiceStore,
) -> None:
    again = rechecks(store, ENDED)
    for outcome in (Outcome.FAIL, Outcome.PASS, Outcome.FAIL):
        again.rulings.add([verdict(outcome, AFTER)])
        again.look()

    (one,) = store.backfills.list()
    assert [proof.reason for proof in one.proofs] == ["pass it is"]


def test_after_a_day_nobody_looks_any_more(store: ServiceStore) -> None:
    rechecks(store, ENDED + LOOKED_FOR, verdict(Outcome.PASS, AFTER)).look()

    assert store.backfills.list()[0].proofs == ()


def test_a_check_is_awaited_from_the_end_of_a_repair_for_a_day_and_until_it_passes(
    store: ServiceStore,
) -> None:
    store.backfills.add(StoredBackfill("y", "shop.b", "an incident", "ann", NOON, wish=WISH))
    ended, running = sorted(store.backfills.list(), key=lambda one: one.id)
    rechecks(store, ENDED, verdict(Outcome.PASS, AFTER)).look()
    passed = next(one for one in store.backfills.list() if one.id == ended.id)

    assert awaits_checks(ended, ENDED + LOOKED_FOR - AFTER)
    assert not awaits_checks(ended, ENDED + LOOKED_FOR)
    assert not awaits_checks(running, ENDED)
    assert not awaits_checks(passed, ENDED)


def rechecks(store: ServiceStore, now: datetime, *ruled: Verdict) -> Rechecks:
    made = LatestVerdicts()
    made.add(ruled)
    return Rechecks(store.backfills, made, lambda: now)
