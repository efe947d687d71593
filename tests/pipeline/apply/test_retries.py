from datetime import UTC, datetime, timedelta

from pipeline.retries import FIRST, LONGEST, Retries

NOW = datetime(2026, 1, 2, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def test_a_table_that_never_failed_is_due() -> None:
    assert Retries().due("t", "as it is", NOW)


def test_a_table_that_failed_waits_and_no_other_does() -> None:
    retries = Retries()
    retries.failed("t", "as it is", NOW)

    assert not retries.due("t", "as it is", NOW + FIRST - SECOND)
    assert retries.due("t", "as it is", NOW + FIRST)
    assert retries.due("u", "as it is", NOW)


def test_it_is_tried_at_once_if_its_cause_may_be_gone() -> None:
    retries = Retries()
    retries.failed("t", ("schema", 1), NOW)

    assert retries.due("t", ("schema", 2), NOW)


def test_the_pause_doubles_up_to_a_minute_so_that_nobody_waits_for_long() -> None:
    retries, now, pauses = Retries(), NOW, []
    for _ in range(8):
        retries.failed("t", "as it is", now)
        pause = SECOND
        while not retries.due("t", "as it is", now + pause):
            pause += SECOND
        pauses.append(pause // SECOND)
        now += pause

    assert pauses == [2, 4, 8, 16, 32, 60, 60, 60]
    assert timedelta(seconds=pauses[-1]) == LONGEST


def test_under_other_circumstances_it_begins_with_a_short_pause() -> None:
    retries = Retries()
    for _ in range(5):
        retries.failed("t", "as it was", NOW)
    retries.failed("t", "as it is", NOW)

    assert retries.due("t", "as it is", NOW + FIRST)


def test_what_went_well_is_forgotten() -> None:
    retries = Retries()
    for _ in range(5):
        retries.failed("t", "as it is", NOW)
    retries.succeeded("t")
    retries.succeeded("never failed")

    assert retries.due("t", "as it is", NOW)
    retries.failed("t", "as it is", NOW)
    assert retries.due("t", "as it is", NOW + FIRST)


def test_it_tells_for_how_long_a_table_has_failed() -> None:
    retries = Retries()

    failing = [retries.failed("t", ("schema", n), NOW + n * SECOND) // SECOND for n in (0, 3, 90)]
    retries.succeeded("t")

    assert failing == [0, 3, 90]
    assert retries.failed("t", "again", NOW + 100 * SECOND) == timedelta()


def test_nobody_waits_for_a_clock_that_was_set_back() -> None:
    retries = Retries()
    retries.failed("t", "as it is", NOW)
    back = NOW - timedelta(days=1)

    assert retries.due("t", "as it is", back)
    assert retries.failed("t", "as it is", back) == timedelta()
    assert retries.failed("t", "as it is", back + SECOND) == SECOND
