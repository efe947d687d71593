"""Reports weak ordering of a source, and topics that may lose or compact away changes.

`check_order` concerns sources whose changes carry no log position. `check_topics` ignores topics
whose settings are unknown, so its caller must report them. `name_date_columns` is for information:
it names the column by which `day_counts` counts if the config names none.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from checks.days import choose_date_column
from checks.ordering import CANNOT, SourceOrdering
from pipeline.finding import NOTE, REFUSE, WARN, Finding, FindingSeverity
from pipeline.model import Missing, Ordering
from pipeline.sources.doctor import name_few
from pipeline.transports.topics import COMPACTED, UNCLEAN, TopicFacts

CODE = "weak_order"


def check_order(one: SourceOrdering, partitions: int, where: str) -> list[Finding]:
    """Findings about weak ordering; *partitions* is the number of the source's partitions."""
    found = list[Finding]()
    if one.ordering is Ordering.LOG:
        return found
    what = f"changes are ordered by {CANNOT[one.ordering]}"
    if one.accepted:
        found.append(Finding(NOTE, CODE, where, what, "none: weakest_order accepts it"))
    else:
        fix = f"set weakest_order: {one.ordering} for the source to accept that"
        found.append(Finding(REFUSE, CODE, where, f"no table will be READY: {what}", fix))
    if one.ordering is Ordering.OFFSET and partitions > 1:
        what = f"changes arrive in {partitions} partitions, and offsets of two are not comparable"
        fix = "send all changes of the source to one partition, schema changes too"
        found.append(Finding(REFUSE, "many_partitions", where, what, fix))
    return found


SAFE_COPIES = 2
FOR_EVER = 100 * 365 * 24 * 3600 * 1000  # milliseconds; Debezium sets the largest number
DELETE = "cleanup.policy=delete"
UNTYPED = "compaction deletes schema changes, so rows cannot be decoded"
KEEP = "nothing, or name other columns in probes.day_counts.columns"
NAME_ONE = "create an index on the time of creation, or name a column in probes.day_counts.columns"
UNSTARTABLE = "without its history the connector cannot restart"


@dataclass(frozen=True, slots=True)
class TopicRule:
    """A rule about topics: which ones are ``bad``, ``why``, and the setting to ``want``."""

    severity: FindingSeverity
    code: str
    topics: Sequence[TopicFacts]
    bad: Callable[[TopicFacts], bool]
    why: str
    want: str

    def findings(self, where: str) -> list[Finding]:
        """Return one finding that names all bad topics; empty without any."""
        names = [topic.name for topic in self.topics if self.bad(topic)]
        if not names:
            return []
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        fix = self.want
        if "=" in fix:
            rest = ", and so on" if len(names) > 1 else ""
            fix = f"kafka-configs --alter --topic {names[0]} --add-config {fix}{rest}"
        what = f"{', '.join(names[:3])}{more}: {self.why}"
        return [Finding(self.severity, self.code, where, what, fix)]


def check_topics(
    topics: Sequence[TopicFacts], where: str, *, prefix: str, history: str, outage: timedelta
) -> list[Finding]:
    """Check the topics of one source; a finding names all topics that it concerns.

    *history* is the connector's schema history topic, which must be retained forever; empty if the
    history is stored elsewhere.  *outage* is how long the pipeline may stop without losing a
    change.
    Topics with unknown settings are ignored: the caller reports them.
    """
    topics = [topic for topic in topics if topic.is_described]
    ways = [topic for topic in topics if topic.name != history]
    kept = [topic for topic in topics if topic.name == history]
    milliseconds = outage // timedelta(milliseconds=1)
    typing = [topic for topic in topics if topic.name in (prefix, history)]
    rows = [topic for topic in topics if topic.name not in (prefix, history)]
    rules = (
        TopicRule(REFUSE, "compacted", typing, _compacted, UNTYPED, DELETE),
        TopicRule(REFUSE, "compacted", rows, _compacted, COMPACTED.why, DELETE),
        TopicRule(
            *(WARN, "retention", ways, lambda t: 0 <= _number(t, "retention.ms") < milliseconds),
            *(f"an outage of {outage} would lose changes", f"retention.ms={milliseconds}"),
        ),
        TopicRule(REFUSE, "retention", kept, _mortal, UNSTARTABLE, "retention.ms=-1"),
        TopicRule(
            *(NOTE, "retention_bytes", ways, lambda t: _number(t, "retention.bytes") >= 0),
            *("a burst of changes can delete unread ones", "retention.bytes=-1"),
        ),
        TopicRule(
            *(WARN, "unclean_election", topics, lambda t: not t.meets(UNCLEAN)),
            *(UNCLEAN.why, f"{UNCLEAN.name}=false"),
        ),
        TopicRule(
            *(WARN, "in_sync", topics, _is_alone),
            *("acks=all waits for the disk of one broker only", "min.insync.replicas=2"),
        ),
        TopicRule(
            *(NOTE, "copies", topics, lambda t: t.copies < SAFE_COPIES),
            *("the only copy is on the disk of one broker", "three copies of each partition"),
        ),
    )
    return [finding for rule in rules for finding in rule.findings(where)]


def name_date_columns(tables: Mapping[str, Sequence[Sequence[str]]], where: str) -> list[Finding]:
    """Return notes that name the column by which `day_counts` counts, or why none is chosen.

    *tables* has, for each table, the `World.dated` columns of its shards.
    """
    chosen, none = defaultdict[str, list[str]](list), list[str]()
    for table, dated in sorted(tables.items()):
        found = choose_date_column(dated)
        if isinstance(found, Missing):
            none.append(f"{table} ({found.why})")
        else:
            chosen[found].append(table)
    said = [
        (f"day_counts counts days of {column} in {_count_tables(own)}", KEEP)
        for column, own in sorted(chosen.items())
    ]
    if none:
        said.append((f"day_counts counts no days in {_count_tables(none)}", NAME_ONE))
    return [Finding(NOTE, "date_column", where, what, fix) for what, fix in said]


def _count_tables(names: Sequence[str]) -> str:
    return f"{len(names)} {'table' if len(names) == 1 else 'tables'}: {name_few(names)}"


def _compacted(topic: TopicFacts) -> bool:
    return not topic.meets(COMPACTED)


def _mortal(topic: TopicFacts) -> bool:
    return 0 <= _number(topic, "retention.ms") < FOR_EVER


def _is_alone(topic: TopicFacts) -> bool:
    return topic.copies >= SAFE_COPIES and _number(topic, "min.insync.replicas") == 1


def _number(topic: TopicFacts, name: str) -> int:
    return int(topic.settings.get(name, -1))
