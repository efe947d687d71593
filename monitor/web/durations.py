"""How are instants and lengths of time told to people?  Pure."""

from datetime import datetime, timedelta


def moment(at: datetime) -> str:
    """To the second, with its zone."""
    return at.strftime("%Y-%m-%d %H:%M:%S %Z")


def span(length: timedelta) -> str:
    """Tell a length of time in its two largest units, rounded down: ``3 min 20 s``."""
    seconds = max(length.total_seconds(), 0.0)
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = int(seconds)
    for size, name, small, part in (
        (86400, "d", 3600, "h"),
        (3600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if whole >= size:
            rest = whole % size // small
            return f"{whole // size} {name}" + (f" {rest} {part}" if rest else "")
    return f"{whole} s"
