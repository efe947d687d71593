"""What did the last turn of a mirror come to?  Its own commit tells; pure.

An account is closed after its MERGE has committed, so a process may die between the two.  What was
counted before the MERGE stands in the commit's note, what the MERGE did in the commit's metrics.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass

from pipeline.apply.account import Counted
from pipeline.lake.commits import Commit

_APPLIED = ("numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted")


@dataclass(frozen=True, slots=True)
class LastTurn:
    """Batches ``(since, batch]``, merged onto version ``before``; ``applied`` rows changed."""

    batch: int
    since: int
    before: int
    counted: Counted
    applied: int

    @property
    def explained(self) -> bool:
        """Whether the commit did all that was counted; if not, the mirror before it tells more."""
        return self.applied + self.counted.vanished == self.counted.kept


def told(since: int, counted: Counted) -> Mapping[str, object]:
    """What a commit that carries an applied batch notes of its turn."""
    return {"since": since, "counted": asdict(counted)}


def last_turn(commits: Iterable[Commit]) -> LastTurn | None:
    """The newest turn among *commits*, newest first; None if they hold none that tells."""
    for commit in commits:
        note = commit.own
        if "counted" in note:
            applied = sum(int(commit.metrics.get(name, 0)) for name in _APPLIED)
            counted = Counted(**note["counted"])
            return LastTurn(note["batch"], note["since"], note["after"], counted, applied)
    return None
