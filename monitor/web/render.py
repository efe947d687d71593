"""Renders values as the JSON of API and `--json`: instants in RFC 3339, durations in seconds."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from fastapi.responses import JSONResponse
from pydantic_core import to_json

from alerts.model import Incident
from checks.blocks import StateSince
from checks.certificate import Certificate
from checks.model import MOST_KEYS, Reason, Verdict
from checks.readiness import Readiness
from monitor.board import CopyView, RepairDecision, TableView
from monitor.web import answers
from monitor.web.summary import Headline
from pipeline.lags.lag import MOVING, HopLag, Lags
from pipeline.model import Fence, Missing, Stage


class Answer(JSONResponse):
    """A response that encodes its content without validation; NaN and infinity become null."""

    def render(self, content: Any) -> bytes:
        """Encode JSON, several times as fast as Python's own encoder."""
        return to_json(content, inf_nan_mode="null")


def render_readiness(answer: Readiness) -> answers.Readiness:
    """Render one answer with its reasons, lags, sample ages, watermarks and certificate."""
    return {
        "table": answer.table,
        "stage": answer.stage.value,
        "copy": answer.copy or None,
        "cut": render_instant(answer.cut),
        "state": answer.state.value,
        "ready": answer.ready,
        "at": render_instant(answer.at),
        "reasons": [render_reason(one) for one in answer.reasons],
        "eta": render_instant(answer.eta) if answer.eta else None,
        "certificate": answer.certificate.id if answer.certificate else None,
        "version": answer.certificate.evidence.version if answer.certificate else None,
        "path": (answer.certificate.evidence.path if answer.certificate else "") or None,
        "order": answer.certificate.evidence.ordering.value if answer.certificate else None,
        "verified_through": render_optional_instant(answer.verified_through),
        "unknown_checks": list(answer.unknown),
        **render_lags(answer.lags, answer.stage),
    }


def render_lags(found: Lags, stage: Stage) -> answers.Lags:
    """Render hops up to *stage*, their sum, and the watermark of each stage."""
    return {
        "lag_seconds": _number(found.total(stage)),
        "hops": [_hop(one) for one in found.up_to(stage)],
        "watermarks": {each.value: _render_known(found.watermark(each)) for each in MOVING},
    }


def render_reason(one: Reason) -> answers.Reason:
    """Render code, text, and the id for `sluice waive`, if a person may waive it."""
    return {"code": one.code, "text": one.text, "id": one.id or None}


def render_table(view: TableView) -> answers.Table:
    """Render one line of the list of tables."""
    return {
        "table": view.table.name,
        "tier": view.table.tier,
        "shards": [str(shard) for shard in view.table.shards],
        "key": list(view.table.key),
        "life": render_state(view.life) if view.life else None,
        "day": {stage.value: _brief(answer) for stage, answer in view.day.items()},
        "recent": {stage.value: _brief(answer) for stage, answer in view.recent.items()},
        **render_lags(view.lags, Stage.MIRROR),
        "copies": {one.name: _copy(one) for one in view.copies},
        "verified_through": render_optional_instant(
            view.verified.through if view.verified else None
        ),
        "compared_since": render_optional_instant(view.verified.oldest if view.verified else None),
    }


def render_state(one: StateSince) -> answers.StateSince:
    """Render the state of a table, with its start and reason."""
    return {"state": one.state.value, "since": render_instant(one.since), "why": one.why}


def render_late_days(view: TableView, since: datetime | None) -> list[answers.LateImage]:
    """Render changes that landed *since* then, after their image was made; newest last."""
    return [
        {
            "table": view.table.name,
            "day": image.day,
            "cut": render_instant(image.cut),
            "landed": render_instant(each.at) if each.at else None,
            "batch": each.batch,
            "rows": each.rows,
            "days": dict(each.days),
        }
        for image in view.images
        for each in image.late
        if since is None or each.at is None or each.at >= since
    ]


def render_certificate(one: Certificate) -> answers.Certificate:
    """Render a certificate with all its evidence."""
    evidence = one.evidence
    return {
        "id": one.id,
        "table": one.table,
        "stage": one.stage.value,
        "copy": one.evidence.copy or None,
        "cut": render_instant(one.cut),
        "issued": render_instant(one.issued),
        "revoked": render_instant(one.revoked) if one.revoked else None,
        "why": one.why,
        "unknown_checks": list(one.unknown),
        "batch": evidence.batch,
        "mirror": evidence.mirror or None,
        "version": evidence.version,
        "path": evidence.path or None,
        "order": evidence.ordering.value,
        "applied": evidence.applied,
        "verified_through": render_optional_instant(evidence.verified_through),
        "offsets": dict(evidence.offsets),
        "fences": render_fences(evidence.fences),
    }


