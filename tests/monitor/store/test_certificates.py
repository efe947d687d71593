from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection, event, text
from structlog.testing import capture_logs

from checks.certificate import Certificate, Evidence, certify
from monitor.config.model import CertificateSettings
from monitor.store.history import HISTORY
from monitor.store.store import ServiceStore
from pipeline.clocks import ClockStep
from pipeline.model import Stage
from tests.builders.values import fence
from tests.example_count import examples
from tests.monitor.store.kit import DAY, HOUR, NOW, SECOND, first, newest

DAY_END = datetime(2026, 2, 28, tzinfo=UTC)


def certificate(seconds: int = 0, stage: Stage = Stage.MIRROR) -> Certificate:
    evidence = Evidence((fence(3, NOW),), 17, 5, 17, {"shop.x:0": 40})
    return certify(
        "shop.orders",
        stage,
        NOW - DAY,
        issued=NOW + seconds * SECOND,
        evidence=evidence,
        unknown=("completeness",),
    )


def test_what_was_read_for_a_whole_cut_is_not_believed_of_a_table_that_changed_since(
    store: ServiceStore,
) -> None:
    first, later = certificate(), replace(certificate(), id="later", table="shop.later")
    store.certificates.add(first)
    store.certificates.read_whole(first.cut)

    store.certificates.add(later)
    store.certificates.revoke([replace(first, revoked=NOW, why="lost")])

    known = store.certificates.newest(first.table, first.stage, first.cut)
    assert known is not None
    assert known.revoked == NOW
    assert store.certificates.newest("shop.later", first.stage, first.cut) == later
    assert store.certificates.newest("shop.none", first.stage, first.cut) is None


def test_a_certificate_comes_back_with_its_evidence(store: ServiceStore) -> None:
    assert store.certificates.add(certificate())

    assert store.certificates.get(certificate().id) == certificate()
    assert store.certificates.get("no such id") is None


def test_what_was_issued_is_never_rewritten(store: ServiceStore) -> None:
    store.certificates.add(certificate())

    assert not store.certificates.add(replace(certificate(), unknown=()))
    assert store.certificates.get(certificate().id) == certificate()


def test_the_newest_for_a_cut_and_stage(store: ServiceStore) -> None:
    for one in (certificate(0), certificate(5), certificate(9, Stage.LANDED)):
        store.certificates.add(one)

    cut = NOW - DAY

    assert store.certificates.newest("shop.orders", Stage.MIRROR, cut) == certificate(5)
    assert store.certificates.newest("shop.orders", Stage.LANDED, cut) == certificate(
        9, Stage.LANDED
    )
    assert store.certificates.newest("shop.orders", Stage.MIRROR, NOW) is None


def test_a_revoked_certificate_is_kept_with_its_first_reason(store: ServiceStore) -> None:
    store.certificates.add(certificate())
    revoked = replace(certificate(), revoked=NOW + DAY, why="range_counts: 2 rows short")

    first = store.certificates.revoke([revoked])
    second = store.certificates.revoke([replace(revoked, why="later")])

    assert (first, second) == (1, 0)
    assert store.certificates.newest("shop.orders", Stage.MIRROR, NOW - DAY) == revoked
    assert store.certificates.holding("shop.orders") == ()


def test_many_are_revoked_by_one_statement(store: ServiceStore) -> None:
    """The gate waits meanwhile; one that was revoked before is not counted again."""
    many = [certificate(seconds) for seconds in range(30)]
    store.certificates.add(*many)
    revoked = [replace(one, revoked=NOW, why=f"lost {one.id}") for one in many]
    store.certificates.revoke(revoked[:1])
    sent = list[str]()

    with store.certificates.database.write() as connection:
        event.listen(
            connection,
            "before_cursor_execute",
            lambda _, __, statement, *___: sent.append(statement),
        )
        count = store.certificates.revoke(revoked)

    assert count == 29
    assert len([one for one in sent if one.startswith("UPDATE")]) == 1
    assert store.certificates.list() == tuple(reversed(revoked))
    assert store.certificates.revoke([]) == 0


