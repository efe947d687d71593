"""Which tables does a connector capture?  Its lists are regular expressions on whole names.

Pure.
"""

import re
from collections.abc import Callable, Mapping

from pipeline.errors import ConfigError
from pipeline.finding import REFUSE, Finding

DATABASES = ("database.include.list", "database.exclude.list")
TABLES = ("table.include.list", "table.exclude.list")
Patterns = list[re.Pattern[str]]


def captured(config: Mapping[str, str]) -> Callable[[str], bool]:
    """Tell of ``database.table`` whether the connector with that *config* sends its changes.

    Raises:
        ConfigError: if one of its lists is no regular expression that Sluice can read.
    """
    databases, tables = (
        (_patterns(config, include), _patterns(config, exclude))
        for include, exclude in (DATABASES, TABLES)
    )

    def judge(table: str) -> bool:
        return _passes(*databases, table.partition(".")[0]) and _passes(*tables, table)

    return judge


def heartbeat_findings(config: Mapping[str, str], heartbeat: str, where: str) -> list[Finding]:
    """Refuse a connector that does not send the heartbeat's changes."""
    fixes = []
    for (include, exclude), name in ((DATABASES, heartbeat.partition(".")[0]), (TABLES, heartbeat)):
        if not _passes(_patterns(config, include), _patterns(config, exclude), name):
            entry = re.escape(name)
            inside = bool(config.get(include))
            fixes.append(f"add {entry} to {include}" if inside else f"let {exclude} spare {name}")
    if not fixes:
        return []
    what = f"{heartbeat} is not captured: no heartbeat would arrive, so nothing could be proven"
    return [Finding(REFUSE, "heartbeat_captured", where, what, "; ".join(fixes))]


def _patterns(config: Mapping[str, str], name: str) -> Patterns:
    try:
        return [
            re.compile(one.strip().replace("\\,", ","), re.IGNORECASE)
            for one in re.split(r"(?<!\\),", config.get(name, ""))
            if one.strip()
        ]
    except re.error as error:
        raise ConfigError(f"{name} of the connector is no regular expression: {error}") from error


def _passes(included: Patterns, excluded: Patterns, name: str) -> bool:
    return _any(included, name) if included else not _any(excluded, name)


def _any(patterns: Patterns, name: str) -> bool:
    return any(pattern.fullmatch(name) for pattern in patterns)