def render_fences(many: Iterable[Fence]) -> list[answers.Fence]:
    """Render heartbeats as positions."""
    return [
        {
            "source": one.source,
            "number": one.number,
            "at": render_instant(one.at),
            "identity": one.head.identity,
            "position": str(one.head.position),
        }
        for one in many
    ]


def render_verdict(one: Verdict, newest: Verdict | None = None) -> answers.Verdict:
    """Render a verdict; its keys are those of the affected rows, never their values."""
    return {
        "table": one.table,
        "check": one.check,
        "outcome": one.ruling.outcome.value,
        "reason": one.ruling.reason,
        "code": one.ruling.code,
        "keys": list(one.ruling.keys[:MOST_KEYS]),
        "more_keys": len(one.ruling.keys[MOST_KEYS:]),
        "value": one.value,
        "at": render_instant(one.at),
        "cause": one.cause,
        "run": one.run,
        "as_of": render_fences(one.as_of),
        "looked": render_instant(newest.at) if newest else None,
        "now": {"outcome": newest.ruling.outcome.value, "reason": newest.ruling.reason}
        if newest
        else None,
    }


def render_incident(one: Incident, repairs: Iterable[RepairDecision] = ()) -> answers.Incident:
    """Render an incident with what an operator needs; *repairs* may include other incidents'."""
    return {
        "id": one.id,
        "kind": one.cause.kind.value,
        "check": one.cause.check,
        "about": one.cause.subject,
        "state": one.state.value,
        "severity": one.severity.value,
        "owner": one.owner,
        "opened": render_instant(one.opened),
        "turned": render_instant(one.turned),
        "reason": one.ruling.reason,
        "code": one.ruling.code,
        "keys": list(one.ruling.keys[:MOST_KEYS]),
        "more_keys": len(one.ruling.keys[MOST_KEYS:]),
        "more_rows": one.ruling.more,
        "tables": list(one.tables),
        "failing": [{"table": m.table, "check": m.check} for m in one.failing],
        "repairs": [
            {"table": r.table, "next": r.step.value, "why": r.why}
            for r in repairs
            if r.incident == one.id
        ],
        "acknowledged": one.acknowledged.who if one.acknowledged else None,
    }


def render_whole_incident(
    one: Incident, repairs: Iterable[RepairDecision] = ()
) -> answers.WholeIncident:
    """Render an incident with all its stored keys, and the columns in which rows differ."""
    rendered = render_incident(one, repairs)
    keys, more = list(one.ruling.keys), 0
    differing: list[answers.DifferingRows] = [
        {"columns": list(each.columns), "more_columns": each.more, "keys": list(each.keys)}
        for each in one.ruling.differing
    ]
    return {**rendered, "keys": keys, "more_keys": more, "differing": differing}


def first_line(one: Headline) -> answers.FirstLine:
    """Render one headline."""
    return {
        "kind": one.kind,
        "about": one.about,
        "tables": list(one.tables),
        "what": one.what,
        "facts": one.facts,
        "runbook": one.runbook,
    }


def render_instant(at: datetime) -> str:
    """Render RFC 3339; an offset with seconds is not allowed there, so such a time is in UTC."""
    offset = at.utcoffset() or timedelta()
    return (at.astimezone(UTC) if offset % timedelta(minutes=1) else at).isoformat()


def render_optional_instant(at: datetime | None) -> str | None:
    """Render an instant as `render_instant` does; None stays None."""
    return render_instant(at) if at else None


def _brief(answer: Readiness) -> answers.StageReadiness:
    return {
        "state": answer.state.value,
        "cut": render_instant(answer.cut),
        "reasons": [render_reason(one) for one in answer.reasons],
        "eta": render_instant(answer.eta) if answer.eta else None,
        "certificate": answer.certificate.id if answer.certificate else None,
    }


def _copy(one: CopyView) -> answers.Copy:
    hold = None if one.hold is None else f"{one.hold.reason}: {one.hold.detail}"
    return {"day": _brief(one.day), "hold": hold, **_hop(one.hop)}


def _hop(one: HopLag) -> answers.HopLag:
    return {
        "hop": one.hop.value,
        "lag_seconds": _number(one.lag),
        "why": one.lag.why if isinstance(one.lag, Missing) else None,
        "sample_age_seconds": None if one.age is None else one.age.total_seconds(),
        "watermark": _render_known(one.watermark),
    }


def _number(value: timedelta | Missing) -> float | None:
    return None if isinstance(value, Missing) else value.total_seconds()


def _render_known(value: datetime | Missing) -> str | None:
    return None if isinstance(value, Missing) else render_instant(value)
