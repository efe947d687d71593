"""Does a connector send the heartbeat's changes, as its lists say?  Pure."""

import re
from collections.abc import Mapping

from pipeline.collectors.connect.connected import read_by
from pipeline.collectors.connect.table_filter import TABLES, Patterns, listed, passes, patterns
from pipeline.finding import REFUSE, Finding

UNREADABLE = (
    r"write it without sets of sets ([a-z&&[^t]]), classes of Unicode (\p{L}), ends of words (\b),"
    r" repeats of repeats ((a+)+) or of choices ((foo|bar)*);"
    " then a new base of its tables: docs/guides/add-a-table.md#readable-lists"
)


def heartbeat_findings(config: Mapping[str, str], heartbeat: str, where: str) -> list[Finding]:
    """Refuse a connector that does not send the heartbeat's changes, or has odd lists."""
    outer = listed(read_by(config).lists)
    lists: dict[str, Patterns] = {}
    for name in (*outer, *TABLES):
        try:
            lists[name] = patterns(config.get(name, ""))
        except re.error as error:
            what = f"{name} of the connector cannot be read, so it may leave out any table: {error}"
            return [Finding(REFUSE, "not_allowed", where, what, UNREADABLE)]
    fixes = []
    for (include, exclude), name in ((outer, heartbeat.partition(".")[0]), (TABLES, heartbeat)):
        if not passes(name, lists[include], lists[exclude]):
            entry = re.escape(name)
            inside = bool(config.get(include))
            fixes.append(f"add {entry} to {include}" if inside else f"let {exclude} spare {name}")
    if not fixes:
        return []
    what = f"{heartbeat} is not captured: no heartbeat would arrive, so nothing could be proven"
    return [Finding(REFUSE, "heartbeat_captured", where, what, "; ".join(fixes))]
