"""Serves the newest validation results of a table's suites of expectations as a page.

Results are read from the memory of the check on each request. Suites are written by users: each of
their texts is escaped here, and was shortened when it was stored.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from checks.named_rows import describe_all, describe_count
from checks.probes.expectations import NAME
from checks.validation import MEMORY, ShownExpectation, ValidationResult, load_results
from monitor.web.answers import NOT_FOUND
from monitor.web.deps import ApiParts, Parts, Text
from monitor.web.status_page import PAGES
from monitor.web.summary import format_instant

VALIDATION_PAGES = APIRouter()


@dataclass(frozen=True, slots=True)
class ExpectationLine:
    """One expectation on the page: its outcome by word, sign and ``kind``, which is a colour."""

    kind: str
    sign: str
    word: str
    count: str
    shown: ShownExpectation


@dataclass(frozen=True, slots=True)
class ResultCard:
    """One validation result on the page, with its expectations."""

    scope: str
    title: str
    at: str
    batch: int
    summary: str
    left_out: int
    lines: tuple[ExpectationLine, ...]


@VALIDATION_PAGES.get("/expectations", response_class=HTMLResponse, responses=NOT_FOUND)
def validation_page(parts: Parts, table: Text) -> str:
    """The newest validation results of a table: each expectation, its outcome, counts and keys."""
    parts.require_known(table)
    kept = parts.store.memory.recall(table, MEMORY) or {}
    results = [_card(one) for one in load_results(kept.get("kept"))]
    page = PAGES.get_template("validation.html")
    return page.render(table=table, results=results, now=_newest(parts, table))


def _newest(parts: ApiParts, table: str) -> dict[str, str] | None:
    """Return the last result of the check, which may say why there is no newer look.

    Its time is that since which the check has this outcome: only changes are stored.
    """
    stored = next(iter(parts.store.verdicts.list(table=table, check=NAME, limit=1)), None)
    newest = parts.gate.recorder.rulings.newest(table, NAME) or stored
    if newest is None:
        return None
    same = stored is not None and stored.ruling.outcome is newest.ruling.outcome
    return {
        "outcome": newest.ruling.outcome.value,
        "reason": newest.ruling.reason,
        "at": format_instant(stored.at if stored and same else newest.at),
    }


def _card(one: ValidationResult) -> ResultCard:
    whole = one.after is None
    changed = f"{describe_count(one.rows)} changed after batch {one.after}"
    title = describe_all(one.rows) if whole else changed
    return ResultCard(
        scope="whole" if whole else "changes",
        title=f"{title[0].upper()}{title[1:]}",
        at=format_instant(one.at),
        batch=one.batch,
        summary=_summarize(one),
        left_out=one.left_out,
        lines=tuple(_lines(one.shown)),
    )


def _summarize(one: ValidationResult) -> str:
    """Return one sentence: how many expectations are not met, and how many are not evaluated."""
    total = len(one.shown) + one.left_out
    unknown = sum(each.met is None for each in one.shown)
    if not one.unmet and not unknown:
        return (
            "The only expectation is met." if total == 1 else f"All {total} expectations are met."
        )
    met = any(each.met for each in one.shown)  # met ones come last, so no unmet one is left out
    least = "at least " if one.left_out and not met else ""
    counts = ((one.unmet, "met"), (unknown, "evaluated"))
    parts = [(f"{least}{n}", "is" if n == 1 else "are", what) for n, what in counts if n]
    (first, verb, what), *rest = parts
    text = f"{first} of {total} expectations {verb} not {what}"
    text += "".join(f", {number} {verb} not {what}" for number, verb, what in rest)
    return f"{text[0].upper()}{text[1:]}."


def _lines(shown: tuple[ShownExpectation, ...]) -> Iterator[ExpectationLine]:
    for one in shown:
        count = f"{one.unexpected} of {one.rows}" if one.rows else ""
        if one.met is None:
            yield ExpectationLine("unknown", "?", "not evaluated", count, one)
        elif one.met:
            yield ExpectationLine("met", "\N{CHECK MARK}", "met", count, one)
        elif one.severity == "info":
            yield ExpectationLine("mentioned", "!", "not met", count, one)
        else:
            yield ExpectationLine("unmet", "\N{MULTIPLICATION X}", "not met", count, one)
