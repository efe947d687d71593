"""What of a table that is sent into a topic which we may not see?  Pure.

Kafka leaves such topics out of its listings without a word, so the table would look empty.
"""

from collections.abc import Callable, Container, Iterable, Mapping, Set
from dataclasses import replace

from pipeline.checkpoint import Mark, is_there
from pipeline.model import Shard
from pipeline.reports import Gap, tell_gap
from pipeline.settings import Router
from pipeline.transports.topics import spelled


def hidden_among(
    names: Set[str],
    prefixes: Mapping[str, str],
    there: Container[str],
    hidden: Callable[[Set[str]], Set[str]],
) -> frozenset[str]:
    """Those shards of *names* whose topics we may not see: they look empty, and may not be.

    *prefixes* are those of the sources' topics, *there* the topics that we see; *hidden* asks which
    of some topics are refused.
    """
    shards = {name: Shard.parse(name) for name in names}
    topics = {n: f"{prefixes[one.source]}.{spelled(one.name)}" for n, one in shards.items()}
    unseen = {topic for topic in topics.values() if topic not in there}
    refused = hidden(unseen) if unseen else frozenset()
    return frozenset(name for name, topic in topics.items() if topic in refused)


def with_hidden(made: Mark, hidden: Iterable[str], router: Router) -> Mark:
    """*made* with a gap of each shard of *hidden* that a table is made of; its base closes it.

    One that the same batch drops again needs none: no later DROP would end it.
    """
    shards, gaps = dict(made.shards), dict(made.gaps)
    for name in sorted(hidden):
        shards[name] = router.table(Shard.parse(name).name)
        if shards[name] is not None and name not in made.bases and is_there(made, name):
            gap = _gap(name, made.batch)
            gaps[gap.id] = tell_gap(gap)
    return replace(made, shards=shards, gaps=gaps)


def _gap(name: str, batch: int) -> Gap:
    why = (
        f"Kafka does not let Sluice's user see a topic of {name}, if there is one: give it "
        "DESCRIBE and READ below the whole prefix, then take a new base of it"
    )
    topic = f"hidden:{name}"
    return Gap(f"{topic}:0:0@{batch}", topic, 0, 0, 0, why, shards=(name,), batch=batch)
