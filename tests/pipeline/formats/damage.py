"""Messages as they may become on their way: cut, spliced, swapped, of another kind inside."""

import re
import struct
from collections.abc import Sequence
from random import Random

from tests.pipeline.formats.batches import Raw

TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|-?[0-9]+(?:\.[0-9]+)?|true|false|null')
OTHERS = (
    *(b"null", b"true", b"{}", b"[]", b'""', b'"x"', b"-1", b"0", b"1e400", b"-0.0", b"1.5"),
    *(b"9" * 30, b"9" * 5_000, b'"' + b"9" * 5_000 + b'"', b"9223372036854775807", b"-99999999999"),
    *('"²"'.encode(), b'"\\ud800"', b'{"\\ud800":1}', b'"\xff"', b'{"a":[{}]}', b'"c"'),
    *(b"[" * depth + b"]" * depth for depth in (300, 950, 5_000)),
)
PIECES = (b"\x00", b"\xff", b"\xed\xa0\x80", b'"', b"{", b"}", b",", b"\\", b"\n", b"\xff" * 11)


def damaged(raw: Raw, others: Sequence[Raw], dice: Random) -> Raw:
    """*raw* with harm done to its key, its value, both, or to what belongs together."""
    key, value, topic = raw
    match dice.randrange(10):
        case 0:
            return _hurt(key, others, dice), value, topic
        case 1:
            return dice.choice(others)[0], value, topic
        case 2:
            return key, dice.choice((None, b"", b"null", b"{}", b"[]")), topic
        case 3:
            return key, value, dice.choice(others)[2]
        case 4:
            return _hurt(key, others, dice), _hurt(value, others, dice), topic
    return key, _hurt(value, others, dice), topic


def _hurt(data: bytes | None, others: Sequence[Raw], dice: Random) -> bytes | None:
    if not data:
        return dice.randbytes(dice.randrange(20))
    for _ in range(dice.choice((1, 1, 1, 2, 3))):
        way = dice.choice((_reworded, _reworded, _spliced, _cut, _renumbered))
        data = way(data, others, dice)
    return data


def _reworded(data: bytes, _: Sequence[Raw], dice: Random) -> bytes:
    """Another word in the place of one: what comes of it is often built well and means nonsense."""
    words = list(TOKEN.finditer(data))
    if not words:
        return data + dice.choice(PIECES)
    chosen = dice.choice(words)
    new = dice.choice(OTHERS) if dice.random() < 0.8 else dice.choice(words)[0]
    return data[: chosen.start()] + new + data[chosen.end() :]


def _spliced(data: bytes, others: Sequence[Raw], dice: Random) -> bytes:
    other = dice.choice(others)[1] or b"{}"
    at, cut = dice.randrange(len(data) + 1), dice.randrange(len(other) + 1)
    new = dice.choice((other[cut : cut + 40], dice.choice(PIECES), dice.randbytes(3)))
    return data[:at] + new + data[at + dice.choice((0, 1, len(new))) :]


def _cut(data: bytes, _: Sequence[Raw], dice: Random) -> bytes:
    at = dice.randrange(len(data) + 1)
    return dice.choice((data[:at], data[at:], data[:at] + data[at + 1 :], data + data[:at]))


def _renumbered(data: bytes, _: Sequence[Raw], dice: Random) -> bytes:
    """Another schema's number, where the first bytes are one's."""
    return data[:1] + struct.pack(">I", dice.choice((1, 5, 6, 77, 2**32 - 1))) + data[5:]
