"""Decides whether a table is complete up to a cut, by the sum rule and by the proof.

The sum rule compares clocks: the time since the cut must exceed the sum of lags plus the
margin. The proof compares positions. The policy says which of the two must hold. A missing hop
makes the sum unknown, and a missing input makes the proof unknown. UNKNOWN never counts as
ready. A missing, frozen or negative lag makes the sum unknown and is never taken as 0.

A valid certificate keeps answering its cut. It does not answer while another writer has changed
the mirror, or while the source log is being resent. It never answers for a source that the table
did not have. A question for verified rows accepts only a
certificate whose `verified_through` reaches the cut, issued since the comparing check last failed.
"""

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from checks.blocks import (
    Inputs,
    find_shown_blocks,
    find_unwaived,
    find_waived,
    is_claim_valid,
    landed_sources,
    loss_checks,
    pause_reasons,
    unchecked_reasons,
    undecided_checks,
    unlogged_reasons,
    unverified_reasons,
    verified_through,
)
from checks.certificate import Certificate, Evidence, certify, is_of_wrong_image
from checks.model import Outcome, Reason
from checks.ordering import weaker_proof_reasons
from checks.proof import (
    Proof,
    doubtful_image_reasons,
    landed_offsets,
    prove,
    resent_reasons,
    unconfirmed_reasons,
)
from pipeline.lags.lag import Lags
from pipeline.model import Missing, Stage


@dataclass(frozen=True, slots=True)
class Sum:
    """The answer of the sum rule; ``eta`` assumes that the lags stay as they are."""

    holds: bool | None
    reasons: tuple[Reason, ...] = ()
    eta: datetime | None = None


def add_up(stage: Stage, cut: datetime, lags: Lags, margin: timedelta) -> Sum:
    """Whether the time since *cut* exceeds the sum of the lags up to *stage*, plus *margin*."""
    total = lags.total(stage)
    if isinstance(total, Missing):
        return Sum(None, (Reason("lag_unknown", total.why),))
    passed = lags.at - cut
    eta = max(lags.at, cut + min(total + margin, datetime.max.replace(tzinfo=UTC) - cut))
    if passed > total + margin:
        return Sum(True, (), eta)
    if passed < timedelta():
        return Sum(False, (Reason("late", f"the cut is {-passed} ahead"),), eta)
    text = f"{_seconds(passed)} since the cut, lags sum to {_seconds(total)}"
    return Sum(False, (Reason("late", f"{text}, margin {_seconds(margin)}"),), eta)


def _seconds(length: timedelta) -> str:
    return f"{length.total_seconds():.1f} s"


FOREIGN_WRITE = "foreign_write"  # the reason of a hold: another writer has changed the mirror


class ReadinessState(StrEnum):
    """The five answers; only READY means yes."""

    READY = "ready"
    NOT_READY = "not_ready"
    UNKNOWN = "unknown"
    BLOCKED = "blocked"
    REVOKED = "revoked"


class Rule(StrEnum):
    """Which of the two rules must hold."""

    BOTH = "both"
    SUM = "sum"
    PROOF = "proof"


class CheckNeed(StrEnum):
    """Whether a READY needs a gating check that works for the table."""

    OPTIONAL = "optional"
    REQUIRED = "required"


@dataclass(frozen=True, slots=True)
class ReadinessPolicy:
    """What an operator decides about readiness; ``gating`` names the checks whose FAIL blocks.

    ``checks`` says whether a table may be READY if no gating check can find a loss in it.
    """

    rule: Rule = Rule.BOTH
    margin: timedelta = timedelta()
    gating: frozenset[str] = field(kw_only=True)
    disagreement: timedelta = timedelta(minutes=10)
    checks: CheckNeed = CheckNeed.OPTIONAL


@dataclass(frozen=True, slots=True)
class Question:
    """Asks whether ``stage`` is complete up to ``cut`` (UTC); for stage COPY, of the copy ``copy``.

    If ``verified``, the rows changed before the cut must also have been compared with the source.
    """

    stage: Stage
    cut: datetime
    copy: str = ""
    verified: bool = False


