"""Catch up, then compare every mirror with its source, row by row and value by value."""

from demo.oracle.compare import Diff, compare, mirror_path
from demo.shop import visits
from demo.shop.schema import MIRRORS
from demo.story.stage import Stage, UnseenError

TITLE = "stop writing, catch up, compare row by row"
WORRIES = ("lost", "blocked", "suspect")


def play(stage: Stage) -> str:
    """Wait for the gate of now, compare, and check that no false alarm was paged.

    Raises:
        UnseenError: rows differ (the first are named), or there was a false alarm.
    """
    stage.ask_gate("before the harm")
    rows = compared(stage, "after catching up")
    alarms = [
        f"{each['check']} of {each['about']}: {each['reason']}"
        for each in stage.service.incidents("firing", "recovering", "resolved")
        if each["kind"] in WORRIES
    ]
    if alarms:
        msg = f"false alarms: {'; '.join(alarms)}"
        raise UnseenError(msg)
    return f"{rows} rows of {len(MIRRORS) + 1} mirrors equal their source; no false alarm"


def compared(stage: Stage, when: str) -> int:
    """Compare now and keep the result; return how many rows are equal.

    Raises:
        UnseenError: a row differs.
    """
    diffs = compare(stage.address, stage.service.lake, ledger=stage.ledger.entries())
    stage.summary.tables[when] = {
        name: {"rows": diff.rows, **diff.counts} for name, diff in diffs.items()
    }
    for name, diff in diffs.items():
        stage.screen.say(f"  {name}: {_told(diff)}")
    wrong = [f"{name}: {diff}" for name, diff in diffs.items() if not diff.clean]
    if wrong:
        raise UnseenError("; ".join(wrong))
    return sum(diff.rows for diff in diffs.values()) + _compare_visits(stage)


def _compare_visits(stage: Stage) -> int:
    stage.ask_gate_for(visits.NAME)
    source = stage.visits.source()
    mirror = stage.visits.mirror(mirror_path(stage.service.lake, visits.NAME))
    stage.screen.say(f"  {visits.NAME}: {mirror.rows} rows, CRC sum {mirror.crc}")
    if source != mirror:
        raise UnseenError(f"{visits.NAME}: the source has {source}, the mirror {mirror}")
    return source.rows


def _told(diff: Diff) -> str:
    counts = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in diff.counts.items())
    return f"{diff.rows} rows; {counts}"
