"""What is on a server, as far as a config names it?  Its catalogue is asked; no row is read."""

from collections.abc import Callable, Iterable
from contextlib import closing

from monitor.onboarding.proposal import SeenTable
from pipeline.build import open_source
from pipeline.model import Shard
from pipeline.settings import SourceSettings

Progress = Callable[[Iterable[Shard], int], Iterable[Shard]]


def survey(settings: SourceSettings, progress: Progress) -> tuple[SeenTable, ...]:
    """Every table but Sluice's own; *progress* goes through the shards, of which it gets the count.

    Raises:
        UnreachableError: the server does not answer.
        ConfigError: there is no such kind of source, or its user may not log in.
    """
    with closing(open_source(settings)) as source:
        shards = [one for one in source.shards(".*") if one.name != settings.heartbeat]
        rows = source.describe([one.name for one in shards]).rows
        return tuple(
            SeenTable(
                one.name,
                tuple(map(str, source.columns(one))),
                source.key_columns(one),
                rows.get(one.name),
            )
            for one in progress(shards, len(shards))
        )
