"""Which files of a mirror are to be written anew, so that reading it costs as a fresh one's?  Pure.

Reading is counted in rows: a row that went is read like any other, and a file costs as much as
``OPENING`` rows before the first of them.  What is written for that is bounded: a row of a large
file once for a few that went, a row of a small one a few times until it stands in a large one.
"""

import math
from collections.abc import Collection, Iterable

from pipeline.lake.log import ActiveFile

TOGETHER = 10  # files of about one size that are worth joining
LARGE = 1_000_000  # rows: a file of more is joined with none
SIZES = (10_000, 100_000, LARGE)
GONE = 0.3  # share of a file's rows that are deleted, from which on it is written anew
BORNE = 0.2  # of what the fresh mirror costs; more comes until upkeep is there again
OPENING = 3_000  # rows of five columns; measured: 0.3 to 0.7 ms a file, 0.2 us a row
AT_ONCE = 2_000_000  # rows that are written anew in one turn


def worn(files: Collection[ActiveFile], whole: int = LARGE) -> tuple[ActiveFile, ...]:
    """Files of a mirror that are to be written anew together; none if it reads well enough.

    *whole*: rows from which on a file is as large as one that is written anew becomes, where that
    is known to be less than what counts as large.
    """
    return _at_once(sorted(_alike(files, whole), key=_rows)) or _costly(files, whole)


def _alike(files: Iterable[ActiveFile], whole: int) -> Iterable[ActiveFile]:
    """Files that lost many rows, and small ones of which there are many of about one size."""
    rooms: dict[int, list[ActiveFile]] = {}
    for file in files:
        if _gone(file) > GONE * _rows(file):
            yield file
        elif _left(file) < whole:
            size = next((n for n, limit in enumerate(SIZES) if _left(file) < limit), None)
            if size is not None:
                rooms.setdefault(size, []).append(file)
    for same in rooms.values():
        if len(same) >= TOGETHER:
            yield from same


def _costly(files: Collection[ActiveFile], whole: int) -> tuple[ActiveFile, ...]:
    """Files by which reading costs more than is borne: what gains most for a row written first.

    As many as bring it to half of that, or it would be as far again after the next few changes.
    However small the mirror, fewer files than are worth joining are borne.
    """
    fresh = _fresh(files)
    borne = max(BORNE * fresh, TOGETHER * OPENING)
    over = sum(_rows(file) + OPENING for file in files) - fresh
    if over <= borne:
        return ()
    best = sorted(files, key=lambda file: _gain(file, whole) / (_left(file) + OPENING))
    found: list[ActiveFile] = []
    over += OPENING  # the file that takes their place
    while best and over > borne / 2:
        found.append(best.pop())
        over -= _gain(found[-1], whole)
    kept = _at_once(found)
    if len(kept) > 1 or any(map(_gone, kept)):
        return kept
    return next(((file,) for file in found if _gone(file)), ())  # one alone, however large


def _at_once(found: Iterable[ActiveFile]) -> tuple[ActiveFile, ...]:
    """The first of them that one turn writes; at least one."""
    kept: list[ActiveFile] = []
    rows = 0
    for file in found:
        rows += _rows(file)
        if kept and rows > AT_ONCE:
            break
        kept.append(file)
    return tuple(kept)


def _fresh(files: Iterable[ActiveFile]) -> int:
    """What reading costs if all of it is written anew."""
    rows = sum(map(_left, files))
    return rows + OPENING * max(1, math.ceil(rows / LARGE))


def _gain(file: ActiveFile, whole: int) -> int:
    """What a reader is spared once the file's rows stand in another, beside many."""
    return _gone(file) + (OPENING if _left(file) < whole else 0)


def _left(file: ActiveFile) -> int:
    return _rows(file) - _gone(file)


def _rows(file: ActiveFile) -> int:
    return file.records or 0


def _gone(file: ActiveFile) -> int:
    return int(file.vector["cardinality"]) if file.vector else 0
