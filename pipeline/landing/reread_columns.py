"""What tells the columns of rows that were read again, where no row of the log has told them?

A row of the batch's own, as the format would have told them: at their order, so it holds for them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from pipeline.changelog.table import ColumnsTold
from pipeline.landing.facts import Facts, News
from pipeline.landing.rereading import RowsAgain
from pipeline.landing.source_feed import Feed
from pipeline.landing.told_schemas import after, told_schema
from pipeline.model import Shard


def columns_told(rows: Iterable[RowsAgain], feeds: Sequence[Feed]) -> tuple[ColumnsTold, ...]:
    """What *rows* tell; nothing of a source whose statements tell columns."""
    by_source = {feed.settings.name: feed for feed in feeds}
    found = []
    for one in rows:
        shard = Shard.parse(one.name)
        feed = by_source.get(shard.source)
        if feed is None or one.told is None:
            continue
        payload = feed.format.columns_payload(one.told)
        if payload is not None:
            found.append(ColumnsTold(shard.source, shard.name, one.table, one.order, payload))
    return tuple(found)


def with_columns(
    facts: Facts, rows: Iterable[RowsAgain], feeds: Sequence[Feed]
) -> tuple[Facts, tuple[ColumnsTold, ...]]:
    """*facts* with what *rows* tell, as if rows of the log had; and what is to be landed of it."""
    told = columns_told(rows, feeds)
    if not told:
        return facts, ()
    readings = {feed.settings.name: feed.reading for feed in feeds}
    news, schemas = list[News](), dict(facts.schemas)
    for one in told:
        _, changes = readings[one.source].read(one.payload, one.order)
        news += [News(one.source, change, snapshot=False) for change in changes]
        name = str(Shard(one.source, one.shard))
        schemas = after(schemas, {name: told_schema(one.order, one.payload)})
    every = sorted((*facts.news, *news), key=lambda one: (one.source, one.change.order))
    count = facts.statements + len(told)
    return replace(facts, news=tuple(every), statements=count, schemas=schemas), told
