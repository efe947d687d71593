"""Lists what keeps a table from READY independently of its lags, each with its waiver id.

A known problem keeps blocking even when its sample is old.

A pause blocks every stage after landing, for every cut after its start. Landing continues, so
no change is lost.

`unproven_reason` reports unlogged changes, from the sources' descriptions of their tables. A source
that was not asked yields Missing, never an empty answer.

A table also has one state, for display: new, bootstrap and incremental, or held, paused or retired.
The state is derived from the present facts and not stored.

`is_waivable` checks only the format of a waiver id. Cannot detect: whether the id exists now, which
`monitor/waivers.py` decides. A waiver of an id that cannot exist would be kept forever without any
effect.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from hashlib import sha256
from itertools import chain
from shlex import quote

from checks.certificate import Certificate
from checks.ledger import LEDGER, NO_LOSSES, TableLosses
from checks.model import (
    MOST_KEYS,
    Outcome,
    Reason,
    Ruling,
    Verdict,
    Verified,
)
from checks.named_rows import subtract_rows
from pipeline.apply.foreign_commits import waiver_id
from pipeline.checkpoint import DELAY, SETTING, Checkpoint, Gap, Incarnations, Quarantine
from pipeline.lags.lag import Lags
from pipeline.lags.samples import Samples
from pipeline.model import Missing, Ordering, Shard, Stage, Table
from pipeline.reports import Hold
from pipeline.sources.source import SourceDescription

PAUSED = "paused"
VALUES = "values"  # the probe that verifies rows
RUNS = Ruling(Outcome.PASS, "it is not paused")


@dataclass(frozen=True, slots=True)
class Pause:
    """Merges of ``table`` are paused from ``since`` to ``until``, or until it is resumed."""

    table: str
    reason: str
    who: str
    since: datetime
    until: datetime | None = None

    @property
    def description(self) -> str:
        """One line: who paused it, since when, until when, and why."""
        end = f" until {_second(self.until)}" if self.until else ""
        return f"paused by {self.who} since {_second(self.since)}{end}: {self.reason}"


def pause_reasons(pause: Pause | None, stage: Stage, cut: datetime) -> tuple[Reason, ...]:
    """Why *stage* is BLOCKED for *cut*: changes after the start of the pause are not merged."""
    if pause is None or stage is Stage.LANDED or cut <= pause.since:
        return ()
    return (Reason(PAUSED, f"{pause.description}; `sluice resume {quote(pause.table)}` ends it"),)


def rule_pause_length(pause: Pause | None, kept: timedelta, at: datetime) -> Ruling:
    """Return FAIL if the pause is longer than half of the time that the change log is *kept*.

    The change log keeps all batches that a paused table has not merged, and all later ones.
    """
    if pause is None:
        return RUNS
    if at - pause.since <= kept / 2:
        return Ruling(Outcome.PASS, pause.description)
    days, whole = (at - pause.since) / timedelta(days=1), kept / timedelta(days=1)
    text = (
        f"{pause.description}; that is {days:.0f} days, and what is kept of the change log for "
        f"{whole:.0f} days is kept for as long as it lasts: resume it, or ignore the table"
    )
    return Ruling(Outcome.FAIL, text, PAUSED)


def _second(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"


LAKE = "lake"  # cause for tables whose mirrors cannot be reached


@dataclass(frozen=True, slots=True)
class Inputs:
    """Everything known about one table in one round.

    ``topics`` are the topics of its shards and of their schema changes. If empty, they are not
    known, and the quarantine of every topic counts for the table. ``statements`` are those of them
    that have no rows.
    ``holds`` may include holds of other tables.  ``residual`` is the sum of its accounts'
    residuals.
    ``verdicts`` holds, per gating check, at least the newest and the newest that is not UNKNOWN.
    ``unproven`` describes its unlogged changes (a cascade); empty if there are none, Missing if its
    sources have not reported it.  ``unlisted`` says why it may have unknown shards; empty if it has
    none.
    ``ordering`` is what the order of its changes rests on, ``weak_order`` why that is not enough.
    ``promises`` are assumptions about collectors that cannot be queried.
    ``accepted`` is the weakest ordering that a certificate may rest on.
    ``clocks`` say why the heartbeat times of its sources are not reliable now.
    ``pause`` is set while a person pauses its merges.  ``bad_until`` maps each check to the end of
    its last FAIL.  ``verified`` is what was compared with the source; None while no check has
    reported it.  ``losses`` are the residuals of its ledger, ``copy_losses`` those of the copy in
    question.
    """

    table: Table
    samples: Samples
    lags: Lags
    topics: frozenset[str] = frozenset()
    statements: frozenset[str] = frozenset()
    holds: tuple[Hold, ...] = ()
    waived: frozenset[str] = frozenset()
    residual: int = 0
    verdicts: tuple[Verdict, ...] = ()
    unproven: str | Missing = ""
    unlisted: str = ""
    ordering: Ordering = Ordering.LOG
    weak_order: tuple[Reason, ...] = ()
    promises: tuple[str, ...] = ()
    accepted: Ordering = Ordering.LOG
    clocks: tuple[Reason, ...] = ()
    pause: Pause | None = None
    bad_until: Mapping[str, datetime] = field(default_factory=dict)
    verified: Verified | None = None
    losses: TableLosses = NO_LOSSES
    copy_losses: TableLosses = NO_LOSSES
    _blocks: dict[frozenset[str], tuple[Reason, ...]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )  # by gating checks: a cache, because each question of a round needs them
    _undecided: dict[frozenset[str], tuple[str, ...]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    _unchecked: dict[frozenset[str], tuple[Reason, ...]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )


def find_blocks(inputs: Inputs, gating: frozenset[str]) -> tuple[Reason, ...]:
    """Return the reasons for BLOCKED that are not waived."""
    known = inputs._blocks
    if gating not in known:
        found = (*_of_checkpoint(inputs), *_of_rounds(inputs), *_of_checks(inputs, gating))
        known[gating] = tuple(one for one in found if not one.id or one.id not in inputs.waived)
    return known[gating]


def find_shown_blocks(inputs: Inputs, gating: frozenset[str]) -> tuple[Reason, ...]:
    """Return :func:`find_blocks`, with ``MOST_KEYS`` reasons per finding and a count of the rest.

    One finding may name a thousand rows, each with its own waiver id.  All residuals of a table
    are one finding.
    """
    found = dict[tuple[str, str], list[Reason]]()
    for one in find_blocks(inputs, gating):
        alike = one.code == "residual" and one.id
        found.setdefault((one.code, "" if alike else one.text), []).append(one)
    return tuple(one for own in found.values() for one in _shorten(own))


def _shorten(reasons: Sequence[Reason]) -> Iterator[Reason]:
    """Yield the first of *reasons* of one finding, and one reason without id for the rest."""
    yield from reasons[:MOST_KEYS]
    if rest := reasons[MOST_KEYS:]:
        what = "residuals" if rest[0].code == "residual" else "keys or ranges of this finding"
        more = f"{len(rest)} more {what} block, too"
        yield Reason(rest[0].code, f"{more}: {rest[0].text}", cause=rest[0].cause)


def waivers_of(fail: Verdict, waived: Collection[str] = ()) -> tuple[str, ...]:
    """Return the ids of a FAIL that can still be waived, one per key, without those *waived*.

    A waiver covers only the rows that it names, so the rest of a range remains.  An empty text
    stands for rows that the finding does not name; they cannot be waived.
    """
    ruling, named = fail.ruling, f"{fail.check}:{fail.table}:"
    own = [id_ for id_ in waived if id_.startswith(named)]
    ids = subtract_rows([named + key for key in ruling.keys], own)
    return (*ids, "") if ruling.is_cut_off else ids


def undecided_checks(inputs: Inputs, gating: frozenset[str]) -> tuple[str, ...]:
    """Gating checks whose newest verdict is UNKNOWN or that never ruled, sorted."""
    known = inputs._undecided
    if gating not in known:
        known[gating] = tuple(sorted(gating - _ruled_newest(inputs)))
    return known[gating]


def unverified_reasons(inputs: Inputs, cut: datetime) -> tuple[Reason, ...]:
    """Why not all rows changed before *cut* are proven equal to the source.

    Empty if each was compared, and no row is known to differ.
    """
    why = _why_unverified(inputs, inputs.verified, cut)
    return (Reason("not_verified", why),) if why else ()


def verified_through(inputs: Inputs) -> datetime | None:
    """Return the instant before which each changed row of the mirror was compared, or None."""
    one = inputs.verified
    if one is None or one.through is None or _why_unverified(inputs, one, one.through):
        return None
    return one.through


def present_claims(inputs: Inputs) -> Verified | None:
    """Return what was compared, with only the claims that hold for the present mirror, or None.

    A row that is known to differ was compared. So a FAIL removes ``through``, but not ``oldest``.
    """
    one = inputs.verified
    if one is None:
        return None
    oldest = None if _why_other_rows(inputs, one) else one.oldest
    return replace(one, through=verified_through(inputs), oldest=oldest)


def is_claim_valid(certificate: Certificate, inputs: Inputs, cut: datetime) -> bool:
    """Whether *certificate* claims validly that the rows changed before *cut* were compared.

    A FAIL of the check that compares rows, gating or not, invalidates the claim of earlier
    certificates. Their version has the wrong rows, which are repaired only later.
    """
    claimed, failed = certificate.evidence.verified_through, _failed_until(inputs)
    if claimed is None or claimed < cut:
        return False
    return failed is None or certificate.issued > failed


def find_unwaived(inputs: Inputs, gating: frozenset[str]) -> frozenset[str]:
    """Return the ids of what blocks the table now, or makes it UNKNOWN, and is not waived."""
    doubts = (*unlogged_reasons(inputs.table, inputs.unproven), *inputs.clocks)
    found = {one.id for one in (*find_blocks(inputs, gating), *doubts)}
    return frozenset(found - inputs.waived - {""})


def find_waived(inputs: Inputs, gating: frozenset[str], version: int) -> tuple[str, ...]:
    """Return the ids of what would block a ready table, or make it UNKNOWN, without a waiver.

    So do all waivers of a clock or a setting of its sources: what they are of is not in the inputs.
    Foreign commits of the mirror count up to *version*, which is -1 if nothing rests on the mirror.
    """
    table, mirror = inputs.table.name, inputs.samples.mirror
    accepted = () if isinstance(mirror, Missing) else mirror.value.accepted
    found = {waiver_id(table, one) for one in accepted if one <= version}
    if inputs.waived:
        kinds = ("clock", SETTING, DELAY)
        hidden = tuple(f"{kind}:{source}:" for kind in kinds for source in inputs.table.sources)
        found |= {id_ for id_ in inputs.waived if id_.startswith(hidden)}
        found |= find_unwaived(replace(inputs, waived=frozenset()), gating)
    return tuple(sorted(found))


def landed_sources(inputs: Inputs) -> set[str]:
    """The sources of the shards from which something has landed; of all, if that is unknown."""
    checkpoint = inputs.samples.checkpoint
    if isinstance(checkpoint, Missing):
        return {*inputs.table.sources}
    known = checkpoint.value
    shards = inputs.table.shards
    return {one.source for one in shards if one in known.shards or one in known.bases}


def compared_since(inputs: Inputs) -> datetime | None:
    """Return the time since which each row was compared in all columns and was equal, or None."""
    one = inputs.verified
    if one is None or one.partial or _why_outdated(inputs, one):
        return None
    return one.oldest


def _failed_until(inputs: Inputs) -> datetime | None:
    """The end of the last FAIL of the check that compares rows; None if there was none."""
    return None if inputs.verified is None else inputs.bad_until.get(inputs.verified.check)


def _why_unverified(inputs: Inputs, one: Verified | None, cut: datetime) -> str:
    if one is None:
        return _why_no_claim(inputs)
    if why := _why_outdated(inputs, one):
        return why
    if one.oldest is None and one.lapless:
        why = f"{one.check} has `ranges: 0`, so it never compares all rows of a table"
        return f"{why}; set `ranges`, or ask without `verified`"
    if one.oldest is None:
        return "not all rows were compared yet; the first lap over the table goes on"
    if one.through is None or one.through < cut:
        compared = "none yet" if one.through is None else f"those until {_second(one.through)}"
        why = f"of the changed rows, {compared} were compared again; the cut is {_second(cut)}"
        scans = f"; what {VALUES} cannot follow by its keys waits for the next scan (`whole_every`)"
        return f"{why}{scans}" if inputs.table.no_ranges else why
    return ""


def _why_no_claim(inputs: Inputs) -> str:
    newest = _newest(inputs, VALUES)
    if newest is None:
        return "no check has compared rows since the service started; is the probe `values` on?"
    what = "a cycle"
    if inputs.table.no_ranges:
        what = f"a scan of the whole table ({inputs.table.no_ranges})"
    return f"{VALUES} has not ended {what} since the service started: {newest.ruling.reason}"


def _why_outdated(inputs: Inputs, one: Verified) -> str:
    """Why *one* does not hold for the present mirror; empty if it does."""
    own = (v for v in inputs.verdicts if v.verified or v.check == one.check)
    wrong = [v for v in own if v.ruling.outcome is Outcome.FAIL]
    if wrong:
        return f"{wrong[0].check} failed: {wrong[0].ruling.reason}"
    mirror, failed = inputs.samples.mirror, _failed_until(inputs)
    if failed is not None and not isinstance(mirror, Missing) and mirror.at <= failed:
        return f"{one.check} failed until {_second(failed)}, after the last look at the mirror"
    return _why_other_rows(inputs, one)


def _why_other_rows(inputs: Inputs, one: Verified) -> str:
    """Why the present mirror has other rows than *one* compared; empty if it does not."""
    mirror, checkpoint = inputs.samples.mirror, inputs.samples.checkpoint
    if isinstance(mirror, Missing) or mirror.value.batch < one.batch:
        return f"rows were compared when the mirror held batch {one.batch}, which it does not now"
    if mirror.value.mirror != one.mirror:
        return "the mirror is another table than the one whose rows were compared"
    if mirror.value.foreign > one.version:
        foreign = f"version {mirror.value.foreign} of the mirror is not Sluice's"
        return f"{foreign}, and its rows were not compared since"
    back = mirror.value.put_back
    if back is not None and (one.at is None or one.at <= back):
        why = f"the mirror was put back to an older version, found at {_second(back)}"
        return f"{why}; its rows were not compared since"
    return "" if isinstance(checkpoint, Missing) else _why_other(inputs, one, checkpoint.value)


def _why_other(inputs: Inputs, one: Verified, checkpoint: Checkpoint) -> str:
    """Why *one* belongs to other shards, bases or another change log than now; else empty."""
    for shard in inputs.table.shards:
        if str(shard) not in one.shards:
            return f"{shard} is new, and was not compared yet"
        if checkpoint.complete.get(shard, -1) > one.looked:
            return f"{shard} has a new base, which was not compared yet"
    now = Incarnations.of(checkpoint.incarnations).at(one.looked)
    if checkpoint.batch < one.looked or (None not in (now, one.life) and now != one.life):
        return f"the change log has lost batch {one.looked}, up to which rows were compared"
    return ""


def unchecked_reasons(inputs: Inputs, gating: frozenset[str]) -> tuple[Reason, ...]:
    """Why no gating check can find a loss in the table; empty if one has ruled."""
    known = inputs._unchecked
    if gating not in known:
        known[gating] = _unchecked(inputs, loss_checks(gating))
    return known[gating]


def _unchecked(inputs: Inputs, checks: frozenset[str]) -> tuple[Reason, ...]:
    newest = {name: _newest(inputs, name) for name in sorted(checks)}
    if not checks or any(_works(inputs, one) for one in newest.values()):
        return ()
    why = "; ".join(
        f"{name}: {one.ruling.reason if one else 'has not looked yet'}"
        for name, one in newest.items()
    )
    text = f"no gating check can find a loss in {inputs.table.name}: {why}"
    return (Reason("unchecked", text),)


def loss_checks(gating: frozenset[str]) -> frozenset[str]:
    """Return the checks of *gating* that find lost rows: all but ``schema``, unless it is alone."""
    return gating - {"schema"} or gating


def _works(inputs: Inputs, newest: Verdict | None) -> bool:
    """Whether the check of *newest* rules on the table, even if a source now prevents it."""
    if newest is None or newest.ruling.code == "unsupported":
        return False
    return _newest_ruled(inputs, newest.check) is not None


def _newest(inputs: Inputs, check: str) -> Verdict | None:
    own = (v for v in inputs.verdicts if v.check == check and v.table == inputs.table.name)
    return max(own, key=lambda verdict: verdict.at, default=None)


def _ruled_newest(inputs: Inputs) -> set[str]:
    newest: dict[str, Verdict] = {}
    for verdict in inputs.verdicts:
        known = newest.get(verdict.check)
        if verdict.table == inputs.table.name and (known is None or verdict.at > known.at):
            newest[verdict.check] = verdict
    return {name for name, one in newest.items() if one.ruling.outcome is not Outcome.UNKNOWN}


def _of_checkpoint(inputs: Inputs) -> Iterator[Reason]:
    if isinstance(inputs.samples.checkpoint, Missing):
        return
    checkpoint = inputs.samples.checkpoint.value
    for shard in inputs.table.shards:
        if shard not in checkpoint.bases:
            detail = (
                f"{shard} has no complete base yet (CREATE TABLE IF NOT EXISTS gives none);"
                f" {_advice(inputs.table)}"
            )
            yield Reason("no_base", detail, _without_base(checkpoint, shard))
    for gap in checkpoint.gaps.values():
        if gap.concerns(inputs.table):
            span = f"{gap.topic}:{gap.partition} [{gap.first}, {gap.until})"
            shared = gap.id if _is_shared(gap, inputs.table) else ""
            detail = f"{span} cannot be read: {gap.why}; {_advice(inputs.table)}"
            if gap.doubt:
                base = f"; then {_advice(inputs.table)}" if gap.doubt == SETTING else ""
                yield Reason("unproven", f"{gap.why}{base}", gap.id, shared)
                continue
            yield Reason("gap", detail, gap.id, shared)
    for subject, one in sorted(checkpoint.quarantine.items()):
        if _quarantines(subject, one, inputs):
            for name in one.names(subject):
                text = f"{one.table or subject}: undecoded change {name}"
                yield Reason("quarantine", text, name, "" if one.table else subject)


def _advice(table: Table) -> str:
    return f"a new base closes it: sluice bootstrap {quote(table.name)} --reason ..."


def _of_rounds(inputs: Inputs) -> Iterator[Reason]:
    table = inputs.table
    subjects = {table.name, *(f"source:{source}" for source in table.sources)}
    for hold in inputs.holds:
        if hold.subject in subjects:
            yield Reason(hold.reason, hold.detail, hold.id, _explain_shared(hold, inputs))
    if inputs.residual:
        text = f"{inputs.residual} changes read are not accounted for"
        yield Reason("unbalanced", text, f"unbalanced:{table.name}@{inputs.residual}")
    yield from _of_ledger(table.name, inputs.losses, _advice(table))
    yield from _of_ledger(table.name, inputs.copy_losses, LOAD_AGAIN)


LOAD_AGAIN = "a new load of the copy closes it (docs/runbooks/lost.md#copy_ledger)"


def find_copy_losses(
    table: str, losses: TableLosses, waived: Collection[str]
) -> tuple[Reason, ...]:
    """Return the reasons why rows of a copy are known to be lost, without those in *waived*."""
    found = _of_ledger(table, losses, LOAD_AGAIN)
    return tuple(one for one in found if one.id not in waived)


def _of_ledger(table: str, losses: TableLosses, advice: str) -> Iterator[Reason]:
    for one in losses.residuals:
        text = f"{one.text} went in and did not come out; {advice}"
        yield Reason("residual", text, f"{LEDGER}:{table}:{one.key}" if one.whole else "")
    if losses.more:
        text = f"{losses.more} more of the ledger's messages or rows did not come out; {advice}"
        yield Reason("residual", text)
    if losses.unreadable:
        what = f"{losses.unreadable} of the ledger's messages or rows did not come out"
        where = "the store's row of their minute is unreadable; delete it (docs/runbooks/lost.md)"
        yield Reason("residual", f"{what}, and {where}")


def _of_checks(inputs: Inputs, gating: frozenset[str]) -> Iterator[Reason]:
    for name in sorted(gating):
        ruled = _newest_ruled(inputs, name)
        if ruled is None or ruled.ruling.outcome is not Outcome.FAIL:
            continue
        for id_ in waivers_of(ruled, inputs.waived):
            yield Reason("check_failed", f"{name}: {ruled.ruling.reason}", id_)


def _explain_shared(hold: Hold, inputs: Inputs) -> str:
    """Return the cause that a hold shares with other tables; empty if it is the table's own.

    It is the source, the id of a hold that several sources have, or the lake.
    """
    if hold.subject == inputs.table.name:
        return _shared_of_table(hold.reason, inputs)
    alike = any(one.id == hold.id and one.subject != hold.subject for one in inputs.holds)
    return hold.id if alike else hold.subject


def _shared_of_table(reason: str, inputs: Inputs) -> str:
    """Return the shared cause of a merge hold for *reason*; empty if it is the table's own.

    A gap gets the cause of the table's gaps in the checkpoint.  With a different cause, one lost
    statement would open an incident for each table.
    """
    if reason == "gap":
        return next(
            (one.cause for one in _of_checkpoint(inputs) if one.code == "gap" and one.cause), ""
        )
    return LAKE if reason == "unreachable" else ""


def _shards(table: Table) -> tuple[str, ...]:
    return tuple(str(shard) for shard in table.shards)


def _without_base(checkpoint: Checkpoint, shard: Shard) -> str:
    """Return the waiver id of a shard without a base, valid until its next schema change."""
    existing = checkpoint.existing.get(shard)
    since = ".".join(map(str, existing.order.parts)) if existing else "0"
    return f"no_base:{shard}@{since}"


def _is_shared(gap: Gap, table: Table) -> bool:
    """Whether the gap also holds, or held, changes of other tables than *table*."""
    if gap.shared or (not gap.tables and not gap.shards):
        return True
    own = {table.name, *_shards(table)}
    return any(name not in own for name in chain(gap.tables, gap.shards))


def _quarantines(subject: str, one: Quarantine, inputs: Inputs) -> bool:
    """Whether the quarantined changes may belong to the table of *inputs*.

    Changes without a known table count for every table of their topic. All tables share the schema
    topic of their source. For a schema change, ``one.shards`` names the shards that still need it.
    """
    if one.table is not None:
        return one.table == inputs.table.name
    own = inputs.topics - inputs.statements if one.shards else inputs.topics
    if not inputs.topics or subject.removeprefix("topic:") in own:
        return True
    return any(name in one.shards for name in _shards(inputs.table))


def _newest_ruled(inputs: Inputs, check: str) -> Verdict | None:
    """The newest PASS or FAIL: an UNKNOWN does not disprove an earlier FAIL."""
    own = (v for v in inputs.verdicts if v.check == check and v.table == inputs.table.name)
    ruled = (verdict for verdict in own if verdict.ruling.outcome is not Outcome.UNKNOWN)
    return max(ruled, key=lambda verdict: verdict.at, default=None)


_SHARD = r"[^/]+/.+"
_NUMBER = r"[0-9]{1,18}"
_NOTICED = rf".+:{_NUMBER}:{_NUMBER}@{_NUMBER}"
_FORMS = {
    "again": rf".+:{_NUMBER}:{_NUMBER}@{_NUMBER}",
    "account": rf".+:{_NUMBER}",
    "clock": rf".+:{_NUMBER}",
    "dead_letters": rf".+:{_NUMBER}",
    "disorder": rf".+:{_NUMBER}:{_NUMBER}@.+",
    "foreign_write": rf".+:{_NUMBER}",
    "invalid": rf".+:{_NUMBER}-{_NUMBER}@[0-9a-f]{{8}}",
    "hidden": _NOTICED,
    "lists": _NOTICED,
    "log": _NOTICED,
    "no_base": rf"{_SHARD}@[0-9.]+",
    "rules": rf"{_SHARD}@{_NUMBER}",
    "delay": r".+@[0-9a-f]{8}",
    "outdated": _NOTICED,
    "setting": r".+@[0-9a-f]{8}",
    "snapshot": rf"{_SHARD}@{_NUMBER}",
    "torn": _NOTICED,
    "unbalanced": rf".+@-?{_NUMBER}",
    "unkept": _NOTICED,
    "unproven": ".+@[0-9a-f]{8}",
}
_OF_BATCH = re.compile(rf".+:({_NUMBER}:{_NUMBER}|and {_NUMBER} more)@{_NUMBER}", re.DOTALL)
_WITHOUT_BATCH = re.compile(rf".+:{_NUMBER}:{_NUMBER}", re.DOTALL)
_OF_TABLE = re.compile(rf"[A-Za-z_][\w.]*:([^:].*:.+|.+@{_NUMBER})", re.DOTALL)


_CLOSED = ("disorder", "rules", "snapshot")  # in addition to ids that name a batch


def is_closed_for_good(id_: str) -> bool:
    """Whether the next batch closes the problem *id_* for good once it is waived.

    That batch lands without the gap, the record or the snapshot. When the waiver ends, the problem
    does not come back.
    """
    return bool(_OF_BATCH.fullmatch(id_)) or id_.partition(":")[0] in _CLOSED


def waiver_id_of_text(name: str, text: str) -> str:
    """Return the waiver id of *name*, valid as long as the same *text* is reported."""
    return f"{name}@{sha256(text.encode()).hexdigest()[:8]}"


def is_waivable(id_: str) -> bool:
    """Whether *id_* has the format of a gap, a hold, a quarantined change, or a key of a check.

    Each id names one instance, because a permanent waiver of a reason would hide the next one.
    Hold reasons and check names may be any word, because plug-ins define their own.
    """
    if _OF_BATCH.fullmatch(id_):
        return True
    word, _, rest = id_.partition(":")
    if word in _FORMS:
        return bool(re.fullmatch(_FORMS[word], rest, re.DOTALL))
    return bool(_OF_TABLE.fullmatch(id_)) and not _WITHOUT_BATCH.fullmatch(id_)


SINCE_GONE = "; not any more, but what they changed before needs a new base"
"""Suffix of a cause that no longer exists."""


ALSO_UNKNOWN = "; also unknown: "
"""Stands before what the sources have not reported, if they have reported a cause, too."""
MOST_CAUSES = 3  # causes that a text names, of all shards


def unproven_reason(
    table: Table, descriptions: Mapping[str, SourceDescription | Missing]
) -> str | Missing:
    """Describe the unlogged changes of *table*: empty if none, Missing if a source is unknown.

    All causes of all shards count, because a waiver is of the whole text.
    """
    known = ((shard.name, descriptions.get(shard.source)) for shard in table.shards)
    causes = _join_causes(
        one.unlogged[name]
        for name, one in known
        if isinstance(one, SourceDescription) and name in one.unlogged
    )
    unknown = _join_causes(one.why for one in _ignorance(table, descriptions))
    if causes and unknown:
        return f"{causes}{ALSO_UNKNOWN}{unknown}"
    return Missing(unknown) if unknown else causes


def _join_causes(texts: Iterable[str]) -> str:
    every = tuple(dict.fromkeys(texts))
    if len(every) > MOST_CAUSES:
        digest = waiver_id_of_text("", _kind_of("; ".join(every[MOST_CAUSES:])))
        every = (*every[:MOST_CAUSES], f"and {len(every) - MOST_CAUSES} more ({digest})")
    return "; ".join(every)


def _kind_of(text: str) -> str:
    return re.sub(r"\d+", "#", text)


def unlogged_reasons(table: Table, unproven: str | Missing) -> tuple[Reason, ...]:
    """Return the reason for *unproven*, the answer of :func:`unproven_reason`; empty if it is.

    A waiver of it covers only these foreign keys, or that kind of missing answer.
    """
    if not unproven:
        return ()
    name = f"unproven:{table.name}"
    if isinstance(unproven, Missing):
        id_ = waiver_id_of_text(name, _kind_of(unproven.why))
        return (Reason("not_described", unproven.why, id_),)
    cause, also, unknown = unproven.partition(SINCE_GONE)[0].partition(ALSO_UNKNOWN)
    id_ = waiver_id_of_text(name, f"{cause}{also}{_kind_of(unknown)}")
    return (Reason("unproven", unproven, id_),)


def _ignorance(
    table: Table, descriptions: Mapping[str, SourceDescription | Missing]
) -> Iterator[Missing]:
    for shard in table.shards:
        one = descriptions.get(shard.source, Missing("it was not asked yet"))
        if isinstance(one, Missing):
            why = one.why.removeprefix(f"source:{shard.source}: ")
            yield Missing(f"source {shard.source} has not described its tables: {why}")
        elif shard.name in one.hidden:
            yield Missing(
                f"source {shard.source} does not list {shard.name}; its user may need the right"
                " to read it"
            )


NO_BASE = "no_base"


class TableState(StrEnum):
    """The state of a table, for display."""

    NEW = "new"
    BOOTSTRAP = "bootstrap"
    INCREMENTAL = "incremental"
    HELD = "held"
    RE_BOOTSTRAP = "re-bootstrap"
    PAUSED = "paused"
    RETIRED = "retired"


@dataclass(frozen=True, slots=True)
class StateSince:
    """``table`` is, or was, in ``state`` from ``since`` on; ``why`` as it was reported then."""

    table: str
    state: TableState
    since: datetime
    why: str = ""


@dataclass(frozen=True, slots=True)
class TableFacts:
    """The facts from which the state of a table follows.

    ``based``: each shard has a base.  ``bare``: there is no mirror yet.  ``first`` describes the
    progress of its first snapshot, ``backfill`` that of a requested backfill; empty if none runs.
    ``blocked`` are the reasons for BLOCKED that do not come from probes, gravest first.
    """

    based: bool
    bare: bool
    first: str = ""
    backfill: str = ""
    blocked: tuple[Reason, ...] = ()
    pause: Pause | None = None


def state_of(facts: TableFacts) -> tuple[TableState, str]:
    """Return the state of an existing table, and why it is not incremental; empty if it is."""
    if facts.pause is not None:
        return TableState.PAUSED, facts.pause.description
    if facts.backfill:
        again = facts.based or not facts.bare
        return TableState.RE_BOOTSTRAP if again else TableState.BOOTSTRAP, facts.backfill
    if facts.first:
        return TableState.BOOTSTRAP, facts.first
    if facts.bare and all(one.code == NO_BASE for one in facts.blocked):
        why = facts.blocked[0].text if facts.blocked else "nothing is merged into its mirror yet"
        return TableState.NEW, why
    if facts.blocked:
        return TableState.HELD, facts.blocked[0].text
    return TableState.INCREMENTAL, ""
