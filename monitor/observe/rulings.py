"""The newest verdict of each table and check, and the newest that was not UNKNOWN."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from checks.model import Outcome, Verdict
from monitor.store.verdicts import Verdicts


@dataclass(eq=False)
class Rulings:
    """An UNKNOWN after a FAIL has disproved nothing, so both are kept."""

    _newest: dict[str, dict[str, Verdict]] = field(default_factory=dict)
    _ruled: dict[str, dict[str, Verdict]] = field(default_factory=dict)
    _passed: dict[str, dict[str, Verdict]] = field(default_factory=dict)
    _bad: dict[str, dict[str, datetime]] = field(default_factory=dict)

    def load(self, kept: Verdicts) -> None:
        """Remember what earlier lives ruled, in the order they did."""
        latest, ends = kept.latest(), kept.fail_ends()
        self.add(latest)
        self._bad.clear()  # the newest PASS is not the one that ended the FAIL
        for verdict in latest:
            if verdict.ruling.outcome is Outcome.FAIL:
                self._was_bad(verdict.table, verdict.check, verdict.at)
        for (table, check), at in ends.items():
            if not self._fails(table, check):
                self._was_bad(table, check, at)

    def add(self, verdicts: Iterable[Verdict]) -> None:
        """Take *verdicts* in the order they were ruled."""
        for verdict in verdicts:
            outcome = verdict.ruling.outcome
            ended = self.ends_fail(verdict)
            _keep(self._newest, verdict)
            if outcome is Outcome.FAIL or ended:
                self._was_bad(verdict.table, verdict.check, verdict.at)
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

    def bad_until(self, table: str) -> Mapping[str, datetime]:
        """Check -> until when its last FAIL stood, or was seen at least; absent without any."""
        return self._bad.get(table, {})

    def ends_fail(self, verdict: Verdict) -> bool:
        """Whether *verdict* is the first PASS after a FAIL."""
        passed = verdict.ruling.outcome is Outcome.PASS
        return passed and self._fails(verdict.table, verdict.check)

    def _fails(self, table: str, check: str) -> bool:
        ruled = self._ruled.get(table, {}).get(check)
        return ruled is not None and ruled.ruling.outcome is Outcome.FAIL

    def _was_bad(self, table: str, check: str, at: datetime) -> None:
        self._bad[table] = {**self._bad.get(table, {}), check: at}

    def of(self, table: str) -> tuple[Verdict, ...]:
        """Newest of each check of *table*, and beside an UNKNOWN the newest that ruled."""
        newest, ruled = self._newest.get(table, {}), self._ruled.get(table, {})
        older = [one for check, one in ruled.items() if one is not newest.get(check)]
        return (*newest.values(), *older)


def _keep(told: dict[str, dict[str, Verdict]], verdict: Verdict) -> None:
    """Replace one table's verdicts whole: another thread may be reading them."""
    told[verdict.table] = {**told.get(verdict.table, {}), verdict.check: verdict}