def test_those_that_hold_since_an_instant_oldest_first(store: ServiceStore) -> None:
    for seconds in (9, 0, 5):
        store.certificates.add(certificate(seconds))

    held = store.certificates.holding("shop.orders", since=NOW + 5 * SECOND)

    assert held == (certificate(5), certificate(9))
    assert store.certificates.list("shop.orders", Stage.MIRROR, limit=1) == (certificate(9),)
    assert store.certificates.prune(NOW + 50 * DAY) == 3


def test_f36_a_passing_cut_is_forgotten_after_a_week_and_a_days_end_is_not(
    store: ServiceStore,
) -> None:
    day = datetime(2026, 3, 28, 18, 15, tzinfo=UTC)  # midnight in Kathmandu
    for number, cut in enumerate((day, day + timedelta(seconds=7))):
        store.certificates.add(replace(certificate(), id=str(number), cut=cut, issued=NOW))

    assert store.certificates.prune(NOW + timedelta(days=6)) == 0
    assert store.certificates.prune(NOW + timedelta(days=8)) == 1
    assert store.certificates.get("0") is not None


def test_of_passing_cuts_a_table_keeps_so_many_and_those_that_were_revoked(
    store: ServiceStore,
) -> None:
    store.certificates.most_passing = 20
    many = [passing(number) for number in range(1, 31)]
    day = replace(certificate(), cut=datetime(2026, 2, 28, tzinfo=UTC))
    other = replace(passing(1), id="other", table="shop.other")
    store.certificates.add(*many, day, other)
    store.certificates.revoke([replace(many[3], revoked=NOW, why="lost")])

    assert store.certificates.prune(NOW) == 9

    kept = {one.id for one in store.certificates.list(limit=100)}
    assert kept == {one.id for one in (many[3], *many[10:], day, other)}


def test_above_the_limit_of_the_store_the_oldest_valid_ones_of_passing_cuts_go_first(
    store: ServiceStore,
) -> None:
    old = [replace(passing(n), issued=NOW + n * SECOND) for n in range(1, 9)]
    ends = [replace(certificate(n), id=f"end {n}", cut=DAY_END) for n in range(3)]
    young = replace(passing(9), issued=NOW + 2 * DAY)
    store.certificates.add(*old, *ends, young)
    store.certificates.revoke([replace(old[0], revoked=NOW, why="lost")])
    store.certificates.limit = CertificateSettings(most=8, keep=DAY)

    assert store.certificates.prune(NOW + 2 * DAY) == 4
    assert store.certificates.stored == 8
    kept = {one.id for one in store.certificates.list(limit=100)}
    assert kept == {one.id for one in (old[0], *old[5:], *ends, young)}
    assert store.certificates.newest("shop.orders", Stage.MIRROR, old[1].cut) is None

    store.certificates.limit = CertificateSettings(most=3, keep=DAY)
    assert store.certificates.prune(NOW + 2 * DAY) == 5
    kept = {one.id for one in store.certificates.list(limit=100)}
    assert kept == {old[0].id, young.id, "end 2"}


def test_above_the_limit_young_and_revoked_certificates_stay_and_the_log_says_so(
    store: ServiceStore,
) -> None:
    many = [replace(passing(n), issued=NOW + n * SECOND) for n in range(1, 5)]
    store.certificates.add(*many)
    store.certificates.revoke([replace(many[0], revoked=NOW, why="lost")])
    store.certificates.limit = CertificateSettings(most=2, keep=DAY)

    with capture_logs() as logs:
        assert store.certificates.prune(NOW + HOUR) == 0

    assert [(one["log_level"], one["stored"], one["most"]) for one in logs] == [("warning", 4, 2)]


