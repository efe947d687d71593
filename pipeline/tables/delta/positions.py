"""Positions of rows in a file: between numpy's arrays and the bitmaps of deletion vectors; pure."""

from array import array

import numpy as np
from pyroaring import BitMap64

from pipeline.apply.provenance import Integers, Mask


def bitmap(positions: Integers) -> BitMap64:
    """The *positions* as a set; in any order, each once or more."""
    return BitMap64(array("Q", np.sort(positions).astype(np.uint64).tobytes()))


def among(known: BitMap64, positions: Integers) -> Mask:
    """Which of *positions* are *known*; in any order."""
    if not known or not len(positions):
        return np.zeros(len(positions), np.bool_)
    both = known & bitmap(positions)
    found: Mask = np.isin(positions, np.frombuffer(both.to_array(), np.uint64).astype(np.int64))
    return found
