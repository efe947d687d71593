"""Sets how many examples a law gets: all in `make test`, a few in `make check`.

A number in a test's own settings counts more than the profile's, so it has to ask.
"""

from hypothesis import settings


def examples(full: int, *, brief: int = 20) -> int:
    """As many as the profile that was chosen for this run wants."""
    return min(full, brief) if settings.get_current_profile_name() == "brief" else full
