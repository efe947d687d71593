"""One question about one table, answered from a look and from what is remembered.

Gathers for `checks.readiness.assess` what it takes as arguments, and keeps between rounds only
what it asks to be kept: last round's lags, and since when its two rules contradict each other.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from types import MappingProxyType

from checks.blocks import Inputs, Pause
from checks.model import Reason
from checks.ordering import (
    SourceOrdering,
    accepted,
    partitions,
    promises,
    scattered,
    unaccepted,
    weakest,
)
from checks.readiness import Question, Readiness, ReadinessPolicy, ReadinessState, assess, passing
from monitor.observe.forfeits import Forfeits
from monitor.observe.rulings import Rulings
from monitor.observe.sampler import Sampling
from monitor.spark.standstills import Standstills
from monitor.store.certificates import Certificates
from pipeline.apply.foreign_commits import foreign_hold
from pipeline.checkpoint import Mark
from pipeline.lags.lag import Lags, measure
from pipeline.lags.lag import copied as lags_of_copy
from pipeline.model import Missing, Order, Stage, Table
from pipeline.reports import Hold
from pipeline.settings import SourceSettings
from pipeline.transports.topics import spelled


@dataclass(frozen=True, slots=True)
class RoundFacts:
    """What people and the Spark process have told; ``holds`` are those of tables, by table."""

    at: datetime
    waived: frozenset[str]
    residuals: Mapping[str, int]
    sources: tuple[Hold, ...]
    holds: Mapping[str, tuple[Hold, ...]]
    pauses: Mapping[str, Pause] = field(default_factory=dict)

    def holds_of(self, table: Table) -> Iterator[Hold]:
        """Those of sources, of which there are few, and those of *table*."""
        yield from self.sources
        yield from self.holds.get(table.name, ())


@dataclass(eq=False)
class Assessor:
    """Answers as of the moment it is asked."""

    policy: ReadinessPolicy
    sources: tuple[SourceSettings, ...]
    certificates: Certificates
    rulings: Rulings
    standstills: Standstills
    waived: Callable[[], frozenset[str]]
    residuals: Callable[[], Mapping[str, int]]
    unproven: Callable[[Table, Mapping[str, Order]], str | Missing]
    unlisted: Callable[[Table, Mark | None], str]
    doubts: Callable[[Sequence[str], datetime], tuple[Reason, ...]]
    clock: Callable[[], datetime]
    orderings: Mapping[str, SourceOrdering]
    pauses: Callable[[datetime], Mapping[str, Pause]] = lambda _: {}
    _earlier: dict[str, Lags] = field(default_factory=dict)
    _disagreeing: dict[str, Mapping[Question, datetime]] = field(default_factory=dict)
    _counted: tuple[int, Mapping[str, int]] = field(default=(-1, {}))
    _named: dict[str, tuple[Table, frozenset[str], frozenset[str]]] = field(default_factory=dict)
    _forfeits: Forfeits = field(init=False)

    def __post_init__(self) -> None:
        """Know of no certificate yet."""
        self._forfeits = Forfeits(self.certificates)

    def facts(self, at: datetime) -> RoundFacts:
        """What is known now that concerns no table more than another: asked once for all.

        Answers are as of *at*, read after the look that they rest on: none of it is of the future.
        """
        sources, tables = list[Hold](), dict[str, tuple[Hold, ...]]()
        for hold in self.standstills.holds():
            if hold.subject.startswith("source:"):
                sources.append(hold)
            else:
                tables[hold.subject] = (*tables.get(hold.subject, ()), hold)
        waived, residuals = self.waived(), self.residuals()
        return RoundFacts(at, waived, residuals, tuple(sources), tables, self.pauses(at))

    def inputs(self, table: Table, look: Sampling, facts: RoundFacts) -> Inputs:
        """Everything known of *table* at the time of *facts*."""
        self._forfeits.take_back(table.name, look, facts.at)
        samples, mark = look.samples(table), look.mark
        doubts = self.doubts(table.sources, facts.at)
        counts = {} if isinstance(mark, Missing) else self._partitions(mark.value)
        earlier = None if doubts else self._earlier.get(table.name)
        topics, statements = self._named_topics(table)
        return Inputs(
            table=table,
            samples=samples,
            lags=measure(table, samples, facts.at, earlier),
            topics=topics,
            statements=statements,
            holds=_once((*facts.holds_of(table), *_intruded(table, look))),
            waived=facts.waived,
            residual=facts.residuals.get(table.name, 0),
            verdicts=self.rulings.of(table.name),
            unproven=self.unproven(table, _bases(look)),
            unlisted=self.unlisted(table, None if isinstance(mark, Missing) else mark.value),
            ordering=weakest(table, self.orderings),
            weak_order=(*unaccepted(table, self.orderings), *scattered(table, counts)),
            promises=promises(table, self.orderings),
            accepted=accepted(table, self.orderings),
            clocks=doubts,
            pause=facts.pauses.get(table.name),
            bad_until=self.rulings.bad_until(table.name),
        )

    def copied(self, copy: str, inputs: Inputs, look: Sampling) -> Inputs:
        """The same of a *copy* of the table: as if what it says it holds were the mirror."""
        table, told = inputs.table, look.copies.get(copy, Missing(f"copy {copy} was not asked"))
        samples = inputs.samples.of_copy(told, table.name)
        earlier = None if inputs.clocks else self._earlier.get(_of_copy(table.name, copy))
        own = measure(table, samples, inputs.lags.at, earlier)
        return replace(inputs, samples=samples, lags=lags_of_copy(inputs.lags, own))

    def decided(
        self, question: Question, table: Table, look: Sampling, facts: RoundFacts
    ) -> Readiness:
        """Answer *question* of *table*, or of the copy of it that is asked for."""
        inputs = self.inputs(table, look, facts)
        if question.stage is Stage.COPY:
            inputs = self.copied(question.copy, inputs, look)
        return self.answer(question, inputs)

    def answer(self, question: Question, inputs: Inputs) -> Readiness:
        """Answer *question*; a certificate that was issued for it before is taken into account."""
        name = inputs.table.name
        return assess(
            question,
            inputs,
            self.policy,
            certificate=self.certificates.newest(name, question.stage, question.cut, question.copy),
            disagreeing=self._disagreeing.get(name, {}).get(question),
        )

    def passing(self, question: Question, inputs: Inputs) -> Readiness:
        """Answer *question* of a moment that nobody was or will be certified."""
        return passing(question, inputs, self.policy)

    def certify(self, answers: Iterable[Readiness]) -> None:
        """Store the certificates of READY answers: before anybody is told.

        Those that have answered before are kept already.
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
        """End a watching round: its lags and disagreements are what the next one looks back on."""
        name = inputs.table.name
        for key, one in {name: inputs, **{_of_copy(name, c): i for c, i in copies.items()}}.items():
            if inputs.clocks:
                self._earlier.pop(key, None)  # watermarks by clocks that nobody believes
            else:
                self._earlier[key] = one.lags
        since = {q: one.disagreeing for q, one in answers.items() if one.disagreeing is not None}
        if since or name in self._disagreeing:
            self._disagreeing[name] = since

    def _partitions(self, mark: Mark) -> Mapping[str, int]:
        """Counted once for each batch: all tables ask."""
        batch, counts = self._counted
        if batch != mark.batch:
            counts = partitions(self.orderings, mark.offsets)
            self._counted = mark.batch, counts
        return counts

    def _named_topics(self, table: Table) -> tuple[frozenset[str], frozenset[str]]:
        """Its topics, and those of its schema changes; worked out once while it has its shards."""
        known = self._named.get(table.name)
        if known is None or known[0].shards != table.shards:
            known = self._named[table.name] = (table, self._topics(table), self._statements(table))
        return known[1:]

    def _topics(self, table: Table) -> frozenset[str]:
        """Topics of the table's rows and schema changes; empty if a source has names of its own."""
        settings = {source.name: source for source in self.sources}
        if any(settings[shard.source].topics for shard in table.shards):
            return frozenset()
        rows = {f"{settings[one.source].prefix}.{spelled(one.name)}" for one in table.shards}
        return self._statements(table) | rows

    def _statements(self, table: Table) -> frozenset[str]:
        """Topics of the schema changes of the table's sources."""
        return frozenset(one.prefix for one in self.sources if one.name in table.sources)


