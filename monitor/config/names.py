"""Which names in the file refer to nothing?  Each would be silence: a page that nobody ever gets.

Tables are not known before anybody is asked, so a pattern of their names may match nothing yet;
one that can match none is refused.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import is_dataclass
from fnmatch import fnmatchcase

from alerts.causes import KINDS
from alerts.routing import CHANNEL
from checks import run as probes
from monitor.config.copy_plan import CopyPlan
from monitor.config.model import Config
from monitor.config.plans import CheckPlan
from monitor.nearest import nearest
from pipeline.errors import ConfigError
from pipeline.invariants.invariant import Referring
from pipeline.plugins import lacking
from pipeline.settings import InvariantRule, StandardRule

CHECKS = frozenset({*KINDS, "collected"})
"""What the service itself rules on, beside the probes."""
OF_COPIES = "copy:"
OF_SOURCES = ("source:", "collector:", "clock:", "retention:")
ALONE = ("kafka", "worker", "store")  # parts of the way whose names have no dot and no colon


def strangers(
    config: Config,
    plans: Sequence[CheckPlan],
    sinks: Collection[str],
    *,
    demanded: Sequence[InvariantRule] = (),
    restated: Sequence[StandardRule] = (),
    sent: Sequence[CopyPlan] = (),
) -> list[str]:
    """Each as ``place: fault``; *sinks* are the channels' names."""
    return [
        *_gating(config, plans),
        *_routes(config, plans, sinks, sent),
        *_looks(config, plans),
        *_demanded(config, demanded),
        *_restated(config, restated),
        *_archived(config),
        *_sent(config, sent),
    ]


def elsewhere(
    find: Callable[[str], type], names: Iterable[str], needs: type
) -> tuple[list[str], dict[str, str]]:
    """Those of *names* that can be found, as modules elsewhere are; and why the others cannot."""
    found, unknown = [], {}
    for name in names:
        try:
            kind = find(str(name))
        except ConfigError as error:
            unknown[name] = str(error)
        else:
            if lacks := _lacks(kind, needs):
                unknown[name] = f"{kind.__module__}.{kind.__name__} {lacks}"
            else:
                found.append(name)
    return found, unknown


def _lacks(kind: type, needs: type) -> str:
    """What would stop a class of another's in the middle of reading its section."""
    if not is_dataclass(kind):
        return "is no dataclass; its fields would be the settings"
    return lacking(kind, needs)


def _gating(config: Config, plans: Sequence[CheckPlan]) -> Iterator[str]:
    """A gate that looks closed and is open."""
    running = {plan.name for plan in plans}
    _, unknown = elsewhere(probes.find, config.readiness.gating or (), probes.Probe)
    for i, name in enumerate(config.readiness.gating or ()):
        if name in unknown:
            yield f"readiness.gating[{i}]: {unknown[name]}"
        elif name not in running:
            yield f"readiness.gating[{i}]: probe {name!r} is switched off, and can hold no gate"


def _routes(
    config: Config,
    plans: Sequence[CheckPlan],
    sinks: Collection[str],
    copies: Sequence[CopyPlan],
) -> Iterator[str]:
    checks = {*CHECKS, *probes.known(), *(plan.name for plan in plans)}
    for i, route in enumerate(config.alerts.routes):
        at = f"alerts.routes[{i}]"
        for j, check in enumerate(route.checks):
            if not any(fnmatchcase(name, check) for name in checks):
                yield f"{at}.checks[{j}]: no check {check!r}; {nearest(check, checks)}"
        for name in route.channels or ():
            if name not in sinks:
                yield f"{at}.channels: no channel {name!r}; known: {', '.join(sorted(sinks))}"
        if fault := _no_part(route.tables, config, sinks, copies) or _no_table(
            route.tables, config
        ):
            yield f"{at}.tables: {fault}"


def _looks(config: Config, plans: Sequence[CheckPlan]) -> Iterator[str]:
    for plan in plans:
        globs = {"tables": plan.tables}
        globs |= {f"overrides[{i}].tables": glob for i, (glob, _) in enumerate(plan.variants)}
        for place, glob in globs.items():
            if fault := _no_table(glob, config):
                yield f"probes.{plan.name}.{place}: {fault}"


def _demanded(config: Config, rules: Sequence[InvariantRule]) -> Iterator[str]:
    for i, rule in enumerate(rules):
        if fault := _no_table(rule.tables, config):
            yield f"invariants[{i}].tables: {fault}"
        for name, one in rule.invariants:
            for table in sorted(one.others) if isinstance(one, Referring) else ():
                if not _is_table(table):
                    yield f"invariants[{i}].{name}: {table!r} is no table; write database.table"


def _restated(config: Config, rules: Sequence[StandardRule]) -> Iterator[str]:
    """What was to be hidden would reach the lake in the clear."""
    for i, rule in enumerate(rules):
        if fault := _no_table(rule.tables, config):
            yield f"standards[{i}].tables: {fault}"


def _archived(config: Config) -> Iterator[str]:
    """Rows that were to be kept would go."""
    for i, rule in enumerate(config.archive):
        if fault := _no_table(rule.tables, config):
            yield f"archive[{i}].tables: {fault}"
        for j, marker in enumerate(rule.markers):
            if not _is_table(marker.table):
                told = f"{marker.table!r} is no table; write database.table"
                yield f"archive[{i}].markers[{j}].table: {told}"


def _sent(config: Config, copies: Sequence[CopyPlan]) -> Iterator[str]:
    for one in copies:
        for pattern in one.tables:
            if fault := _no_table(pattern, config):
                yield f"copies.{one.name}.tables: {fault}"


def _no_part(pattern: str, config: Config, sinks: Iterable[str], copies: Sequence[CopyPlan]) -> str:
    """Why *pattern*, which names a part of the way, names none that there is."""
    sources = [source.name for source in config.sources]
    known = {before: [f"{before}{name}" for name in sources] for before in OF_SOURCES}
    known[OF_COPIES] = [f"{OF_COPIES}{one.name}" for one in copies]
    known[CHANNEL] = [f"{CHANNEL}{name}" for name in sinks]
    parts = next((parts for word, parts in known.items() if pattern.startswith(word)), None)
    if parts is None or any(fnmatchcase(part, pattern) for part in parts):
        return ""
    return f"no {pattern!r}; {nearest(pattern, parts)}"


def _is_table(name: str) -> bool:
    return "." in name and not any(sign in name for sign in "*?[")


def _no_table(pattern: str, config: Config) -> str:
    """Why *pattern* can match no table: each is called database.table, by rules or by itself."""
    odd = any(  # who knows what groups make of it
        not rule.ignore and "." not in rule.table and rule.table != r"\g<0>"
        for rule in config.tables
    )
    if odd or any(sign in pattern for sign in ".*?[:") or pattern in ALONE:
        return ""
    return f"{pattern!r} matches no table; write database.table, or a pattern such as shop.*"
