"""A time zone in which a day ends when a test wants it to: a file, as Python's zones are read of.

The format is that of RFC 8536: two headers, no transitions, one offset.
"""

import struct
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

DAY = timedelta(days=1)
HEADER = struct.Struct(">4sc15x6I")


def day_ending(at: datetime, folder: Path, name: str) -> date:
    """Write the zone *name* below *folder*, and name the day that ends in it *at* that second."""
    at = at.astimezone(UTC)
    begun = at.replace(hour=0, minute=0, second=0, microsecond=0)
    offset = begun - at if at - begun < DAY / 2 else begun + DAY - at
    counts = (0, 0, 0, 0, 1, 2)  # of UTC and wall-clock marks, leaps, transitions, types, letters
    head = HEADER.pack(b"TZif", b"2", *counts)
    body = struct.pack(">iBB", offset // timedelta(seconds=1), 0, 0) + b"X\0"
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes((head + body) * 2 + b"\n\n")
    return (at + offset).date() - DAY
