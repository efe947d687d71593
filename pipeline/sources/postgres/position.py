"""Where does the log of a Postgres server stand?  At one number, the LSN, that never goes back.

Words of a position are the LSN as Postgres writes it, ``16/B374D848``.  Of a server it is the end
of its log; of a collector the end of the last commit it has handed over, with all before it.  LSNs
go on across a promotion, so they do not tell servers apart: the identity of the `Head` does.  Pure.
"""

import re
from dataclasses import dataclass
from functools import lru_cache

from pipeline.errors import FormatError
from pipeline.model import Head, Order, Position
from pipeline.sources.positions import PositionRules

KIND = "postgres"
_LSN = re.compile(r"([0-9A-F]{1,8})/([0-9A-F]{1,8})", re.IGNORECASE)


def lsn(text: str) -> int:
    """The number of an LSN in Postgres's own words: a byte's place in the whole log.

    Raises:
        FormatError: it is none.
    """
    found = _LSN.fullmatch(text)
    if found is None:
        raise FormatError(f"{text!r} is no LSN, such as 16/B374D848")
    return int(found[1], 16) << 32 | int(found[2], 16)


def log_position(number: int) -> Position:
    """The position whose LSN is *number*."""
    return Position(KIND, f"{number >> 32:X}/{number & 0xFFFF_FFFF:X}")


@dataclass(frozen=True, slots=True)
class PostgresPositions:
    """One number; nothing in it names transactions."""

    def place(self, position: Position) -> tuple[int, int]:
        """The LSN: a change's own is that of the last commit before it."""
        return _read(position.words), 0

    def reaches(self, passed: Position, wanted: Position) -> bool:
        """Whether it is at or above."""
        return _read(passed.words) >= _read(wanted.words)

    def reset(self, known: Position, now: Position) -> str | None:
        """A lower place: the server was restored from a backup, or lost what it had not synced."""
        if _read(now.words) < _read(known.words):
            return f"log went back from {known} to {now}"
        return None

    def lacks(self, known: Head, now: Head, landed: Order | None) -> str | None:
        """It never had what a promoted server's predecessor wrote after they parted.

        Where that was it tells until it is started again.  Of another system, or another database
        of it, nothing is known.  What is above the last head that was seen was landed after that:
        the newest of its rows tell, each by the commit before it and by its own place.
        """
        if known.identity == now.identity:
            return self.reset(known.position, now.position)
        if _database(known.identity) != _database(now.identity):
            return f"{now.identity} is another database than {known.identity}"
        if now.parted is None:
            return "the promoted server does not tell where it left the log of the one before it"
        come = _read(known.position.words)
        if landed is not None:
            come = max(come, landed.log, landed.pos)
        if _read(now.parted.words) < come:
            return (
                f"the promoted server left the log of the one before it at {now.parted}, and that"
                f" had come to {log_position(come)}: what was written between, it never had"
            )
        return None

    def beyond(self, said: Position, end: Position) -> str | None:
        """A higher place."""
        if _read(said.words) > _read(end.words):
            return f"{said} is above the head {end} that was read after it"
        return None

    def proper(self, position: Position) -> bool:
        """Never: a promoted replica goes on counting where the old server was."""
        return False

    def may_hold(self, position: Position, transaction: str) -> bool:
        """Always: a transaction's number says nothing of where it ends."""
        return True


POSITIONS: PositionRules = PostgresPositions()


def _database(identity: str) -> tuple[str, str]:
    """System and database, without the timeline."""
    system, _, rest = identity.partition("/")
    return system, rest.partition("/")[2]


@lru_cache(maxsize=4096)  # the same fences are asked about for every table
def _read(words: str) -> int:
    return lsn(words)
