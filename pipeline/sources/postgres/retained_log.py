"""Recognizes a replication slot that was replaced by one of the same name between two checks.

The catalog identifies a slot by name only. A slot is the same if it retains log from below the
log end of the previous check, because a new slot retains nothing below its start. It is also the
same if the same process reads it, because a slot that is being read cannot be dropped. A slot is
not new if it has decoded at least as many transactions as before, and more than have begun since.
If another server took over and the slot begins above the previous log end, it may be new, and the
check reports that.
Cannot detect: a slot that was created again while its server crashed or while its statistics
were reset.
"""

from dataclasses import dataclass

import msgspec

from pipeline.model import RetainedLog
from pipeline.sources.postgres.position import KIND, log_position, parse_lsn
from pipeline.sources.source import RetainedLogRules


@dataclass(frozen=True, slots=True)
class SlotSnapshot:
    """A slot at one check; LSNs are Postgres's texts.

    ``end`` is the end of the server's log just before the check, ``restart`` the LSN from which the
    slot retains log.  ``server`` is the system and its timeline.  ``reader`` is the process that
    reads the slot, empty without one.  ``decoded`` counts its transactions since ``counted``, which
    changes when counts are lost.  ``begun`` is above the number of each transaction that had begun.
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
    def keeper(self) -> RetainedLog:
        """This snapshot as a `RetainedLog`, which begins at ``restart``."""
        words = msgspec.json.encode(self).decode()
        return RetainedLog(KIND, words, log_position(parse_lsn(self.restart)))


class SlotRules:
    """Rules that decide whether a slot is still the same one."""

    def explain_replaced(self, known: str, now: str) -> str | None:
        """Why the slot may have been created since the check *known*; None if it was not.

        *known* and *now* are encoded `SlotSnapshot`s.
        """
        try:
            before, later = (
                msgspec.json.decode(words, type=SlotSnapshot) for words in (known, now)
            )
        except msgspec.DecodeError:  # another version of Sluice wrote *known*
            return None
        if before.name != later.name:
            return (
                f"the slot changed from {before.name} to {later.name}, so changes that only"
                f" {before.name} had may be lost; run `sluice bootstrap TABLE --reason ...`"
            )
        return None if _existed(before, later) else _explain_created(before, later)


def _existed(before: SlotSnapshot, later: SlotSnapshot) -> bool:
    """Whether the slot existed at the check *before*, by its retained log or its reader."""
    read = later.reader != "" and later.reader == before.reader
    return read or parse_lsn(later.restart) < parse_lsn(before.end)


def _explain_created(before: SlotSnapshot, later: SlotSnapshot) -> str | None:
    """Why the slot was, or may have been, created since *before*.

    None if its counts exclude that, or if they were lost.
    """
    begins = (
        f"it retains nothing below {later.restart}, and at the previous check the log ended at"
        f" {before.end}"
    )
    lost = "changes between may never be sent"
    if before.server != later.server:
        why = f"slot {later.name} may have been created by the server that took over"
        return f"{why}: {begins}, and {lost}"
    more = later.decoded > later.begun - before.begun
    if before.counted != later.counted or (later.decoded >= before.decoded and more):
        return None
    counts = f"it has decoded {later.decoded} transactions, {before.decoded} by then"
    how = "was" if later.decoded < before.decoded else "may have been"
    return f"slot {later.name} {how} created again: {begins}; {counts}; {lost}"


RETAINED_LOG: type[RetainedLogRules] = SlotRules
