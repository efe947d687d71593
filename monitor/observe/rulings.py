"""The newest verdict of each table and check, and the newest that was not UNKNOWN."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from checks.model import Outcome, Verdict
from monitor.store.verdicts import Verdicts


@dataclass(eq=False)
class Rulings:
    """An UNKNOWN after a FAIL has disproved nothing, so both are kept."""

    _newest: dict[tuple[str, str], Verdict] = field(default_factory=dict)
    _ruled: dict[tuple[str, str], Verdict] = field(default_factory=dict)
    _passed: dict[tuple[str, str], Verdict] = field(default_factory=dict)

    def load(self, kept: Verdicts) -> None:
        """Remember what earlier lives ruled, oldest first for each check."""
        for newest in kept.latest():
            for outcomes in ((Outcome.PASS,), (Outcome.PASS, Outcome.FAIL)):
                found = kept.last(newest.table, newest.check, outcomes)
                self.add([found] if found else [])
            self.add([newest])

    def add(self, verdicts: Iterable[Verdict]) -> None:
        """Take *verdicts* in the order they were ruled."""
        for verdict in verdicts:
            key = verdict.table, verdict.check
            self._newest[key] = verdict
            if verdict.ruling.outcome is not Outcome.UNKNOWN:
                self._ruled[key] = verdict
            if verdict.ruling.outcome is Outcome.PASS:
                self._passed[key] = verdict

    def newest(self, table: str, check: str) -> Verdict | None:
        """What was ruled last; None if never."""
        return self._newest.get((table, check))

    def last_pass(self, table: str, check: str) -> Verdict | None:
        """The last PASS; None if there never was one."""
        return self._passed.get((table, check))

    def of(self, table: str) -> tuple[Verdict, ...]:
        """Newest of each check of *table*, and beside an UNKNOWN the newest that ruled."""
        found = [v for (name, _), v in list(self._newest.items()) if name == table]
        ruled = [v for (name, _), v in list(self._ruled.items()) if name == table]
        return tuple(dict.fromkeys((*found, *ruled)))

    def all(self) -> tuple[Verdict, ...]:
        """The newest of each table and check."""
        return tuple(self._newest.values())
