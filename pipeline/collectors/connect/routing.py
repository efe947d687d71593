"""Follows the topic of a table through a connector's naming strategy and routers.

A router may send the rows of one table to a topic that its source does not read, while heartbeats
and DDL still arrive. Such a table counts as excluded by the connector's lists.

The order is Debezium's: the naming strategy, then the transforms as listed. A router acts only on
a topic whose whole name matches its expression. A predicate on the topic is evaluated. The
predicate for tombstones counts as false, because changes are none; any other counts as true.
Cannot detect: topics of other naming strategies, which `requirements` rejects. Pure.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import replace

from pipeline.collectors.connect.requirements import split_list
from pipeline.collectors.connect.table_filter import compile_patterns
from pipeline.model import CaptureScope, ShardId
from pipeline.settings import SourceSettings

# Routers by the last part of their class, with their settings for expression and replacement.
ROUTERS = {
    "ByLogicalTableRouter": ("topic.regex", "topic.replacement"),
    "RegexRouter": ("regex", "replacement"),
}
STRATEGY = "topic.naming.strategy"
BY_REGEX = ("DefaultRegexTopicNamingStrategy", "SchemaRegexTopicNamingStrategy")
DELIMITER = "topic.delimiter"
_SAID_BY = "the collector's lists, or a router to a topic that the source does not read"
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")  # Debezium writes _ instead
_REFERENCE = re.compile(r"\\(.)|\$\{(\w+)\}|\$(\d+)", re.DOTALL)


def follow_routers(
    lists: CaptureScope, config: Mapping[str, str], source: SourceSettings | None
) -> CaptureScope:
    """Exclude from *lists* the tables that *config* routes to topics that *source* does not read.

    Without routers the lists stay as they are.  If an expression cannot be read, the result is not
    ``known``.
    """
    routing = _routing(config)
    if source is None or not routing:
        return lists
    read = re.compile(source.topic_pattern)
    between = source.mirrored
    alias = f"{between.alias}." if between is not None and between.alias else ""
    prefix = config.get("topic.prefix", source.collected_prefix)
    delimiter = config.get(DELIMITER, ".")
    text = json.dumps([lists.text, routing, source.topic_pattern])
    try:
        route_topic(config, prefix)
    except re.error as error:
        return replace(lists, text=text, known=False, said_by=f"the collector's routers ({error})")

    def sends(shard: ShardId) -> bool:
        if not lists(shard):
            return False
        topic = delimiter.join((prefix, shard.database, shard.relation))
        routed = route_topic(config, _UNSAFE.sub("_", topic))
        return read.fullmatch(alias + routed) is not None

    return replace(lists, sends=sends, text=text, said_by=_SAID_BY)


def route_topic(config: Mapping[str, str], topic: str) -> str:
    """The topic to which the naming strategy and routers of *config* change *topic*.

    Raises:
        re.error: an expression or a replacement cannot be read here.
    """
    if config.get(STRATEGY, "").endswith(BY_REGEX):
        topic = _renamed(topic, config.get("topic.regex", ""), config.get("topic.replacement", ""))
    for own, short in _routers(config):
        expression, replacement = (config.get(f"{own}.{name}", "") for name in ROUTERS[short])
        if _acts(config, config.get(f"{own}.predicate", ""), own, topic):
            topic = _renamed(topic, expression, replacement)
    return topic


def _routers(config: Mapping[str, str]) -> list[tuple[str, str]]:
    names = split_list(config.get("transforms", ""))
    found = [(f"transforms.{name}", config.get(f"transforms.{name}.type", "")) for name in names]
    short = [(own, kind.rpartition(".")[2].partition("$")[0]) for own, kind in found]
    return [one for one in short if one[1] in ROUTERS]


def _routing(config: Mapping[str, str]) -> dict[str, str]:
    """Settings of routers and of a naming strategy by expression, sorted; empty without both."""
    owned = [f"{own}." for own, _ in _routers(config)]
    if config.get(STRATEGY, "").endswith(BY_REGEX):
        owned += [STRATEGY, "topic.regex", "topic.replacement"]
    if not owned:
        return {}
    owned += ["predicates.", "topic.prefix", DELIMITER]
    return {n: config[n] for n in sorted(config) if n == "transforms" or n.startswith(tuple(owned))}


def _acts(config: Mapping[str, str], predicate: str, own: str, topic: str) -> bool:
    if not predicate:
        return True
    kind = config.get(f"predicates.{predicate}.type", "").rpartition(".")[2]
    negated = config.get(f"{own}.negate", "").strip().lower() == "true"
    if kind == "TopicNameMatches":
        pattern = _compiled(config.get(f"predicates.{predicate}.pattern", ""))
        return (pattern.fullmatch(topic) is not None) != negated
    return negated if kind == "RecordIsTombstone" else True


def _renamed(topic: str, expression: str, replacement: str) -> str:
    pattern = _compiled(expression)
    found = pattern.fullmatch(topic)

    def refer(one: re.Match[str]) -> str:
        escaped, name, number = one.groups()
        if escaped is not None or found is None:
            return escaped or ""
        if name is not None:
            return found[name] or ""
        digits = number  # Java reads only as many digits as form the number of a group
        while len(digits) > 1 and int(digits) > pattern.groups:
            digits = digits[:-1]
        return (found[int(digits)] or "") + number[len(digits) :]

    try:
        return topic if found is None else _REFERENCE.sub(refer, replacement)
    except IndexError as error:
        raise re.error(f"{replacement!r}: {error}") from error


def _compiled(expression: str) -> re.Pattern[str]:
    """Compile the Java expression *expression*, case-sensitively."""
    (found,) = compile_patterns([expression])
    return re.compile(found.pattern, re.ASCII)
