"""Answers one readiness question per table, and revokes certificates that lost their basis.

The assessor collects the arguments of `checks.readiness.assess`. Between rounds it keeps only
the lags of the last round and since when the two rules contradict each other.

The store is asked for certificates only when the basis of one may be lost. A mirror revokes
them if it is missing, unreadable, recreated, or without its newest versions. So does a change
log that has lost batches, or a rule that routes another shard to the table.

A round goes through its tables with one sampling, while gate requests use newer ones. An older
sampling never revokes. It makes the next newer sampling examine the certificates of the table
again.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from types import MappingProxyType

import structlog

from checks.blocks import Inputs, Pause, find_copy_losses, find_unwaived
from checks.certificate import CertificateBasis, revoke_lost, revoke_waived
from checks.ledger import NO_LOSSES, TableLosses
from checks.model import Reason
from checks.ordering import (
    SourceOrdering,
    accepted_ordering,
    collector_promises,
    partition_counts,
    scattered_reasons,
    unaccepted_reasons,
    weakest_ordering,
)
from checks.readiness import (
    Question,
    Readiness,
    ReadinessPolicy,
    ReadinessState,
    answer_for_display,
    assess,
)
from monitor.observe.sampler import Sampling
from monitor.observe.verdicts import LatestVerdicts
from monitor.store.certificates import Certificates
from monitor.store.holds import HoldRegistry
from pipeline.apply.foreign_commits import foreign_hold
from pipeline.checkpoint import Checkpoint
from pipeline.copies.copy import CopyPosition
from pipeline.lags.lag import Lags, measure_lags
from pipeline.lags.lag import measure_copy as lags_of_copy
from pipeline.lags.samples import MirrorPosition
from pipeline.landing.gaps import NEW_RULE
from pipeline.model import Missing, Shard, Stage, Table
from pipeline.reports import Hold
from pipeline.settings import SourceSettings
from pipeline.transports.topics import spell_topic

log = structlog.get_logger(__name__)


@dataclass(eq=False)
class CertificateRevocation:
    """Revokes certificates that lost their basis; stores each table's last known basis."""

    certificates: Certificates
    _ground: dict[str, CertificateBasis] = field(default_factory=dict)
    _newest: dict[str, int] = field(default_factory=dict)  # number of the newest look
    _when: dict[str, datetime] = field(default_factory=dict)  # time of the newest look
    _ruled: tuple[int, Mapping[str, int]] = field(default=(-1, {}))
    _blocking: dict[str, frozenset[str]] = field(default_factory=dict)
    _accepted: dict[str, frozenset[int] | None] = field(default_factory=dict)  # foreign commits

    def take_back(
        self,
        table: str,
        look: Sampling,
        at: datetime,
        lacking: Callable[[str], frozenset[str]] = lambda _: frozenset(),
        *,
        gains: bool = False,
    ) -> None:
        """Revoke the certificates of *table* that, according to *look*, have lost their evidence.

        *lacking* returns the copies of a table that miss rows. *gains*: new rules send it a shard,
        and no batch has landed under them yet.
        """
        if look.number < self._newest.get(table, 0):
            self._ground.pop(table, None)
            return
        self._newest[table] = look.number
        if self._ruled[0] != look.number:
            self._ruled = (look.number, _find_rule_changes(look))
        ruled = self._ruled[1].get(table, -1)
        if gains and not isinstance(look.checkpoint, Missing):
            ruled = look.checkpoint.value.batch + 1
        now, before = _ground(table, look, ruled, lacking(table)), self._ground.get(table)
        since = self._when.get(table, at)
        self._when[table] = max(since, at)
        if before is not None and _onward(before, now) and not _ended(before, since, at):
            self._ground[table] = _known(now, before)
            return
        gone = revoke_lost(self.certificates.holding(table), now, at)
        if gone:
            count = self.certificates.revoke(gone)
            log.warning("certificates_revoked", table=table, count=count, why=gone[0].why)
        self._ground[table] = now if before is None else _known(now, before)

    def take_back_waived(self, inputs: Inputs, blocking: frozenset[str], at: datetime) -> None:
        """Revoke the certificates of a table that rest on a waiver that has ended.

        *blocking* are the ids of what blocks it now.
        """
        table, mirror = inputs.table.name, inputs.samples.mirror
        before = self._accepted.get(table)
        now = before if isinstance(mirror, Missing) else mirror.value.accepted
        shrinks = now is not None and (before is None or not before <= now)
        if shrinks or not blocking <= self._blocking.get(table, frozenset()):
            valid = self.certificates.holding(table)
            gone = revoke_waived(valid, blocking, inputs.waived, at)
            if gone:
                count = self.certificates.revoke(gone)
                log.warning("certificates_revoked", table=table, count=count, why=gone[0].why)
        self._blocking[table], self._accepted[table] = blocking, now


