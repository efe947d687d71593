"""What does a ledger of files tell?  Pure."""

from dataclasses import dataclass

import msgspec

from pipeline.files.message import BeatHead, ColumnsHead, FaultHead


class TakenFile(msgspec.Struct, tag="file", frozen=True):
    """A file as it was taken: all that its rows are read by.  ``path`` is below the base."""

    shard: str
    path: str
    day: str
    hour: str
    kind: str
    stamp: tuple[int, int, int, int]
    digest: str
    rows: int
    key: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """Offsets ``[first, until)``: the rows of a file, or one message of another kind."""

    first: int
    until: int
    what: TakenFile | ColumnsHead | BeatHead | FaultHead


@dataclass(frozen=True, slots=True)
class TakenRows:
    """Files of one partition that were taken: how many, their rows, and of these the late ones.

    ``began`` and ``ended`` in seconds since 1970.
    """

    shard: str
    part: str
    files: int
    rows: int
    late: int
    began: float
    ended: float


@dataclass(frozen=True, slots=True)
class SweepCount:
    """How many sweeps were ``begun`` and ``done``, and where the ledger ends.

    ``asked`` is the newest heartbeat that was asked for; -1 before there is one.
    """

    begun: int
    done: int
    end: int
    asked: int
