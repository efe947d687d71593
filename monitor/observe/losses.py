"""Names the losses of a table: gaps and undecoded changes, whose rows its log does not name.

A waiver brings no row back, and the next batch deletes what was waived from the checkpoint. So a
waived id stays a loss. Its shards are found by the topic or the source in the id. If this names
nothing known, it concerns every table.

A gap whose cause lasts is no loss yet, because a lap would end before its last loss. Once it has
ended or is waived, it is one.

Cannot detect: a setting that was waived, and lasts or comes again.
"""

import re
from collections.abc import Callable, Container, Iterable, Mapping

from pipeline.checkpoint import DELAY, SETTING, Checkpoint
from pipeline.model import Shard, Table
from pipeline.transports.topics import spell_topic, topic_endings

_WAIVED = re.compile(
    rf"(?P<subject>.+):(\d+:\d+|and \d+ more)@\d+|{SETTING}:(?P<source>[^:]+):.+", re.DOTALL
)


def find_losses(
    table: Table,
    checkpoint: Checkpoint,
    waived: Iterable[str],
    spelled: Callable[[], Container[str]],
) -> Mapping[str, frozenset[Shard]]:
    """Return the ids of open and *waived* losses of *table*, each with the shards it may concern.

    *spelled* returns the names of all known shards as they are in topics. Nothing is lost by a
    setting that only delays changes. Gaps that `loses_changes` finds are left out, unless they are
    *waived*.
    """
    own = {str(shard): shard for shard in table.shards}
    found = dict[str, frozenset[Shard]]()
    for id_, gap in checkpoint.gaps.items():
        if gap.concerns(table) and gap.doubt != DELAY and not gap.lasts:
            found[id_] = _among(own, gap.shards)
    for subject, one in checkpoint.quarantine.items():
        if one.table == table.name or not own.keys().isdisjoint({subject, *one.shards}):
            shards = _among(own, (subject, *one.shards))
            found |= dict.fromkeys(one.names(subject), shards)
    sources = {shard.source for shard in checkpoint.shards}
    for id_ in waived:
        matched = None if id_ in found else _WAIVED.fullmatch(id_)
        if matched and (shards := _find_waived(matched, own, sources, spelled)):
            found[id_] = shards
    return found


def loses_changes(table: Table, checkpoint: Checkpoint) -> bool:
    """Whether *table* has an open gap whose cause may still lose changes."""
    return any(gap.lasts and gap.concerns(table) for gap in checkpoint.gaps.values())


def spell_topics(shards: Iterable[Shard]) -> frozenset[str]:
    """Return the names of *shards* as they are in topics."""
    return frozenset(spell_topic(shard.name) for shard in shards)


def _among(own: Mapping[str, Shard], names: Iterable[str]) -> frozenset[Shard]:
    """Return those of *own* that are among *names*; all of them if none is."""
    return frozenset(own[name] for name in names if name in own) or frozenset(own.values())


def _find_waived(
    waived: re.Match[str],
    own: Mapping[str, Shard],
    sources: Container[str],
    spelled: Callable[[], Container[str]],
) -> frozenset[Shard]:
    """Return those of *own* that a waived loss may concern; none if it is of others, or no loss.

    A kind may precede the name of a source or a shard. A name without one is a topic.
    """
    subject = (waived["subject"] or f"{SETTING}:{waived['source']}").removeprefix("topic:")
    kind, _, named = subject.partition(":")
    about = named or (subject if "/" in subject else "")
    if kind == "disorder" or "/" in about:
        return frozenset(shard for name, shard in own.items() if name == about)
    every = frozenset(own.values())
    if about:
        of = frozenset(shard for shard in every if shard.source == about)
        return of if of or about in sources else every
    ends = {*topic_endings(subject)}
    of = frozenset(shard for shard in every if spell_topic(shard.name) in ends)
    return of if of or any(end in spelled() for end in ends) else every
