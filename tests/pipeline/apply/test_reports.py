import pytest

from pipeline.errors import FormatError, HeldError, LostRaceError, SluiceError, UnreachableError
from pipeline.reports import Hold, MergeFailure


@pytest.mark.parametrize(
    ("error", "reason", "detail"),
    [
        pytest.param(HeldError("gap", "rows are lost"), "gap", "rows are lost", id="held"),
        pytest.param(UnreachableError("away"), "unreachable", "away", id="not reached"),
        pytest.param(LostRaceError("late"), "unreachable", "late", id="somebody was faster"),
        pytest.param(FormatError("odd"), "unreachable", "odd", id="another of ours"),
    ],
)
def test_an_error_that_was_foreseen_says_why(error: SluiceError, reason: str, detail: str) -> None:
    assert MergeFailure.of(error) == MergeFailure(reason, detail)


def test_what_nobody_foresaw_is_named_by_its_kind_and_cut_to_what_a_person_reads() -> None:
    refusal = MergeFailure.unforeseen(ValueError("x" * 1_000), "its log: ")

    assert refusal.reason == "failed"
    assert refusal.detail.startswith("its log: ValueError: xxx")
    assert len(refusal.detail) == 500


@pytest.mark.parametrize(
    ("detail", "told"),
    [("lost", "lost"), ("", "gap, without a message; see the log")],
)
def test_a_hold_has_a_stable_name_and_is_never_without_a_reason(detail: str, told: str) -> None:
    assert MergeFailure("gap", detail).hold("db.t") == Hold("gap:db.t", "db.t", "gap", told)
