"""How would Connect's JSON converter have written these values?

Bytes become base64; floats that are no numbers become texts, as Jackson writes them.  A column
holds the JSON of many bodies, made at once.  Pure.
"""

import binascii
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.formats.canonical import quote
from pipeline.formats.debezium.avro_bodies import Bodies

NULL = "null"
NO_TEXT = "a text is not UTF-8"
ODD = np.zeros(256, np.bool_)
ODD[:32] = ODD[ord('"')] = ODD[ord("\\")] = True


@dataclass(frozen=True, slots=True)
class Texts:
    """JSON of a field of each body: one for all if it is a ``str``, else without its quotes."""

    column: pa.StringArray | str
    quoted: bool = False

    def whole(self, count: int) -> pa.StringArray:
        """A column with the quotes."""
        if isinstance(self.column, str):
            return pa.repeat(pa.scalar(self.column), count)
        if self.quoted:
            return pc.binary_join_element_wise('"', self.column, '"', "")
        return self.column


def joined(pieces: Sequence[str | Texts]) -> Texts:
    """All pieces of each body in a row; literals that meet are one."""
    merged: list[str | pa.StringArray] = []
    for piece in pieces:
        one = piece.column if isinstance(piece, Texts) else piece
        if isinstance(one, str) and merged and isinstance(merged[-1], str):
            merged[-1] += one
        else:
            merged.append(one)
    if len(merged) == 1 and isinstance(merged[0], str):
        return Texts(merged[0])
    return Texts(pc.binary_join_element_wise(*merged, ""))


def utf8(found: pa.BinaryArray, bodies: Bodies) -> pa.StringArray:
    """Values of *bodies* as texts; DamagedError for those that are none."""
    try:
        return found.cast(pa.string())
    except pa.ArrowInvalid:
        odd = np.fromiter((not _is_text(one) for one in found.to_pylist()), np.bool_, len(found))
        bodies.refuse(odd, NO_TEXT)
        raise


def _is_text(value: bytes) -> bool:
    try:
        value.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def escaped(texts: pa.StringArray) -> pa.StringArray:
    """What stands between the quotes; few texts hold a letter that must be escaped."""
    _, offsets, data = texts.buffers()
    bounds = np.frombuffer(offsets, np.int32)[: len(texts) + 1]
    if data is None or not (odd := ODD[np.frombuffer(data, np.uint8)[: bounds[-1]]]).any():
        return texts
    rows = np.unique(np.searchsorted(bounds, np.flatnonzero(odd), side="right") - 1)
    mask = np.zeros(len(texts), np.bool_)
    mask[rows] = True
    mended = [quote(texts[row].as_py())[1:-1] for row in rows.tolist()]
    return pc.replace_with_mask(texts, pa.array(mask), pa.array(mended, pa.string()))


def base64(found: pa.BinaryArray) -> Texts:
    """Bytes as Jackson writes them."""
    return Texts(pa.array(map(encoded, found.to_pylist()), pa.string()), quoted=True)


def encoded(value: bytes) -> str:
    """One of them, without its quotes."""
    return binascii.b2a_base64(value, newline=False).decode()


def real(value: float) -> str:
    """A number with a fraction, or the text that stands for what is none."""
    if math.isfinite(value):
        return repr(value)
    return '"NaN"' if math.isnan(value) else '"Infinity"' if value > 0 else '"-Infinity"'
