"""Where does a MySQL binary log stand?  By file and offset, and by GTIDs where both have them.

Words of a position are ``7/1234``, then a blank and the GTID set if there is one: what was
executed by a server, or finished by a collector.  After a fail-over a collector's last word may
still be of the old server, whose larger offset says nothing of the new one.  Pure.
"""

from dataclasses import dataclass
from functools import lru_cache

from pipeline.errors import FormatError
from pipeline.model import Head, Order, Position
from pipeline.sources.mysql import gtid
from pipeline.sources.positions import PositionRules

KIND = "mysql"


def binlog_position(log: int, pos: int, executed: str = "") -> Position:
    """Offset *pos* of the log file of that number; *executed* is a GTID set, empty without."""
    return Position(KIND, f"{log}/{pos} {''.join(executed.split())}".rstrip())


def executed(position: Position) -> str:
    """Its GTID set; empty without."""
    return _read(position.words)[1]


@dataclass(frozen=True, slots=True)
class MySqlPositions:
    """MariaDB's own GTIDs are no sets, so there it is file and offset alone."""

    def place(self, position: Position) -> tuple[int, int]:
        """File number and offset."""
        return _read(position.words)[0]

    def reaches(self, passed: Position, wanted: Position) -> bool:
        """By place, and by GTIDs where both have them."""
        (at, done), (there, needed) = _read(passed.words), _read(wanted.words)
        return at >= there and _holds(done, needed)

    def reset(self, known: Position, now: Position) -> str | None:
        """An earlier place, or transactions it once had and has no longer."""
        (at, had), (there, has) = _read(known.words), _read(now.words)
        if there < at:
            return f"log went back from {_place(at)} to {_place(there)}"
        if had and not gtid.contains(has, had):
            return "the server has forgotten transactions: its log was reset"
        return None

    def lacks(self, known: Head, now: Head, landed: Order | None) -> str | None:
        """Only GTIDs show that another server has what the old one was last seen to have.

        Redelivered changes are recognised.  After a reset of one server's log nothing is compared.
        Cannot detect: transactions of the old server after it was seen last.
        """
        if known.identity == now.identity:
            return None
        if not (self.proper(known.position) and self.proper(now.position)):
            return (
                f"server {now.identity} replaced {known.identity} without GTIDs,"
                " so it cannot show that it has the end of the old log"
            )
        if not gtid.contains(executed(now.position), executed(known.position)):
            return f"server {now.identity} has not executed all transactions of {known.identity}"
        return None

    def beyond(self, said: Position, end: Position) -> str | None:
        """A later place, or transactions that it has not executed."""
        (at, done), (there, has) = _read(said.words), _read(end.words)
        if at > there:
            return f"{_place(at)} is above the head {_place(there)} that was read after it"
        if self.proper(said) and self.proper(end) and not gtid.contains(has, done):
            return "the server has not executed all that was acknowledged"
        return None

    def proper(self, position: Position) -> bool:
        """Whether it has GTIDs."""
        try:
            return bool(gtid.GtidSet.parse(_read(position.words)[1]).spans)
        except FormatError:
            return False

    def may_hold(self, position: Position, transaction: str) -> bool:
        """Whether its GTIDs hold it; where either has none, nobody can say no."""
        executed = _read(position.words)[1]
        try:
            return not executed or gtid.contains(executed, transaction)
        except FormatError:
            return True


POSITIONS: PositionRules = MySqlPositions()


@lru_cache(maxsize=4096)  # the same fences are asked about for every table
def _read(words: str) -> tuple[tuple[int, int], str]:
    place, _, executed = words.partition(" ")
    log, _, pos = place.partition("/")
    return (int(log), int(pos)), executed


@lru_cache(maxsize=4096)
def _holds(executed: str, needed: str) -> bool:
    """Whether a GTID set holds another; where either is unknown, it has no say."""
    if not executed or not needed:
        return True
    try:
        return gtid.contains(executed, needed)
    except FormatError:
        return True


def _place(at: tuple[int, int]) -> str:
    return f"{at[0]}/{at[1]}"