def _find_rule_changes(look: Sampling) -> dict[str, int]:
    """Return, by table, the newest batch from which changed rules send it a shard, if open."""
    found: dict[str, int] = {}
    if isinstance(look.checkpoint, Missing):
        return found
    checkpoint = look.checkpoint.value
    for name, gap in checkpoint.gaps.items():
        if name.startswith(NEW_RULE):
            shards = map(Shard.parse, gap.shards)
            for table in {checkpoint.shards.get(shard) for shard in shards} - {None}:
                found[str(table)] = max(found.get(str(table), gap.batch), gap.batch)
    return found


def _ground(table: str, look: Sampling, ruled: int, lacking: frozenset[str]) -> CertificateBasis:
    sample = look.mirrors.get(table)
    mirror: MirrorPosition | str | None = look.unreadable.get(table)
    if sample is not None and not isinstance(sample, Missing):
        mirror = sample.value
    answers = {
        name: answer.value.get(table)
        for name, answer in look.copies.items()
        if not isinstance(answer, Missing)
    }
    copies = {name: at for name, at in answers.items() if not isinstance(at, Missing)}
    if isinstance(look.checkpoint, Missing):
        return CertificateBasis(mirror, None, copies=copies, lacking=lacking)
    checkpoint = look.checkpoint.value
    lives = checkpoint.incarnations
    return CertificateBasis(mirror, checkpoint.batch, lives, ruled, copies, lacking)


def _onward(before: CertificateBasis, now: CertificateBasis) -> bool:
    if now.batch is not None and (before.batch is None or now.batch < before.batch):
        return False
    fell = any(_fell(before.copies.get(name), at) for name, at in now.copies.items())
    if now.ruled > before.ruled or fell or now.lacking - before.lacking:
        return False
    if now.batch is not None and now.incarnations != before.incarnations:
        return False  # landing has restarted, perhaps on a log that has lost its newest batches
    if now.mirror is None or now.mirror == before.mirror:
        return True
    if not isinstance(now.mirror, MirrorPosition) or not isinstance(before.mirror, MirrorPosition):
        return False
    same = (now.mirror.mirror, now.mirror.put_back) == (
        before.mirror.mirror,
        before.mirror.put_back,
    )
    later = now.mirror.version >= before.mirror.version and now.mirror.batch >= before.mirror.batch
    kept = all(one in now.mirror.images for one in before.mirror.images)
    return same and later and kept


def _fell(before: CopyPosition | None, now: CopyPosition | None) -> bool:
    """Whether a copy may have less than before."""
    if before is None or not before.whole:
        return False  # no certificate rests on it
    same = now is not None and now.whole and now.mirror == before.mirror
    return not same or now is None or now.version < before.version


def _ended(ground: CertificateBasis, since: datetime, at: datetime) -> bool:
    mirror = ground.mirror
    if not isinstance(mirror, MirrorPosition):
        return False
    return any(one.held(since) and not one.held(at) for one in mirror.images)


def _known(now: CertificateBasis, before: CertificateBasis) -> CertificateBasis:
    """Return *now*, with values of *before* where *now* has none."""
    return CertificateBasis(
        before.mirror if now.mirror is None else now.mirror,
        before.batch if now.batch is None else now.batch,
        before.incarnations if now.batch is None else now.incarnations,
        before.ruled if now.batch is None else now.ruled,
        {**before.copies, **now.copies},
        now.lacking,
    )


@dataclass(frozen=True, slots=True)
class RoundFacts:
    """Facts that all tables share: waivers, holds, pauses, residuals; ``holds`` are by table."""

    at: datetime
    waived: frozenset[str]
    residuals: Mapping[str, int]
    sources: tuple[Hold, ...]
    holds: Mapping[str, tuple[Hold, ...]]
    pauses: Mapping[str, Pause] = field(default_factory=dict)
    losses: Mapping[str, TableLosses] = field(default_factory=dict)

    def holds_of(self, table: Table) -> Iterator[Hold]:
        """Yield the holds of all sources, which are few, and those of *table*."""
        yield from self.sources
        yield from self.holds.get(table.name, ())