def _of_copy(table: str, copy: str) -> str:
    return f"{table} in {copy}"  # no table has such a name


def withheld(answer: Readiness, why: str) -> Readiness:
    """Turn READY into UNKNOWN if its certificate is new and could not be stored."""
    if not _issued(answer):
        return answer
    reasons = (Reason("store", f"the certificate could not be stored: {why}"),)
    unknown = ReadinessState.UNKNOWN
    return replace(answer, state=unknown, certificate=None, reasons=reasons)


def _issued(answer: Readiness) -> bool:
    """Whether its certificate was issued with it, and not before."""
    return answer.certificate is not None and answer.certificate.issued == answer.at


def _once(holds: Iterable[Hold]) -> tuple[Hold, ...]:
    """The Spark process and a look may both have found one thing; the first to tell is kept."""
    known: dict[tuple[str, str], Hold] = {}
    for hold in holds:
        known.setdefault((hold.subject, hold.id), hold)
    return tuple(known.values())


def _bases(look: Sampling) -> Mapping[str, Order]:
    return {} if isinstance(look.mark, Missing) else look.mark.value.bases


def _intruded(table: Table, look: Sampling) -> Iterator[Hold]:
    """What the look itself found: the Spark process may not have been at the table since."""
    intrusion = look.intrusions.get(table.name)
    if intrusion is not None:
        yield foreign_hold(table.name, intrusion)
