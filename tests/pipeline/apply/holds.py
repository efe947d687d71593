"""What a merge that is held must say."""

from pipeline.reports import Hold


def assert_held(hold: Hold | None, reason: str, *details: str) -> None:
    """Assert that *hold* is for *reason*, and that its text contains each of *details*."""
    assert hold is not None, f"not held; expected {reason}"
    assert hold.reason == reason, hold
    for detail in details:
        assert detail in hold.detail, hold
