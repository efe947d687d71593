"""Which number has a row of the heartbeat's table, whatever its format?  Pure."""

import json
import re

_WHOLE = re.compile(r"[0-9]{1,18}")  # others would stop the whole batch


def number_of(after: str | None, source: str) -> int | None:
    """The number of a heartbeat of *source*; None if the row is not its own, or says nothing."""
    try:
        row = json.loads(after or "null")
    except (ValueError, RecursionError):
        return None
    own = isinstance(row, dict) and row.get("source") == source
    number = str(row.get("n")) if own else ""
    return int(number) if _WHOLE.fullmatch(number) else None
