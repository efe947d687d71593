"""Counts calls, so that a test holds how much work something does without a look at the time."""

from collections.abc import Callable
from cProfile import Profile


def count_calls(work: Callable[[], object], *, of: str = "") -> int:
    """Number of calls while *work* runs, of functions whose description has the text *of*."""
    profile = Profile()
    profile.runcall(work)
    return sum(one.callcount for one in profile.getstats() if of in str(one.code))


def count_matches(work: Callable[[], object]) -> int:
    """Number of times that *work* compares a whole text with a regular expression."""
    return count_calls(work, of="'fullmatch' of 're.Pattern'")
