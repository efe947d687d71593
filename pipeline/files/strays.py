"""What lies below the base where no hour is?  Nobody takes it, and nobody waits for it."""

import os
from collections.abc import Iterator
from pathlib import Path

from pipeline.files.layout import HourPartition, is_finished


def strays(base: Path, unfinished: tuple[str, ...]) -> Iterator[str]:
    """Files above the hours' folders, and folders that are named otherwise, by their paths.

    What is named as *unfinished* is meant to lie there.  Hours are not looked into.

    Raises:
        OSError: a folder cannot be read.
    """
    for log, is_log in _in(base, unfinished):
        if not is_log:
            yield log
            continue
        for day, is_folder in _in(base / log, unfinished):
            if not (is_folder and HourPartition(log, day, "00").is_named):
                yield f"{log}/{day}"
                continue
            for hour, holds in _in(base / log / day, unfinished):
                if not (holds and HourPartition(log, day, hour).is_named):
                    yield f"{log}/{day}/{hour}"


def _in(at: Path, unfinished: tuple[str, ...]) -> Iterator[tuple[str, bool]]:
    """Names, as they can be told, and whether it is a folder; none where nothing is there."""
    for one in sorted(at.iterdir()) if at.is_dir() else ():
        if is_finished(one.name, unfinished):
            yield os.fsencode(one.name).decode("utf-8", "backslashreplace"), one.is_dir()
