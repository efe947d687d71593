"""Is the slot of this name the one that was seen before, or was it made anew between two looks?

The catalogue knows a slot by its name alone, so it is known again by what no new one can have.  A
slot that is made keeps nothing below where the log ends then: one that keeps log from below the end
that the log had at the look before was there at that look.  So was one that the same process reads,
for it cannot be dropped meanwhile.  And a new one has decoded neither as many transactions as the
old one had, nor more than were begun since.  Where a server took the place of another and its slot
begins above all that was seen of that one, nobody can tell: it may have been made there.
Cannot see: a slot made anew while its server crashed, or while somebody reset the counts.  Pure.
"""

from dataclasses import dataclass

import msgspec

from pipeline.model import LogKeeper
from pipeline.sources.log_keeper import LogKeeperRules
from pipeline.sources.postgres.position import KIND, log_position, lsn


@dataclass(frozen=True, slots=True)
class SlotSeen:
    """A slot as it was seen, and its server's log, ``end``, just before; LSNs are Postgres's texts.

    ``server`` is the system and its timeline.  ``reader`` is the process that reads it, empty if
    none.  ``decoded`` counts its transactions since ``counted``, which is another text once counts
    were lost; ``begun`` is a number above that of each transaction that had begun.
    """

    name: str
    server: str
    end: str
    restart: str
    reader: str
    decoded: int
    counted: str
    begun: int

    @property
    def keeper(self) -> LogKeeper:
        """It as what keeps the log from ``restart`` on: the first snapshot beside it is above."""
        words = msgspec.json.encode(self).decode()
        return LogKeeper(KIND, words, log_position(lsn(self.restart)))


class KnownSlots:
    """How a slot is known again."""

    def exchanged(self, known: str, now: str) -> str | None:
        """Why it may have been made since it was seen, as *known*; words are of `SlotSeen`."""
        try:
            before, later = (msgspec.json.decode(words, type=SlotSeen) for words in (known, now))
        except msgspec.DecodeError:  # another version of Sluice wrote what is known
            return None
        if before.name != later.name:
            return f"the config names slot {later.name}, and named {before.name} before"
        return None if _was_there(before, later) else _made(before, later)


def _was_there(before: SlotSeen, later: SlotSeen) -> bool:
    """Whether it was at that look, by the log that it keeps, or by who reads it."""
    read = later.reader != "" and later.reader == before.reader
    return read or lsn(later.restart) < lsn(before.end)


def _made(before: SlotSeen, later: SlotSeen) -> str | None:
    """Why it was made since, by its counts; None if they do not show it."""
    begins = (
        f"it keeps nothing below {later.restart}; when it was seen last, {before.end} was the"
        " end of the log"
    )
    lost = "what was committed between may be sent by nobody"
    if before.server != later.server:
        why = f"slot {later.name} may have been made by the server that took another's place"
        return f"{why}: {begins}, and {lost}"
    more = later.decoded > later.begun - before.begun
    if before.counted != later.counted or (later.decoded >= before.decoded and more):
        return None
    counts = f"it has decoded {later.decoded} transactions, {before.decoded} by then"
    how = "was" if later.decoded < before.decoded else "may have been"
    return f"slot {later.name} {how} made anew: {begins}; {counts}; {lost}"


LOG_KEEPER: type[LogKeeperRules] = KnownSlots
