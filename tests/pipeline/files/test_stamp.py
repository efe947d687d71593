from dataclasses import replace
from datetime import timedelta

import pytest

from pipeline.files.layout import Due, FileStamp, Patience, WaitingFile, is_overdue, judge_file

FOUND = FileStamp(1, 10, 100, 100)
PATIENCE = Patience(timedelta(seconds=10), timedelta(minutes=1))


@pytest.mark.parametrize(
    ("taken", "waiting", "now", "what"),
    [
        pytest.param(FOUND, None, 0, Due.NOTHING, id="taken as it is"),
        pytest.param(None, None, 0, Due.REMEMBER, id="new"),
        pytest.param(None, WaitingFile(FOUND, 1, 95), 100, Due.NOTHING, id="seen just now"),
        pytest.param(None, WaitingFile(FOUND, 1, 90), 100, Due.OPEN, id="stood still"),
        pytest.param(
            *(None, WaitingFile(replace(FOUND, size=9), 1, 0), 100, Due.REMEMBER), id="grows"
        ),
        pytest.param(
            *(None, WaitingFile(replace(FOUND, changed=9), 1, 0), 100, Due.REMEMBER),
            id="written, its own time set back",
        ),
        pytest.param(replace(FOUND, size=9), None, 0, Due.REMEMBER, id="other than it was taken"),
        pytest.param(None, WaitingFile(FOUND, 1, 200), 100, Due.REMEMBER, id="our clock went back"),
    ],
)
def test_a_file_is_ruled_by_what_two_looks_have_found(
    taken: FileStamp | None, waiting: WaitingFile | None, now: float, what: Due
) -> None:
    assert judge_file(FOUND, taken, waiting, now, PATIENCE) is what


def test_a_file_is_overdue_from_the_limit_on() -> None:
    one = WaitingFile(FOUND, 1, 0)

    assert [is_overdue(one, now, PATIENCE) for now in (59.9, 60)] == [False, True]