@dataclass(eq=False)
class Assessor:
    """Answers readiness questions from a sampling and the facts of the moment."""

    policy: ReadinessPolicy
    sources: tuple[SourceSettings, ...]
    certificates: Certificates
    rulings: LatestVerdicts
    hold_registry: HoldRegistry
    waived: Callable[[], frozenset[str]]
    residuals: Callable[[], Mapping[str, int]]
    unproven: Callable[[Table, Checkpoint | None], str | Missing]
    unlisted: Callable[[Table, Checkpoint | None], str]
    doubts: Callable[[Sequence[str], datetime], tuple[Reason, ...]]
    clock: Callable[[], datetime]
    orderings: Mapping[str, SourceOrdering]
    pauses: Callable[[datetime], Mapping[str, Pause]] = lambda _: {}
    losses: Callable[[], Mapping[str, TableLosses]] = dict
    copy_losses: Callable[[str, str], TableLosses] = lambda _table, _copy: NO_LOSSES
    gains_shard: Callable[[str], bool] = lambda _: False
    _earlier: dict[str, Lags] = field(default_factory=dict)
    _disagreeing: dict[str, Mapping[Question, datetime]] = field(default_factory=dict)
    _counted: tuple[int, Mapping[str, int]] = field(default=(-1, {}))
    _named: dict[str, tuple[Table, frozenset[str], frozenset[str]]] = field(default_factory=dict)
    _forfeits: CertificateRevocation = field(init=False)

    def __post_init__(self) -> None:
        """Create the revocation, without a known basis."""
        self._forfeits = CertificateRevocation(self.certificates)

    def facts(self, at: datetime) -> RoundFacts:
        """Read the facts that all tables share, once for all of them.

        Answers are as of *at*. This time must be read after the sampling that they rest on, so that
        nothing sampled is in the future.
        """
        sources, tables = list[Hold](), dict[str, tuple[Hold, ...]]()
        for hold in self.hold_registry.holds():
            if hold.subject.startswith("source:"):
                sources.append(hold)
            else:
                tables[hold.subject] = (*tables.get(hold.subject, ()), hold)
        waived, residuals = self.waived(), self.residuals()
        pauses, losses = self.pauses(at), self.losses()
        return RoundFacts(at, waived, residuals, tuple(sources), tables, pauses, losses)

    def inputs(self, table: Table, look: Sampling, facts: RoundFacts) -> Inputs:
        """Return everything known about *table* at the time of *facts*; revokes certificates."""
        lacking = partial(self._lacking, copies=look.copies, waived=facts.waived)
        gains = self.gains_shard(table.name)
        self._forfeits.take_back(table.name, look, facts.at, lacking, gains=gains)
        samples, checkpoint = look.samples(table), look.checkpoint
        newest = None if isinstance(checkpoint, Missing) else checkpoint.value
        doubts = self.doubts(table.sources, facts.at)
        counts = {} if newest is None else self._partitions(newest)
        earlier = None if doubts else self._earlier.get(table.name)
        topics, statements = self._named_topics(table)
        inputs = Inputs(
            table=table,
            samples=samples,
            lags=measure_lags(table, samples, facts.at, earlier),
            topics=topics,
            statements=statements,
            holds=_once((*facts.holds_of(table), *_intruded(table, look))),
            waived=facts.waived,
            residual=facts.residuals.get(table.name, 0),
            verdicts=self.rulings.of(table.name),
            unproven=self.unproven(table, newest),
            unlisted=self.unlisted(table, newest),
            ordering=weakest_ordering(table, self.orderings),
            weak_order=(
                *unaccepted_reasons(table, self.orderings),
                *scattered_reasons(table, counts),
            ),
            promises=collector_promises(table, self.orderings),
            accepted=accepted_ordering(table, self.orderings),
            clocks=doubts,
            pause=facts.pauses.get(table.name),
            bad_until=self.rulings.bad_until(table.name),
            verified=self.rulings.verified(table.name),
            losses=facts.losses.get(table.name, NO_LOSSES),
        )
        blocking = find_unwaived(inputs, self.policy.gating)
        self._forfeits.take_back_waived(inputs, blocking, facts.at)
        return inputs

    def copied(self, copy: str, inputs: Inputs, look: Sampling) -> Inputs:
        """Return the inputs of a *copy* of the table: its position takes the mirror's place."""
        table, answer = inputs.table, look.copies.get(copy, Missing(f"copy {copy} was not asked"))
        samples = inputs.samples.of_copy(answer, table.name)
        earlier = None if inputs.clocks else self._earlier.get(_of_copy(table.name, copy))
        own = measure_lags(table, samples, inputs.lags.at, earlier)
        lags, losses = lags_of_copy(inputs.lags, own), self.copy_losses(table.name, copy)
        return replace(inputs, samples=samples, lags=lags, copy_losses=losses)

    def _lacking(
        self, table: str, *, copies: Iterable[str], waived: frozenset[str]
    ) -> frozenset[str]:
        found = ((name, self.copy_losses(table, name)) for name in copies)
        return frozenset(name for name, one in found if find_copy_losses(table, one, waived))

    def decided(
        self, question: Question, table: Table, look: Sampling, facts: RoundFacts
    ) -> Readiness:
        """Answer *question* for *table*, or for the copy that *question* names."""
        inputs = self.inputs(table, look, facts)
        if question.stage is Stage.COPY:
            inputs = self.copied(question.copy, inputs, look)
        return self.answer(question, inputs)

    def answer(self, question: Question, inputs: Inputs) -> Readiness:
        """Answer *question*, considering the certificate that was issued for it before.

        While the store takes nothing, it is the first reason of an UNKNOWN: no heartbeat is kept.
        """
        name = inputs.table.name
        answer = assess(
            question,
            inputs,
            self.policy,
            certificate=self.certificates.newest(name, question.stage, question.cut, question.copy),
            disagreeing=self._disagreeing.get(name, {}).get(question),
        )
        return _blame_store(answer, self.certificates.database.problem)

    def passing(self, question: Question, inputs: Inputs) -> Readiness:
        """Answer *question* for display only, without certificates."""
        return answer_for_display(question, inputs, self.policy)

    def certify(self, answers: Iterable[Readiness]) -> None:
        """Store the new certificates of READY answers, before any answer is given.

        Certificates that were issued earlier are already stored.
        """
        issued = [answer.certificate for answer in answers if _issued(answer)]
        if issued:
            self.certificates.add(*[one for one in issued if one is not None])

    def settle(
        self,
        inputs: Inputs,
        answers: Mapping[Question, Readiness],
        copies: Mapping[str, Inputs] = MappingProxyType({}),
    ) -> None:
        """End a monitoring round: keep its lags and disagreements for the next round."""
        name = inputs.table.name
        for key, one in {name: inputs, **{_of_copy(name, c): i for c, i in copies.items()}}.items():
            if inputs.clocks:
                self._earlier.pop(key, None)  # its watermarks come from wrong clocks
            else:
                self._earlier[key] = one.lags
        since = {q: one.disagreeing for q, one in answers.items() if one.disagreeing is not None}
        if since or name in self._disagreeing:
            self._disagreeing[name] = since

    def _partitions(self, checkpoint: Checkpoint) -> Mapping[str, int]:
        """Return `partition_counts`, computed once per batch for all tables."""
        batch, counts = self._counted
        if batch != checkpoint.batch:
            counts = partition_counts(self.orderings, checkpoint.offsets)
            self._counted = checkpoint.batch, counts
        return counts

    def _named_topics(self, table: Table) -> tuple[frozenset[str], frozenset[str]]:
        """Return the table's topics and those of its schema changes; cached until shards change."""
        known = self._named.get(table.name)
        if known is None or known[0].shards != table.shards:
            known = self._named[table.name] = (table, self._topics(table), self._statements(table))
        return known[1:]

    def _topics(self, table: Table) -> frozenset[str]:
        """Return topics of rows and schema changes; empty if a source has custom topic names."""
        settings = {source.name: source for source in self.sources}
        if any(settings[shard.source].topics for shard in table.shards):
            return frozenset()
        rows = {f"{settings[one.source].prefix}.{spell_topic(one.name)}" for one in table.shards}
        return self._statements(table) | rows

    def _statements(self, table: Table) -> frozenset[str]:
        """Return the topics of the schema changes of the table's sources."""
        return frozenset(one.prefix for one in self.sources if one.name in table.sources)