@pytest.mark.parametrize("all_tables", [True, False])
def test_a_revoked_certificate_does_not_become_the_newest_because_a_later_one_is_removed(
    store: ServiceStore, all_tables: bool
) -> None:
    first, other = passing(1), passing(2)
    later = replace(first, id="later", issued=first.issued + HOUR)
    store.certificates.add(first)
    store.certificates.revoke([replace(first, revoked=NOW + SECOND, why="lost")])
    store.certificates.add(later, other)
    if all_tables:
        store.certificates.limit = CertificateSettings(most=1, keep=DAY)
    else:
        store.certificates.most_passing = 0

    assert store.certificates.prune(NOW + 2 * DAY) == 1
    assert store.certificates.newest(first.table, first.stage, first.cut) == later
    assert store.certificates.get(other.id) is None


def test_of_a_cut_that_nobody_was_certified_for_the_store_is_not_asked(
    store: ServiceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that asks for a day that has not landed waits for no disk."""
    kept, new = certificate(), replace(certificate(), id="new", cut=NOW + DAY)
    store.certificates.add(kept)
    store.certificates.read_whole(NOW)
    with count_reads(store, monkeypatch) as before:
        assert store.certificates.newest(new.table, new.stage, new.cut) is None
    store.certificates.add(new)
    store.certificates.revoke([replace(new, revoked=NOW, why="lost")])

    with count_reads(store, monkeypatch) as after:
        found = store.certificates.newest(new.table, new.stage, new.cut)

    assert found == replace(new, revoked=NOW, why="lost")
    assert (len(before), len(after)) == (0, 1)
    assert store.certificates.newest(kept.table, kept.stage, kept.cut) == kept


@contextmanager
def count_reads(store: ServiceStore, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[object]]:
    """An entry for each read of the database."""
    reads, plain = list[object](), store.database.read

    def read() -> AbstractContextManager[Connection]:
        reads.append(None)
        return plain()

    with monkeypatch.context() as patch:
        patch.setattr(store.database, "read", read)
        yield reads


def passing(number: int) -> Certificate:
    """One of a cut that nobody else asks for."""
    cut = NOW + number * SECOND
    return replace(certificate(), id=str(number), cut=cut, issued=cut)


def test_of_a_tables_passing_cuts_few_are_remembered_and_none_is_lost(
    store: ServiceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that asks for this very second, all day long."""
    many = [passing(number) for number in range(50)]
    store.certificates.read_whole(NOW - DAY)
    for one in many:
        assert store.certificates.newest(one.table, one.stage, one.cut) is None
        store.certificates.add(one)

    with count_reads(store, monkeypatch) as reads:
        for one in many:
            assert store.certificates.newest(one.table, one.stage, one.cut) == one

    assert len(reads) >= len(many) - 9


@pytest.mark.parametrize("again", [False, True], ids=["as they came", "read after a restart"])
def test_cuts_beyond_a_bound_are_the_stores_to_know(
    store: ServiceStore, monkeypatch: pytest.MonkeyPatch, *, again: bool
) -> None:
    monkeypatch.setattr("monitor.store.certificates.MOST_CUTS", 3)
    store.certificates.read_whole(NOW - DAY)
    reads = list[int]()
    for number in range(5):
        store.certificates.add(passing(number))
        if again:
            store.certificates.read_whole(NOW + number * DAY)
        with count_reads(store, monkeypatch) as read:
            cut = NOW + (9 + number) * HOUR
            assert store.certificates.newest("shop.orders", Stage.MIRROR, cut) is None
        reads.append(len(read))

    assert reads == [0, 0, 0, 1, 1]
    for number in range(5):
        one = passing(number)
        assert store.certificates.newest(one.table, one.stage, one.cut) == one
    assert store.certificates.newest("shop.orders", Stage.MIRROR, NOW + 9 * SECOND) is None


def test_one_that_cannot_be_read_any_more_answers_for_nothing_after_a_fail(
    store: ServiceStore,
) -> None:
    one = certificate()
    store.certificates.add(one)
    assert store.certificates.newest(one.table, one.stage, one.cut) == one
    with store.database.write() as connection:
        connection.execute(text("UPDATE certificates SET evidence = 'x'"))

    assert store.certificates.holding(one.table) == ()

    assert store.certificates.newest(one.table, one.stage, one.cut) is None


def test_a_fence_comes_back_as_it_was(store: ServiceStore) -> None:
    store.fences.add(fence(7, NOW))

    assert newest(store) == fence(7, NOW)
    assert newest(store, "other") is None


@pytest.mark.parametrize(
    ("seconds", "number"),
    [
        pytest.param(-5, 0, id="before all"),
        pytest.param(1, 1, id="an instant is in"),
        pytest.param(1.5, 2, id="between two"),
        pytest.param(3.000001, None, id="after all there is none yet"),
    ],
)
def test_the_first_fence_at_or_after(
    store: ServiceStore, seconds: float, number: int | None
) -> None:
    for each in range(4):
        store.fences.add(fence(each, NOW + each * SECOND))

    found = first(store, NOW + seconds * SECOND)

    assert (found and found.number) == number


def test_fences_since_are_bounded_and_ascending(store: ServiceStore) -> None:
    for each in range(10):
        store.fences.add(fence(each, NOW + each * SECOND))

    found = store.fences.since("shop", NOW + 3 * SECOND, limit=4)

    assert [each.number for each in found] == [3, 4, 5, 6]


@given(st.lists(st.integers(0, 45 * 24 * 3600), min_size=1, max_size=60), st.integers(0, 40 * 1440))
@settings(max_examples=examples(25), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_pruning_never_loses_an_answer_for_forty_days_nor_makes_one_less_cautious(
    store: ServiceStore, ages: list[int], asked: int
) -> None:
    with store.write() as connection:
        connection.exec_driver_sql("DELETE FROM fences")
        for age in set(ages):
            store.fences.add(fence(age, NOW - age * SECOND))
    instant = NOW - timedelta(minutes=asked)
    before = first(store, instant)
    last = newest(store)

    store.fences.prune(NOW)

    after = first(store, instant)
    assert newest(store) == last
    if before is None:
        assert after is None
    else:
        assert after is not None
        assert after.at >= before.at


def test_the_first_of_each_minute_stays_after_a_day_and_of_each_quarter_after_ten(
    store: ServiceStore,
) -> None:
    minute = NOW.replace(second=0, microsecond=0)
    for age in (DAY * 2, DAY * 12, DAY * 50):
        for second in (0, 10, 61, 905):
            store.fences.add(fence(second, minute - age + second * SECOND))

    store.fences.prune(NOW)

    def left(age: timedelta) -> list[int]:
        found = store.fences.since("shop", minute - age)
        return [each.number for each in found if each.at < minute - age + DAY]

    assert left(DAY * 2) == [0, 61, 905]
    assert left(DAY * 12) == [0, 905]
    assert left(DAY * 50) == []


def test_the_newest_survives_any_age(store: ServiceStore) -> None:
    store.fences.add(fence(1, NOW - 100 * DAY))
    store.fences.add(fence(2, NOW - 99 * DAY))

    store.fences.prune(NOW)

    assert newest(store) == fence(2, NOW - 99 * DAY)
    assert HISTORY > 40 * DAY


def test_f01_fences_that_fell_are_gone_and_no_others(store: ServiceStore) -> None:
    for number in range(5):
        store.fences.add(fence(number, NOW + number * SECOND))
    store.fences.add(replace(fence(2, NOW), source="other"))

    store.fences.fell(ClockStep("shop", 2, 4, NOW, NOW, NOW))

    assert [one.number for one in store.fences.since("shop", NOW)] == [0, 1, 4]
    assert newest(store, "other") is not None
