"""Finds each READY that was false or forgotten, by the ledger and what the certificates name."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property

from deltalake import DeltaTable

from checks.certificate import Certificate
from demo.oracle.compare import mirror_path
from demo.oracle.rows import RowId, read_touched
from demo.shop.ledger import Entry
from demo.shop.schema import SHELVES
from pipeline.lags.lag import MOVING
from pipeline.model import Stage
from tests.oracle.landed import Landed, read_landed
from tests.oracle.promise import Judge, Violation
from tests.proof.asking import Decision

KEYS = {shelf.mirror: shelf.key for shelf in SHELVES}
LAST = 2**62  # above every batch's number


@dataclass(frozen=True, slots=True)
class Base:
    """A new reading of ``tables``: when it was asked for, and when it was complete."""

    begun: datetime
    complete: datetime
    tables: frozenset[str] = frozenset(KEYS)


@dataclass(eq=False)
class Tribunal:
    """Judges decisions of one run; ``bases`` are its snapshots, the first one first.

    ``moved`` are mirrors that others took the place of, by the id of their table: where they lie
    now.
    """

    lake: str
    ledger: Mapping[int, Entry]
    certificates: Mapping[str, Certificate]
    bases: Sequence[Base]
    moved: Mapping[str, str] = field(default_factory=dict)
    _rows: dict[tuple[str, int], Mapping[RowId, int]] = field(default_factory=dict)

    def false(self, decisions: Sequence[Decision]) -> Iterator[str]:
        """Each READY that was not true, and why; a certificate is judged once."""
        given = {each.certificate: each for each in decisions if each.ready}
        for number, decision in given.items():
            certificate = self.certificates.get(number or "")
            if certificate is None:
                yield f"{decision}: its certificate is not in the store"
            elif _signature(certificate) != _expected(decision):
                yield f"{decision}: its certificate is of something else: {certificate}"
            elif violations := self.violations(certificate):
                rest = f"{len(violations)} rows, such as {violations[:3]}"
                yield f"{decision} with {certificate.evidence}: {rest}"

    def asleep(self, decisions: Sequence[Decision]) -> Iterator[str]:
        """Tables and stages whose latest cut the judge would let pass with the first evidence.

        A cut that was READY once is asked for again: what was answered last may be an early one.
        """
        numbers = {each.certificate for each in decisions if each.ready}
        found = [one for number, one in self.certificates.items() if number in numbers]
        given = sorted(found, key=lambda one: (one.cut, one.issued))
        for table in KEYS:
            for stage in MOVING:
                mine = [one for one in given if (one.table, one.stage) == (table, stage)]
                if not mine:
                    yield f"{table} {stage}: never READY"
                elif not self.violations(replace(mine[-1], evidence=mine[0].evidence)):
                    yield f"{table} {stage}: {mine[0].evidence} passes for {mine[-1].cut}"

    def violations(self, certificate: Certificate) -> list[Violation]:
        """Rows that contradict *certificate*."""
        table, cut, evidence = certificate.table, certificate.cut, certificate.evidence
        if certificate.stage is Stage.LANDED:
            based = self._based(table, certificate.issued)
            return self._judge.landed(table, cut, self._landed, evidence.batch, based)
        if evidence.version is None:
            return [Violation(("", ()), 0, "names no version of the mirror")]
        path = self.moved.get(evidence.mirror, mirror_path(self.lake, table))
        if str(DeltaTable(path).metadata().id) != evidence.mirror:
            return [Violation(("", ()), 0, f"names a mirror that is not at {path}")]
        rows = self._version(path, KEYS[table], evidence.version)
        return self._judge.ready(table, cut, rows, certificate.issued)

    def unlanded(self, table: str, until: datetime) -> list[Violation]:
        """What was committed before *until*, and is nowhere in the change log for all that came."""
        return self._judge.landed(table, until, self._landed, LAST, self._based(table, until))

    def _based(self, table: str, moment: datetime) -> datetime:
        """Up to when its newest base that was begun before *moment* may explain what is absent."""
        own = [one for one in self.bases if table in one.tables]
        return [one.complete for one in own if one.begun <= moment][-1]

    @cached_property
    def _judge(self) -> Judge:
        return Judge(self.ledger)

    @cached_property
    def _landed(self) -> Landed:
        return read_landed(self.lake)

    def _version(self, path: str, key: Sequence[str], version: int) -> Mapping[RowId, int]:
        if (path, version) not in self._rows:
            self._rows[path, version] = read_touched(path, key, version)
        return self._rows[path, version]


def forgotten(decisions: Sequence[Decision]) -> Iterator[str]:
    """Answers that came after a READY to the same question and do not repeat it."""
    given: dict[object, Decision] = {}
    for each in sorted(decisions, key=lambda decision: decision.answered):
        first = given.get(each.question)
        if each.ready and first is None:
            given[each.question] = each
        elif first and each.asked > first.answered and each.certificate != first.certificate:
            yield f"{each}, but before it {first}"


def _signature(one: Certificate) -> tuple[str, str, datetime, int | None]:
    return one.table, one.stage.value, one.cut, one.evidence.version


def _expected(one: Decision) -> tuple[str, str, datetime, int | None]:
    return one.question.table, one.question.stage, one.question.cut, one.version