def _of_copy(table: str, copy: str) -> str:
    return f"{table} in {copy}"  # no table has such a name


def withhold_ready(answer: Readiness, why: str) -> Readiness:
    """Turn READY into UNKNOWN if its certificate is new and could not be stored."""
    if not _issued(answer):
        return answer
    reasons = (Reason("store", f"the certificate could not be stored: {why}"),)
    unknown = ReadinessState.UNKNOWN
    return replace(answer, state=unknown, certificate=None, reasons=reasons)


def _blame_store(answer: Readiness, problem: str) -> Readiness:
    """Put the *problem* of the store, if it has one, before the reasons of an UNKNOWN."""
    if not problem or answer.state is not ReadinessState.UNKNOWN:
        return answer
    reason = Reason("store", f"nothing can be stored: {problem}")
    return replace(answer, reasons=(reason, *answer.reasons))


def _issued(answer: Readiness) -> bool:
    """Whether the certificate was issued with this answer, and not before."""
    return answer.certificate is not None and answer.certificate.issued == answer.at


def _once(holds: Iterable[Hold]) -> tuple[Hold, ...]:
    """Drop repeated holds, because the Spark process and a look may report the same one."""
    known: dict[tuple[str, str], Hold] = {}
    for hold in holds:
        known.setdefault((hold.subject, hold.id), hold)
    return tuple(known.values())


def _intruded(table: Table, look: Sampling) -> Iterator[Hold]:
    """Yield the foreign write that the look found; Spark may not have merged the table since."""
    intrusion = look.intrusions.get(table.name)
    if intrusion is not None:
        yield foreign_hold(table.name, intrusion)