@dataclass(frozen=True, slots=True)
class Readiness:
    """The answer, with all that a person needs to understand it.

    ``certificate`` exists if and only if the state is READY, except in :func:`answer_for_display`.
    ``eta`` assumes the lags stay as they are; None when they are unknown.  ``unknown`` lists gating
    checks without a ruling.
    ``disagreeing`` is the time since which the two rules contradict each other; None if they agree.
    ``verified_through``: each row of the mirror changed before then was compared with its source.
    """

    table: str
    stage: Stage
    cut: datetime
    at: datetime
    state: ReadinessState
    reasons: tuple[Reason, ...]
    lags: Lags
    eta: datetime | None = None
    certificate: Certificate | None = None
    unknown: tuple[str, ...] = ()
    disagreeing: datetime | None = None
    copy: str = ""
    verified_through: datetime | None = None

    @property
    def ready(self) -> bool:
        """Whether the answer is yes."""
        return self.state is ReadinessState.READY


def assess(
    question: Question,
    inputs: Inputs,
    policy: ReadinessPolicy,
    *,
    certificate: Certificate | None = None,
    disagreeing: datetime | None = None,
) -> Readiness:
    """Answer *question* as of ``inputs.lags.at``.

    *certificate* is the newest one issued for this table, stage and cut, valid or revoked;
    *disagreeing* is that of the last answer to the same question.
    """
    now, proof, summed = inputs.lags.at, *_by_both(question, inputs, policy)
    state, reasons = _decide_state(question, inputs, policy, summed, proof)
    accepted = certificate is not None and _is_accepted(certificate, inputs, policy)
    if question.verified and certificate is not None:
        accepted = accepted and is_claim_valid(certificate, inputs, question.cut)
    if certificate and certificate.revoked is None and accepted:
        state, reasons = _answer_by_certificate(certificate, _strange(question, inputs), reasons)
        if again := resent_reasons(inputs.table, question.stage, inputs.samples):
            state, reasons = ReadinessState.NOT_READY, again
    elif state is ReadinessState.READY and not is_of_wrong_image(
        certificate, proof.evidence, inputs.waived
    ):
        certificate = _certificate(question, inputs, policy, proof.evidence)
    elif certificate and certificate.revoked is not None:
        state, reasons = ReadinessState.REVOKED, (Reason("revoked", certificate.why), *reasons)
    if state is ReadinessState.READY and certificate is not None:
        reasons = (*reasons, *weaker_proof_reasons(certificate.evidence.ordering, inputs.promises))
        if inputs.verdicts:  # before the first verdict, no check can be called missing
            reasons = (*reasons, *unchecked_reasons(inputs, policy.gating))
    lacking = unverified_reasons(inputs, question.cut) if question.verified else ()
    if state is ReadinessState.READY and lacking:
        state, reasons = ReadinessState.NOT_READY, lacking
        summed = replace(summed, eta=None)
    since = (disagreeing or now) if _contradict(question, inputs, summed, proof) else None
    if since and now - since >= policy.disagreement:
        reasons = (*reasons, _disagreement(summed, since))
    held = certificate if state is ReadinessState.READY else None
    return _make_readiness(
        question, inputs, policy, summed, (state, reasons), certificate=held, disagreeing=since
    )


def answer_for_display(question: Question, inputs: Inputs, policy: ReadinessPolicy) -> Readiness:
    """Answer *question* for display only: no certificate is issued or looked up."""
    proof, summed = _by_both(question, inputs, policy)
    ruled = _decide_state(question, inputs, policy, summed, proof)
    return _make_readiness(question, inputs, policy, summed, ruled)


def _make_readiness(
    question: Question,
    inputs: Inputs,
    policy: ReadinessPolicy,
    summed: Sum,
    ruled: tuple[ReadinessState, tuple[Reason, ...]],
    *,
    certificate: Certificate | None = None,
    disagreeing: datetime | None = None,
) -> Readiness:
    state, reasons = ruled
    return Readiness(
        table=inputs.table.name,
        stage=question.stage,
        cut=question.cut,
        at=inputs.lags.at,
        state=state,
        reasons=reasons,
        lags=inputs.lags,
        eta=summed.eta if state is ReadinessState.NOT_READY else None,
        certificate=certificate,
        disagreeing=disagreeing,
        unknown=undecided_checks(inputs, policy.gating),
        copy=question.copy,
        verified_through=verified_through(inputs) if question.stage is Stage.MIRROR else None,
    )


