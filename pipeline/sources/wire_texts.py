"""How do values of columns become rows of JSON, as a collector would have written them?  Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.formats.canonical import quote

BRIEF = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}
"""What every writer of JSON escapes alike, in the order in which it may be replaced."""
FIRST_PLAIN = 0x20
CONTROLS = r"[\x00-\x1f]"


@dataclass(frozen=True, slots=True, eq=False)
class WireTexts:
    """A column's values as texts; ``quoted`` if they stand in quotes in JSON."""

    texts: pa.StringArray
    quoted: bool

    @property
    def fragments(self) -> pa.StringArray:
        """Each as JSON."""
        written = _quoted(self.texts, _json) if self.quoted else self.texts
        return pc.fill_null(written, "null")


def rows_of(names: Sequence[str], told: Sequence[WireTexts]) -> pa.StringArray:
    """Each row as a JSON object, *told* column by column."""
    parts = list[pa.StringArray | str]()
    for name, one in zip(names, told, strict=True):
        parts += [f"{',' if parts else '{'}{_json(name)}:", one.fragments]
    return pc.binary_join_element_wise(*parts, "}", "")


def keys_of(texts: Sequence[pa.StringArray]) -> pa.StringArray:
    """Each row's key as a format tells it (``key_values``), *texts* being its columns."""
    parts = list[pa.StringArray | str]()
    for one in texts:
        parts += ["," if parts else "[", pc.fill_null(_quoted(one, quote), "null")]
    return pc.binary_join_element_wise(*parts, "]", "")


def _quoted(texts: pa.StringArray, exact: Callable[[str], str]) -> pa.StringArray:
    """In quotes; *exact* writes those that hold what is not escaped everywhere alike."""
    there = _bytes_in(texts)
    written, odd = texts, {*range(FIRST_PLAIN)} - {ord(char) for char in BRIEF} & there
    for char, escape in BRIEF.items():
        if ord(char) in there:
            written = pc.replace_substring(written, char, escape)
    made = pc.binary_join_element_wise('"', written, '"', "")
    if not odd:
        return made
    strange = pc.fill_null(pc.match_substring_regex(texts, CONTROLS), False)
    rest = pa.array(map(exact, texts.filter(strange).to_pylist()), pa.string())
    return pc.replace_with_mask(made, strange, rest)


def _bytes_in(texts: pa.StringArray) -> set[int]:
    """Which bytes occur in *texts*."""
    offsets = np.frombuffer(texts.buffers()[1], np.int32)[texts.offset :][: len(texts) + 1]
    data = texts.buffers()[2]
    if data is None or not len(offsets):
        return set()
    there = np.zeros(2**8, np.bool_)
    there[np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]]] = True
    return {*np.flatnonzero(there).tolist()}


def _json(text: str) -> str:
    return msgspec.json.encode(text).decode()
