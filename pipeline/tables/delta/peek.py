"""What do some rows of a mirror hold?  Read where they were found, and of their columns only."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from pipeline.apply.decide import Found
from pipeline.tables.delta.data_file import opened
from pipeline.tables.delta.mirror_files import MirrorFiles, taken


def values(mirror: MirrorFiles, found: Found, names: Sequence[str]) -> pa.Table:
    """Columns *names* of the rows *found*, all somewhere, in their order; null where none is.

    Raises:
        HeldError: a file cannot be read.
    """
    paths = [mirror.layout.path((name,)) for name in names]
    parts, places = [], []
    for number in np.unique(found.file).tolist():
        here = np.flatnonzero(found.file == number)
        with opened(mirror.store, mirror.files[number], mirror.footers) as data:
            for group, first in data.groups:
                end = first + data.footer.metadata.row_group(group).num_rows
                inside = here[(found.position[here] >= first) & (found.position[here] < end)]
                if len(inside):
                    rows = found.position[inside] - first
                    columns = [taken(column, rows) for column in data.columns(group, paths)]
                    parts.append(pa.table(columns, list(names)))
                    places.append(inside)
    order = np.argsort(np.concatenate(places))
    return pa.concat_tables(parts, promote_options="default").take(pa.array(order))
