"""The newest verdict of each table and check, and the newest that was not UNKNOWN."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from checks.model import Outcome, Verdict
from monitor.store.verdicts import Verdicts


@dataclass(eq=False)
class Rulings:
    """An UNKNOWN after a FAIL has disproved nothing, so both are kept."""

    _newest: dict[str, dict[str, Verdict]] = field(default_factory=dict)
    _ruled: dict[str, dict[str, Verdict]] = field(default_factory=dict)
    _passed: dict[str, dict[str, Verdict]] = field(default_factory=dict)

    def load(self, kept: Verdicts) -> None:
        """Remember what earlier lives ruled, in the order they did."""
        self.add(kept.latest())

    def add(self, verdicts: Iterable[Verdict]) -> None:
        """Take *verdicts* in the order they were ruled."""
        for verdict in verdicts:
            outcome = verdict.ruling.outcome
            _keep(self._newest, verdict)
            if outcome is not Outcome.UNKNOWN:
                _keep(self._ruled, verdict)
            if outcome is Outcome.PASS:
                _keep(self._passed, verdict)

    def newest(self, table: str, check: str) -> Verdict | None:
        """What was ruled last; None if never."""
        return self._newest.get(table, {}).get(check)

    def last_pass(self, table: str, check: str) -> Verdict | None:
        """The last PASS; None if there never was one."""
        return self._passed.get(table, {}).get(check)

    def of(self, table: str) -> tuple[Verdict, ...]:
        """Newest of each check of *table*, and beside an UNKNOWN the newest that ruled."""
        newest, ruled = self._newest.get(table, {}), self._ruled.get(table, {})
        older = [one for check, one in ruled.items() if one is not newest.get(check)]
        return (*newest.values(), *older)


def _keep(told: dict[str, dict[str, Verdict]], verdict: Verdict) -> None:
    """Replace one table's verdicts whole: another thread may be reading them."""
    told[verdict.table] = {**told.get(verdict.table, {}), verdict.check: verdict}
