from datetime import UTC, datetime, timedelta

from monitor.observe.system_checks import SlidingWindow

NOON = datetime(2026, 3, 29, 12, 0, tzinfo=UTC)
MISSED = ("watch", "missed")


def test_f54_what_was_missed_in_an_earlier_life_is_not_told() -> None:
    lately = SlidingWindow()

    assert lately.counted({MISSED: 142}, NOON) == {}
    assert lately.counted({MISSED: 142}, NOON + timedelta(minutes=1)) == {}


def test_f54_what_goes_wrong_is_told_for_as_long_as_it_is_news() -> None:
    lately = SlidingWindow(timedelta(minutes=3))
    told = [
        lately.counted({MISSED: 142 + (minute >= 1)}, NOON + timedelta(minutes=minute)).get(MISSED)
        for minute in range(6)
    ]

    assert told == [None, 1, 1, 1, None, None]


def test_a_window_is_kept_in_a_few_rows_however_often_it_is_asked() -> None:
    lately = SlidingWindow(timedelta(minutes=3))
    for second in range(600):
        lately.counted({MISSED: second}, NOON + timedelta(seconds=second))

    assert len(lately._kept) <= 4
