"""Read the texts of a message's key object, for one key or for a whole column.

The texts are the canonical ones of ``pipeline.formats.key``: two spellings of one key must meet.
A column's flat keys without escapes are read by patterns, with white space or without.  Each other
key is read alone, without its message; one that is broken is left to the exact decoder.  Pure.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pipeline.formats import canonical, json_text
from pipeline.formats.canonical import Object

Fields = tuple[tuple[str, str | None], ...]

NAME = r'"[^"\\:\x00-\x1f]+"'
NUMBER = r"(?:0|-?[1-9][0-9]*)"
BARE = rf"(?:{NUMBER}|true|false)"
VALUE = rf'(?:{BARE}|null|"[^"\\\x00-\x1f]*")'
ONE_NUMBER = rf"\A\{{{NAME}:({NUMBER})\}}\z"
FLAT = rf"\A\{{{NAME}:{VALUE}(?:,{NAME}:{VALUE})*\}}\z"
SPACE = r"[ \t\r\n]*"
PAIR = rf"{SPACE}{NAME}{SPACE}:{SPACE}{VALUE}{SPACE}"
FLAT_WITH_SPACE = rf"\A{SPACE}\{{{PAIR}(?:,{PAIR})*\}}{SPACE}\z"
TEXT_OR_SPACE = r'("[^"]*")|[ \t\r\n]+'
LONGEST = canonical.LONGEST_NUMBER  # bytes of a key that cannot hold a number too long
NOTHING = pa.scalar(None, pa.string())
PAYLOAD = b'"payload":{'
BEFORE_PAYLOAD = re.compile(rb'.*"payload"[ \t\r\n]*:[ \t\r\n]*(?=\{)', re.DOTALL)


@dataclass(frozen=True, slots=True)
class Keys:
    """Key values of a column of keys; ``known`` is false where a key is broken."""

    values: pa.StringArray
    known: NDArray[np.bool_]


def read(key: bytes | None) -> Fields | None:
    """Names and texts of the key's fields, out of its payload if wrapped; None if it is broken.

    No key, and an empty one, are ``()``.
    """
    if key is None:
        return ()
    if json_text.read(key) is None:
        return None
    found = canonical.read(key.decode("utf-8"))
    try:
        return None if found is None else _texts(_unwrapped(found))
    except ValueError:
        return None


def values(fields: Fields) -> str | None:
    """JSON array of the texts; None without fields."""
    texts = ("null" if text is None else canonical.quote(text) for _, text in fields)
    return f"[{','.join(texts)}]" if fields else None


def column(keys: pa.BinaryArray) -> Keys:
    """Read the key values of many keys; null where a key is absent, empty or broken."""
    texts = _texts_or_null(keys)
    found = _filled(_unwrapped_texts(texts), texts, _wrapped)
    known = pc.or_(keys.is_null(), found.is_valid())
    return _with_single(keys, Keys(found, known.to_numpy(zero_copy_only=False)))


def _with_single(keys: pa.BinaryArray, found: Keys) -> Keys:
    """Read each key that no pattern fits, alone."""
    if found.known.all():
        return found
    fields = [read(key) for key in keys.filter(pa.array(~found.known)).to_pylist()]
    known = found.known.copy()
    known[~found.known] = [one is not None for one in fields]
    texts = pa.array([values(one or ()) for one in fields], pa.string())
    return Keys(pc.replace_with_mask(found.values, pa.array(~found.known), texts), known)


def _unwrapped(key: Object) -> Object:
    match key.fields:
        case ("schema", _), ("payload", Object() as payload):
            return payload
    return key


def _texts(key: Object) -> Fields:
    return tuple((name, canonical.write(value)) for name, value in key.fields)


def _texts_or_null(keys: pa.BinaryArray) -> pa.StringArray:
    """Return the keys as texts; null where one is not UTF-8."""
    try:
        return keys.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([_text_or_none(key) for key in keys.to_pylist()], pa.string())


def _text_or_none(key: bytes | None) -> str | None:
    try:
        return None if key is None else key.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _filled(
    found: pa.StringArray, texts: pa.StringArray, step: Callable[[pa.StringArray], pa.StringArray]
) -> pa.StringArray:
    """Let *step* find what was not found."""
    left = pc.and_(texts.is_valid(), found.is_null())
    if not pc.any(left).as_py():
        return found
    return pc.replace_with_mask(found, left, step(texts.filter(left)))


def _unwrapped_texts(texts: pa.StringArray) -> pa.StringArray:
    """Values of flat keys without a schema around them; null for others."""
    return _filled(_plain(texts), texts, _spaced)


def _plain(texts: pa.StringArray) -> pa.StringArray:
    """Values of flat keys without a schema and without white space; null for others."""
    return _filled(_one_number(texts), texts, _flat)


def _spaced(texts: pa.StringArray) -> pa.StringArray:
    """Values of flat keys with white space between their signs; null for others.

    It is removed only where the whole key is valid: ``1 2`` must not become ``12``.
    """
    flat = pc.match_substring_regex(texts, FLAT_WITH_SPACE)
    nothing = pa.nulls(len(texts), pa.string())
    if not pc.any(flat).as_py():
        return nothing
    compact = pc.replace_substring_regex(texts.filter(flat), TEXT_OR_SPACE, r"\1")
    return pc.replace_with_mask(nothing, flat, _plain(compact))


def _one_number(texts: pa.StringArray) -> pa.StringArray:
    """Values of keys of one integer, by far the most; null for others."""
    found = pc.replace_substring_regex(texts, ONE_NUMBER, r'["\1"]')
    changed = pc.and_(pc.starts_with(texts, "{"), pc.starts_with(found, "["))
    return pc.if_else(pc.and_(changed, _short(texts)), found, NOTHING)


def _flat(texts: pa.StringArray) -> pa.StringArray:
    """Values of keys of plain texts, integers and booleans; null for others.

    In such a key quotes stand only around names and texts, and only a name has a colon behind
    it, so a name with its colon is found nowhere else.
    """
    flat = pc.and_(pc.match_substring_regex(texts, FLAT), _short(texts))
    quoted = pc.replace_substring_regex(texts.filter(flat), f"{NAME}:({BARE})", r'"\1"')
    inner = pc.utf8_slice_codeunits(pc.replace_substring_regex(quoted, f"{NAME}:", ""), 1, -1)
    nothing = pa.nulls(len(texts), pa.string())
    listed = pc.binary_join_element_wise("[", inner, "]", "")
    return pc.replace_with_mask(nothing, flat, listed)


def _wrapped(texts: pa.StringArray) -> pa.StringArray:
    """Values of keys with their schema around them; null for others.

    A wrapping is what stands before the payload: one that is right with null for a payload is
    right with any object, so it is judged once and the payloads are read as keys of their own.
    """
    judged = cache(_is_wrapping)
    payloads = [_payload(key, judged) for key in texts.cast(pa.binary()).to_pylist()]
    return _unwrapped_texts(pa.array(payloads, pa.binary()).cast(pa.string()))


def _payload(key: bytes | None, judged: Callable[[bytes], bool]) -> bytes | None:
    """The payload of a wrapped key, with the white space behind it; None for another key."""
    if key is None:
        return None
    start = key.rfind(PAYLOAD) + len(PAYLOAD) - 1
    if key.endswith(b"}}") and judged(key[:start]):
        return key[start:-1]
    key = key.rstrip(canonical.BLANKS.encode())
    before = BEFORE_PAYLOAD.match(key)
    fits = before is not None and key.endswith(b"}") and judged(before[0])
    return key[before.end() : -1] if before is not None and fits else None


def _is_wrapping(before: bytes) -> bool:
    fields = json_text.read(before + b"null}")
    return fields is not None and [name for name, _ in fields] == ["schema", "payload"]


def _short(texts: pa.StringArray) -> pa.BooleanArray:
    return pc.less_equal(pc.binary_length(texts), LONGEST)
