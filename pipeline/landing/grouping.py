"""Which rows hold the same values?  Each gets the number of its group, by hashing.  Pure."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Ints = npt.NDArray[np.int64]


def grouped(rows: pa.Table, names: Sequence[str]) -> tuple[Ints, Ints]:
    """Each row's group, from 0 on in the order they come, and the first row of each group.

    Null is a value like any other.
    """
    codes: Ints = np.zeros(rows.num_rows, np.int64)
    for name in names:
        column = _encoded(rows[name].combine_chunks())
        if len(column.dictionary) > 1:
            mixed = codes * len(column.dictionary) + column.indices.to_numpy()
            codes = _encoded(pa.array(mixed)).indices.to_numpy().astype(np.int64)
    firsts: Ints = np.zeros(int(codes.max(initial=-1)) + 1, np.int64)
    firsts[codes[::-1]] = np.arange(len(codes))[::-1]  # of equal places the last one written stays
    return codes, firsts


def _encoded(values: pa.Array) -> pa.DictionaryArray:
    return pc.dictionary_encode(values, null_encoding="encode")