def _by_both(question: Question, inputs: Inputs, policy: ReadinessPolicy) -> tuple[Proof, Sum]:
    now = inputs.lags.at
    proof = prove(inputs.table, question.stage, question.cut, inputs.samples, now)
    return proof, add_up(question.stage, question.cut, inputs.lags, policy.margin)


def _decide_state(
    question: Question, inputs: Inputs, policy: ReadinessPolicy, summed: Sum, proof: Proof
) -> tuple[ReadinessState, tuple[Reason, ...]]:
    """The state without certificates: blocked, else unknown, else the answer of the rules."""
    both: tuple[Sum | Proof, ...] = (summed, proof)
    asked = {Rule.SUM: both[:1], Rule.PROOF: both[1:], Rule.BOTH: both}[policy.rule]
    reasons = tuple(reason for one in asked for reason in one.reasons)
    paused = pause_reasons(inputs.pause, question.stage, question.cut)
    blocked = (*paused, *find_shown_blocks(inputs, policy.gating))
    if blocked:
        return ReadinessState.BLOCKED, (*blocked, *reasons)
    if inputs.clocks:
        return ReadinessState.UNKNOWN, (*inputs.clocks, *reasons)
    if any(one.holds is None for one in asked) or proof.evidence is None:
        return ReadinessState.UNKNOWN, reasons or proof.reasons
    if not all(one.holds for one in asked):
        return ReadinessState.NOT_READY, reasons
    if lacks := (*_find_missing_rows(question, inputs, policy), *_sent_again(question, inputs)):
        return ReadinessState.NOT_READY, lacks
    needed = policy.checks is CheckNeed.REQUIRED
    lacking = unchecked_reasons(inputs, policy.gating) if needed else ()
    doubts = (*inputs.weak_order, *_unlisted(inputs), *_unlogged(inputs), *lacking)
    return (ReadinessState.UNKNOWN, doubts) if doubts else (ReadinessState.READY, ())


def _answer_by_certificate(
    certificate: Certificate, strange: tuple[Reason, ...], reasons: tuple[Reason, ...]
) -> tuple[ReadinessState, tuple[Reason, ...]]:
    """The answer of a valid certificate, unless the mirror has *strange* foreign writes."""
    if strange:
        return ReadinessState.BLOCKED, tuple(dict.fromkeys((*strange, *reasons)))
    return ReadinessState.READY, (Reason("certified", f"certificate {certificate.id}"),)


def _is_accepted(certificate: Certificate, inputs: Inputs, policy: ReadinessPolicy) -> bool:
    """Whether the config accepts its sources, ordering and checks, now and when it was issued.

    No waiver that it rests on may have ended.
    """
    given = certificate.evidence
    if not landed_sources(inputs) <= {fence.source for fence in given.fences}:
        return False  # a source was added to the config since, perhaps again
    if policy.checks is CheckNeed.REQUIRED and loss_checks(policy.gating) <= {*certificate.unknown}:
        return False
    ordered = not inputs.weak_order and given.ordering.strength >= inputs.accepted.strength
    ended = given.waived and find_unwaived(inputs, policy.gating) & {*given.waived}
    return ordered and not ended


def _strange(question: Question, inputs: Inputs) -> tuple[Reason, ...]:
    """Foreign writes to the mirror: a reader gets other rows than those certified.

    A certificate answers again once the foreign write is reverted or waived.
    """
    if question.stage is not Stage.MIRROR:
        return ()  # an image is an earlier version
    found = find_shown_blocks(inputs, frozenset())
    return tuple(reason for reason in found if reason.code == FOREIGN_WRITE)


