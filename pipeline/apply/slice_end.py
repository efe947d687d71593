"""At which batch does a turn end that is not to read all that waits?

Never between a row that came without some values and the base that tells them.  A change that is
newer than a base may have landed before that base's row.  By itself it would take its missing
values from the mirror as it was: what the base is there to correct would stay.
"""

from collections.abc import Sequence

from pipeline.apply.partial_rows import is_partial
from pipeline.changelog.scan import Part
from pipeline.changelog.slices import TableRows, WantedBatches, bounded, read
from pipeline.lake.store import Store
from pipeline.mark import Mark
from pipeline.model import Table

_READ = ("table", "batch", "changed")


def ended(
    table: Table,
    mark: Mark,
    wanted: WantedBatches,
    near: Sequence[Part],
    rows: TableRows,
    *,
    most: int,
) -> WantedBatches:
    """The older of the *wanted* batches, in files *near* them: about *most* rows.

    More, where a base that begins in them ends later, and some of their rows are not whole.
    """
    found = bounded(rows, near, table.name, wanted, most)
    return to_base_end(table, mark, found, wanted.until, near, store=rows.store)


def to_base_end(
    table: Table,
    mark: Mark,
    found: WantedBatches,
    until: int,
    near: Sequence[Part],
    *,
    store: Store,
) -> WantedBatches:
    """The batches *found*, and those until a base ends that begins in them; none after *until*.

    Only where some of their rows, in files *near* them, are not whole.
    """
    until = min(_base_end(table, mark, found), until)
    if until <= found.until:
        return found
    own = [part for part in near if found.meets(part)]
    told = read(store, own, {table.name: found}, columns=_READ).get(table.name)
    if told is None or not is_partial(told).any():
        return found
    return WantedBatches(found.after, until)


def _base_end(table: Table, mark: Mark, found: WantedBatches) -> int:
    """The last batch of the bases that begin in *found*; a new mirror has no rows before any."""
    names = [str(shard) for shard in table.shards]
    begun = [one for one in names if found.after < 0 or mark.based.get(one, -1) <= found.until]
    return max((mark.complete.get(name, -1) for name in begun), default=-1)
