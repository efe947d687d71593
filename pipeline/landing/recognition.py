"""Does a new server send again what was landed?  Then those rows take the order they have there."""

import pyarrow as pa

from pipeline.changelog.change_log import ChangeLog
from pipeline.changelog.table import CHANGES, Stamp
from pipeline.checkpoint import Mark
from pipeline.landing.epoch_bounds import newest_starts
from pipeline.landing.epochs import Epochs
from pipeline.landing.redelivery import COLUMNS, reordered, resending, sent_again
from pipeline.landing.shape import slim
from pipeline.landing.staging import Staged, whole, write_rows
from pipeline.landing.tally import tally


def recognised(staged: Staged, mark: Mark, epochs: Epochs, log: ChangeLog, stamp: Stamp) -> Staged:
    """The batch with rows that were sent again under the order they were landed with.

    Where there are none, which is all but the first batches after a fail-over, nothing is read.
    """
    if not staged.files or not resending(mark, epochs.known):
        return staged
    names = [name for name in CHANGES.names if name != "dt"]
    rows = pa.concat_tables([whole(log.store, file, names) for file in staged.files])
    asked = sent_again(rows, mark, epochs.known)
    if not asked:
        return staged
    log.look()
    landed = pa.concat_tables([log.sent(one.source, one.ids, one.since, COLUMNS) for one in asked])
    placed = reordered(rows, landed, newest_starts(epochs.known, epochs.starts))
    if placed.equals(rows):
        return staged
    dated = placed.append_column(
        CHANGES.field("dt"), pa.repeat(pa.scalar(stamp.received.date(), pa.date32()), len(placed))
    )
    (batch,) = dated.select(CHANGES.names).combine_chunks().to_batches()
    file = write_rows(log, batch, stamp)
    told = tally(pa.Table.from_batches([slim(batch)]))
    return Staged((file,), (told,), staged.epochs)