def _unlisted(inputs: Inputs) -> tuple[Reason, ...]:
    """Why the table may have shards that are not listed yet; this cannot be waived."""
    return (Reason("unlisted", inputs.unlisted),) if inputs.unlisted else ()


def _unlogged(inputs: Inputs) -> tuple[Reason, ...]:
    """Unlogged changes, which lags and proof cannot see; also if it is unknown whether any is."""
    reasons = unlogged_reasons(inputs.table, inputs.unproven)
    return tuple(reason for reason in reasons if reason.id not in inputs.waived)


def _certificate(
    question: Question, inputs: Inputs, policy: ReadinessPolicy, evidence: Evidence | None
) -> Certificate | None:
    checkpoint = inputs.samples.checkpoint
    if evidence is None or isinstance(checkpoint, Missing):
        return None
    offsets = landed_offsets(checkpoint.value, inputs.topics)
    version = -1 if evidence.version is None else evidence.version
    evidence = replace(
        evidence,
        offsets=offsets,
        ordering=inputs.ordering,
        copy=question.copy,
        verified_through=verified_through(inputs) if question.stage is Stage.MIRROR else None,
        waived=find_waived(inputs, policy.gating, version),
    )
    return certify(
        inputs.table.name,
        question.stage,
        question.cut,
        issued=inputs.lags.at,
        evidence=evidence,
        unknown=undecided_checks(inputs, policy.gating),
    )


def _find_missing_rows(
    question: Question, inputs: Inputs, policy: ReadinessPolicy
) -> tuple[Reason, ...]:
    """Why an image, or a mirror that was sampled too early, may lack rows that exist by now.

    A version from before the end of a FAIL does not have the repaired rows.
    """
    gating = {check: at for check, at in inputs.bad_until.items() if check in policy.gating}
    if question.stage is Stage.IMAGE:
        return tuple(doubtful_image_reasons(question.cut, inputs.samples, gating))
    mirror = inputs.samples.mirror
    if question.stage is Stage.LANDED or isinstance(mirror, Missing):
        return ()
    if question.stage is Stage.COPY and gating and _is_read_again(inputs):
        why = f"{', '.join(sorted(gating))} failed before, and a bootstrap reads the table again"
        return (
            Reason("check_failed", f"{why}; the copy may lack rows that the mirror has by now"),
        )
    failing = {one.check for one in inputs.verdicts if one.ruling.outcome is Outcome.FAIL}  # waived
    return tuple(
        Reason("check_failed", f"{check} failed until {until:%H:%M:%S} UTC, after the last look")
        for check, until in sorted(gating.items())
        if mirror.at <= until and check not in failing
    )


def _is_read_again(inputs: Inputs) -> bool:
    """Whether a bootstrap of the table is running, whose rows reach the mirror gradually."""
    checkpoint = inputs.samples.checkpoint
    if isinstance(checkpoint, Missing):
        return False
    known = (checkpoint.value.backfills.get(shard) for shard in inputs.table.shards)
    return any(one is not None and one.done is None for one in known)


def _sent_again(question: Question, inputs: Inputs) -> tuple[Reason, ...]:
    """Why rows may be older than the cut, although all changes before it have landed."""
    table, stage, samples = inputs.table, question.stage, inputs.samples
    return (*resent_reasons(table, stage, samples), *unconfirmed_reasons(table, stage, samples))


def _contradict(question: Question, inputs: Inputs, summed: Sum, proof: Proof) -> bool:
    """Whether both rules decide, by clocks that agree, and decide differently.

    The proof of an image says whether it exists, which no lag shows. The margin is waited out on
    purpose, so a sum rule that only waits for it does not contradict the proof.
    """
    if inputs.clocks or question.stage is Stage.IMAGE or None in (summed.holds, proof.holds):
        return False
    if not proof.holds:
        return bool(summed.holds)
    return not add_up(question.stage, question.cut, inputs.lags, timedelta()).holds


def _disagreement(summed: Sum, since: datetime) -> Reason:
    yes, no = ("sum rule", "proof") if summed.holds else ("proof", "sum rule")
    return Reason("rules_disagree", f"{yes} says ready, {no} says not, since {since.isoformat()}")
