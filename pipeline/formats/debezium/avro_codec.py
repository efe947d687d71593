"""Reads Avro bodies as JSON text, field by field for many bodies or one body at a time.

Both ways give the same result for every body. Reading many together costs some calls per field, for
any number of bodies. Reading one costs some calls per field in each body, which is less if bodies
are few.

All bodies of a group have one schema, so only lengths differ. The encoding is that of the Avro
specification, "Binary encoding": zigzag integers with seven bits per byte, texts and bytes after
their length. An invalid body is named, and never read beyond its end.

A union becomes the value of its branch, without the branch's name. Logical types change nothing,
because Connect's JSON shows its own logical types as they are stored. A schema that contains
itself, or two fields of one name, is rejected.

Values are written as Connect's JSON converter writes them. Bytes become base64. NaN and the
infinities become texts, as Jackson writes them.

Some values take no byte: null, and a record of nulls. So the length of a body does not bound what
it becomes. A schema is bounded in depth and in the text of one row, and a body in the text of its
lists. What exceeds a bound is rejected before memory is used for it.
"""

import binascii
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pipeline.errors import FormatError
from pipeline.formats.json_text import quote_text

Places = NDArray[np.int64]
Mask = NDArray[np.bool_]

MARGIN = 32  # bytes behind the last body that may be read, but are never used
MORE, ONE = np.uint8(0x80), np.uint64(1)
TOPS = np.uint64(0x8080808080808080)
NINTH, TENTH = np.uint64(56), np.uint64(63)
ENDS = "it ends inside an integer"
INSIDE = "it ends inside a value"
TOO_WIDE = "an integer has more than 64 bits"
TOO_LONG = "a list is longer than what is left"
TOO_LARGE = "the JSON of its lists is larger than 1 MiB and 64 times the message"
TEXT_BYTES, TEXT_RATIO = 2**20, 64  # most text of a body's lists: a base, and per byte
ITEM_BYTES = 16  # charged for an item in addition to its text, as an empty item costs time, too


class DamagedError(Exception):
    """Some bodies do not fit their schema: ``rows`` of the group, all for the reason ``why``."""

    def __init__(self, rows: NDArray[np.intp], why: str) -> None:
        super().__init__(why)
        self.rows = rows
        self.why = why


@dataclass(eq=False)
class BatchCursor:
    """The read position in each body: ``at`` moves on to ``end``.

    ``data`` holds all bodies, one after the other, and a margin; ``rows`` are their numbers.
    ``spare`` is by number: how much text each may still become.
    """

    data: NDArray[np.uint8]
    buffer: pa.Buffer
    at: Places
    end: Places
    rows: NDArray[np.intp]
    spare: Places

    @classmethod
    def of(cls, messages: pa.BinaryArray, skip: int) -> "BatchCursor":
        """Return a cursor of *messages*, none null, without their first *skip* bytes."""
        count = len(messages)
        _, offsets, data = messages.buffers()
        bounds = np.frombuffer(offsets, np.int32)[messages.offset : messages.offset + count + 1]
        begin, end = int(bounds[0]), int(bounds[-1])
        whole = np.zeros(end - begin + MARGIN, np.uint8)
        if end > begin:
            whole[: end - begin] = np.frombuffer(data, np.uint8)[begin:end]
        places = bounds.astype(np.int64) - begin
        at, until = places[:-1] + skip, places[1:].copy()
        spare = TEXT_BYTES + TEXT_RATIO * (until - at)
        return cls(whole, pa.py_buffer(whole), at, until, np.arange(count), spare)

    def only(self, mask: Mask) -> "BatchCursor":
        """Return a cursor of some bodies; `follow` copies back how far they were read."""
        at, end, rows = self.at[mask], self.end[mask], self.rows[mask]
        return BatchCursor(self.data, self.buffer, at, end, rows, self.spare)

    def follow(self, some: "BatchCursor", mask: Mask) -> None:
        """Move on to where *some* was read to."""
        self.at[mask] = some.at

    def refuse(self, mask: Mask, why: str) -> None:
        """Raise DamagedError if *mask* names a body."""
        if mask.any():
            raise DamagedError(self.rows[mask], why)

    def charge(self, texts: Sequence[str]) -> None:
        """Count one item per body; DamagedError for bodies whose items have too much text."""
        self.spare[self.rows] -= np.fromiter(map(len, texts), np.int64, len(texts)) + ITEM_BYTES
        self.refuse(self.spare[self.rows] < 0, TOO_LARGE)

    def longs(self) -> Places:
        """Read one integer per body."""
        byte = self.data[self.at]
        if not (byte & MORE).any():
            self.at = self.at + 1
            self.refuse(self.at > self.end, ENDS)
            short = byte.astype(np.int64)
            return (short >> 1) ^ -(short & 1)
        word = self._words()[self.at]
        stop = ~word & TOPS
        stop &= ~stop + ONE  # the top bit of the last byte; 0 if that is not among eight
        inside = stop - ONE
        self.at = self.at + (np.bitwise_count(inside) >> np.uint8(3)) + 1
        value = _packed(word & inside)
        if not stop.all():
            self._longest(value, np.flatnonzero(stop == 0))
        self.refuse(self.at > self.end, ENDS)
        return (value >> ONE).astype(np.int64) ^ -(value & ONE).astype(np.int64)

    def fixed(self, size: int) -> pa.BinaryArray:
        """Read the next *size* bytes of each body."""
        return self._slices(np.full(len(self.at), size, np.int64))

    def slices(self) -> pa.BinaryArray:
        """Read bytes after their length, from each body."""
        return self._slices(self.longs())

    def pass_over(self) -> None:
        """Skip bytes with a length."""
        size = self.longs()
        self._refuse_long(size)
        self.at = self.at + size

    def numbers(self, kind: "np.dtype[Any]") -> NDArray[Any]:
        """Read a little-endian number of fixed size from each body."""
        size = kind.itemsize
        self._refuse_long(np.full(len(self.at), size, np.int64))
        found = self.data[self.at[:, None] + np.arange(size)]
        self.at = self.at + size
        numbers: NDArray[Any] = found.view(kind).reshape(-1)
        return numbers

    def _words(self) -> NDArray[np.uint64]:
        """Return the eight bytes from each position on, the first as the lowest."""
        size = len(self.data) - 7
        return np.ndarray((size,), np.dtype("<u8"), self.data.data, 0, (1,))

    def _longest(self, value: NDArray[np.uint64], rows: NDArray[np.intp]) -> None:
        """Add the ninth and the tenth byte; `longs` is behind the ninth, as if it were the last."""
        ninth = self.data[self.at[rows] - 1]
        value[rows] |= (ninth & 0x7F).astype(np.uint64) << NINTH
        more = (ninth & MORE) != 0
        rows = rows[more]
        tenth = self.data[self.at[rows]]
        odd = np.zeros(len(value), np.bool_)
        odd[rows] = tenth > 1
        self.refuse(odd, TOO_WIDE)
        value[rows] |= tenth.astype(np.uint64) << TENTH
        self.at[rows] += 1

    def _slices(self, size: Places) -> pa.BinaryArray:
        """Return the slices, as every second value of one Arrow array: nothing is copied twice."""
        self._refuse_long(size)
        count = len(size)
        bounds = np.empty(2 * count, np.int32)
        bounds[0::2] = self.at
        self.at = self.at + size
        bounds[1::2] = self.at
        both = pa.BinaryArray.from_buffers(
            pa.binary(), 2 * count - 1, [None, pa.py_buffer(bounds), self.buffer]
        )
        return both.take(pa.array(np.arange(0, 2 * count, 2)))

    def _refuse_long(self, size: Places) -> None:
        self.refuse((size < 0) | (size > self.end - self.at), INSIDE)


def read_blocks(bodies: BatchCursor) -> Iterable[tuple[BatchCursor, NDArray[np.intp]]]:
    """Yield bodies that hold one more item, with their numbers, until none does.

    An item takes a byte at least, so no count makes this longer than the bodies are.
    """
    open_ = np.ones(len(bodies.at), np.bool_)
    left = np.zeros(len(bodies.at), np.int64)
    while open_.any():
        fresh = open_ & (left == 0)
        if fresh.any():
            left[fresh] = _counts(bodies, fresh)
            open_ &= left > 0
        if open_.any():
            some = bodies.only(open_)
            yield some, np.flatnonzero(open_)
            bodies.follow(some, open_)
            left[open_] -= 1


def _counts(bodies: BatchCursor, mask: NDArray[np.bool_]) -> Places:
    """Read the number of items in the next block; a size in bytes follows a negative number."""
    some = bodies.only(mask)
    found = some.longs()
    negative = found < 0
    if negative.any():
        sized = some.only(negative)
        sized.longs()
        some.follow(sized, negative)
    counts = np.abs(found)
    some.refuse((counts < 0) | (counts > some.end - some.at), TOO_LONG)
    bodies.follow(some, mask)
    return counts


def _packed(word: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Pack seven bits of each of eight bytes into one number, the first byte lowest."""
    for odd, even, shift in _STEPS:
        word = (word & even) | ((word & odd) >> shift)
    return word


_STEPS = tuple(
    (np.uint64(odd), np.uint64(even), np.uint64(shift))
    for odd, even, shift in (
        (0x7F007F007F007F00, 0x007F007F007F007F, 1),
        (0x3FFF00003FFF0000, 0x00003FFF00003FFF, 2),
        (0x0FFFFFFF00000000, 0x000000000FFFFFFF, 4),
    )
)


MORE_BYTES, LAST = 0x80, 63  # the tenth byte of an integer holds only its 64th bit


@dataclass(slots=True)
class BodyCursor:
    """The read position in a body: ``at`` moves on to the end of ``data``."""

    data: bytes
    at: int = 0
    spare: int = 0

    def __post_init__(self) -> None:
        self.spare = TEXT_BYTES + TEXT_RATIO * self.left

    @property
    def left(self) -> int:
        """Return the number of bytes that were not read."""
        return len(self.data) - self.at

    def damaged(self, why: str) -> DamagedError:
        """Return the error to raise if the body does not fit."""
        return DamagedError(np.zeros(1, np.intp), why)

    def charge(self, text: str) -> str:
        """Count an item that became *text*."""
        self.spare -= len(text) + ITEM_BYTES
        if self.spare < 0:
            raise self.damaged(TOO_LARGE)
        return text

    def long(self) -> int:
        """Read an integer in zigzag, seven bits per byte."""
        byte = self.data[self.at]
        self.at += 1
        if byte < MORE_BYTES:
            return (byte >> 1) ^ -(byte & 1)
        value, shift = byte & 0x7F, 7
        while byte >= MORE_BYTES and shift <= LAST:
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
        if shift > LAST and byte > 1:
            raise self.damaged(TOO_WIDE)
        return (value >> 1) ^ -(value & 1)

    def take(self, size: int) -> bytes:
        """Read the next *size* bytes."""
        if not 0 <= size <= self.left:
            raise self.damaged(INSIDE)
        self.at += size
        return self.data[self.at - size : self.at]

    def slice(self) -> bytes:
        """Read bytes after their length."""
        return self.take(self.long())

    def items(self) -> Iterator[None]:
        """Yield once per item of a list; a size in bytes follows a negative count."""
        while count := self.long():
            if count < 0:
                self.long()
            if abs(count) > self.left:
                raise self.damaged(TOO_LONG)
            for _ in range(abs(count)):
                yield


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
        """Return a column with the quotes."""
        if isinstance(self.column, str):
            return pa.repeat(pa.scalar(self.column), count)
        if self.quoted:
            return pc.binary_join_element_wise('"', self.column, '"', "")
        return self.column


def join_texts(pieces: Sequence[str | Texts]) -> Texts:
    """Join all pieces of each body; adjacent literals become one."""
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


def require_utf8(found: pa.BinaryArray, bodies: BatchCursor) -> pa.StringArray:
    """Return values of *bodies* as texts; DamagedError for those that are not UTF-8."""
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


def escape_texts(texts: pa.StringArray) -> pa.StringArray:
    """Return the text between the quotes; few texts hold a character that must be escaped."""
    _, offsets, data = texts.buffers()
    bounds = np.frombuffer(offsets, np.int32)[: len(texts) + 1]
    if data is None or not (odd := ODD[np.frombuffer(data, np.uint8)[: bounds[-1]]]).any():
        return texts
    rows = np.unique(np.searchsorted(bounds, np.flatnonzero(odd), side="right") - 1)
    mask = np.zeros(len(texts), np.bool_)
    mask[rows] = True
    mended = [quote_text(texts[row].as_py())[1:-1] for row in rows.tolist()]
    return pc.replace_with_mask(texts, pa.array(mask), pa.array(mended, pa.string()))


def write_base64(found: pa.BinaryArray) -> Texts:
    """Return bytes as Jackson writes them."""
    return Texts(pa.array(map(encode_base64, found.to_pylist()), pa.string()), quoted=True)


def encode_base64(value: bytes) -> str:
    """Return one value, without its quotes."""
    return binascii.b2a_base64(value, newline=False).decode()


def write_number(value: float) -> str:
    """Return the JSON of a number with a fraction; a text for NaN and the infinities."""
    if math.isfinite(value):
        return repr(value)
    return '"NaN"' if math.isnan(value) else '"Infinity"' if value > 0 else '"-Infinity"'


INT = range(-(2**31), 2**31)
NO_BOOLEAN = "a boolean is neither 0 nor 1"
NO_INT = "an int has more than 32 bits"
NO_SYMBOL = "an enum has no such symbol"
NO_BRANCH = "a union has no such branch"


class ValueReader(Protocol):
    """Reads the values of one type."""

    def read(self, bodies: BatchCursor) -> Texts:
        """Read one value from each body, at least one; DamagedError if some do not fit."""
        ...

    def skip(self, bodies: BatchCursor) -> None:
        """Skip one value in each body."""
        ...

    def one(self, body: BodyCursor) -> str:
        """Return the JSON of one value; DamagedError, or IndexError at the end, if invalid."""
        ...

    def skip_one(self, body: BodyCursor) -> None:
        """Skip one value."""
        ...


@dataclass(frozen=True, slots=True)
class _Null:
    def read(self, _: BatchCursor) -> Texts:
        return Texts(NULL)

    def skip(self, _: BatchCursor) -> None:
        """Do nothing: null has no bytes."""

    def one(self, _: BodyCursor) -> str:
        return NULL

    def skip_one(self, _: BodyCursor) -> None:
        """Do nothing: null has no bytes."""


@dataclass(frozen=True, slots=True)
class _Boolean:
    def read(self, bodies: BatchCursor) -> Texts:
        found = bodies.numbers(np.dtype(np.uint8))
        bodies.refuse(found > 1, NO_BOOLEAN)
        return Texts(pa.array(["false", "true"]).take(pa.array(found)))

    def skip(self, bodies: BatchCursor) -> None:
        bodies.numbers(np.dtype(np.uint8))

    def one(self, body: BodyCursor) -> str:
        (found,) = body.take(1)
        if found > 1:
            raise body.damaged(NO_BOOLEAN)
        return "true" if found else "false"

    def skip_one(self, body: BodyCursor) -> None:
        body.take(1)


@dataclass(frozen=True, slots=True)
class _Long:
    narrow: bool = False

    def read(self, bodies: BatchCursor) -> Texts:
        found = self._longs(bodies)
        first = int(found[0])
        return Texts(str(first) if (found == first).all() else pa.array(found).cast(pa.string()))

    def skip(self, bodies: BatchCursor) -> None:
        self._longs(bodies)

    def _longs(self, bodies: BatchCursor) -> Places:
        found = bodies.longs()
        if self.narrow:
            odd = (found < INT.start) | (found >= INT.stop)
            bodies.refuse(odd, NO_INT)
        return found

    def one(self, body: BodyCursor) -> str:
        return str(self._long(body))

    def skip_one(self, body: BodyCursor) -> None:
        self._long(body)

    def _long(self, body: BodyCursor) -> int:
        found = body.long()
        if self.narrow and found not in INT:
            raise body.damaged(NO_INT)
        return found


@dataclass(frozen=True, slots=True)
class _Real:
    kind: str

    def read(self, bodies: BatchCursor) -> Texts:
        found = bodies.numbers(np.dtype(self.kind))
        shortest = map(str, found) if self.kind == "<f4" else found.tolist()
        return Texts(pa.array([write_number(float(one)) for one in shortest], pa.string()))

    def skip(self, bodies: BatchCursor) -> None:
        bodies.numbers(np.dtype(self.kind))

    def one(self, body: BodyCursor) -> str:
        kind = np.dtype(self.kind)
        (found,) = np.frombuffer(body.take(kind.itemsize), kind)
        return write_number(float(str(found)) if self.kind == "<f4" else float(found))

    def skip_one(self, body: BodyCursor) -> None:
        body.take(np.dtype(self.kind).itemsize)


@dataclass(frozen=True, slots=True)
class _Bytes:
    def read(self, bodies: BatchCursor) -> Texts:
        return write_base64(bodies.slices())

    def skip(self, bodies: BatchCursor) -> None:
        bodies.pass_over()

    def one(self, body: BodyCursor) -> str:
        return f'"{encode_base64(body.slice())}"'

    def skip_one(self, body: BodyCursor) -> None:
        body.slice()


@dataclass(frozen=True, slots=True)
class _Fixed:
    size: int

    def read(self, bodies: BatchCursor) -> Texts:
        return write_base64(bodies.fixed(self.size))

    def skip(self, bodies: BatchCursor) -> None:
        bodies.fixed(self.size)

    def one(self, body: BodyCursor) -> str:
        return f'"{encode_base64(body.take(self.size))}"'

    def skip_one(self, body: BodyCursor) -> None:
        body.take(self.size)


@dataclass(frozen=True, slots=True)
class _String:
    def read(self, bodies: BatchCursor) -> Texts:
        return Texts(escape_texts(require_utf8(bodies.slices(), bodies)), quoted=True)

    def skip(self, bodies: BatchCursor) -> None:
        bodies.pass_over()

    def one(self, body: BodyCursor) -> str:
        try:
            return quote_text(body.slice().decode("utf-8"))
        except UnicodeDecodeError as error:
            raise body.damaged(NO_TEXT) from error

    def skip_one(self, body: BodyCursor) -> None:
        body.slice()


@dataclass(frozen=True, slots=True)
class _Enum:
    symbols: tuple[str, ...]

    def read(self, bodies: BatchCursor) -> Texts:
        found = bodies.longs()
        odd = (found < 0) | (found >= len(self.symbols))
        bodies.refuse(odd, NO_SYMBOL)
        return Texts(pa.array([quote_text(one) for one in self.symbols]).take(pa.array(found)))

    def skip(self, bodies: BatchCursor) -> None:
        bodies.longs()

    def one(self, body: BodyCursor) -> str:
        found = body.long()
        if not 0 <= found < len(self.symbols):
            raise body.damaged(NO_SYMBOL)
        return quote_text(self.symbols[found])

    def skip_one(self, body: BodyCursor) -> None:
        body.long()


@dataclass(frozen=True, slots=True)
class _Union:
    branches: tuple[ValueReader, ...]
    null_at: int

    def read(self, bodies: BatchCursor) -> Texts:
        found = self._chosen(bodies)
        first = int(found[0])
        if (found == first).all():
            return self.branches[first].read(bodies)
        parts, places = [], np.empty(len(found), np.int64)
        done = 0
        for branch in np.unique(found).tolist():
            mask = found == branch
            count = int(mask.sum())
            if branch == self.null_at:
                parts.append(pa.array([NULL]))
                places[mask] = done
                done += 1
                continue
            some = bodies.only(mask)
            parts.append(self.branches[branch].read(some).whole(count))
            bodies.follow(some, mask)
            places[mask] = np.arange(done, done + count)
            done += count
        return Texts(pa.concat_arrays(parts).take(pa.array(places)))

    def skip(self, bodies: BatchCursor) -> None:
        found = self._chosen(bodies)
        for branch in np.unique(found).tolist():
            mask = found == branch
            some = bodies.only(mask)
            self.branches[branch].skip(some)
            bodies.follow(some, mask)

    def _chosen(self, bodies: BatchCursor) -> Places:
        found = bodies.longs()
        odd = (found < 0) | (found >= len(self.branches))
        bodies.refuse(odd, NO_BRANCH)
        return found

    def one(self, body: BodyCursor) -> str:
        return self._branch(body).one(body)

    def skip_one(self, body: BodyCursor) -> None:
        self._branch(body).skip_one(body)

    def _branch(self, body: BodyCursor) -> ValueReader:
        found = body.long()
        if not 0 <= found < len(self.branches):
            raise body.damaged(NO_BRANCH)
        return self.branches[found]


@dataclass(frozen=True, slots=True)
class _Fields:
    fields: tuple[tuple[str, ValueReader, bool], ...]

    def read(self, bodies: BatchCursor) -> Texts:
        pieces: list[str | Texts] = []
        before = "{"
        for name, one, kept in self.fields:
            if not kept:
                one.skip(bodies)
                continue
            pieces.append(f"{before}{quote_text(name)}:")
            found = one.read(bodies)
            pieces += ['"', found, '"'] if found.quoted else [found]
            before = ","
        pieces.append("{}" if before == "{" else "}")
        return join_texts(pieces)

    def skip(self, bodies: BatchCursor) -> None:
        for _, one, _ in self.fields:
            one.skip(bodies)

    def one(self, body: BodyCursor) -> str:
        members = []
        for name, each, kept in self.fields:
            if kept:
                members.append(f"{quote_text(name)}:{each.one(body)}")
            else:
                each.skip_one(body)
        return f"{{{','.join(members)}}}"

    def skip_one(self, body: BodyCursor) -> None:
        for _, each, _ in self.fields:
            each.skip_one(body)


@dataclass(frozen=True, slots=True)
class _Array:
    items: ValueReader

    def read(self, bodies: BatchCursor) -> Texts:
        lists: list[list[str]] = [[] for _ in bodies.at]
        for some, numbers in read_blocks(bodies):
            texts = self.items.read(some).whole(len(numbers)).to_pylist()
            some.charge(texts)
            for number, text in zip(numbers.tolist(), texts, strict=True):
                lists[number].append(text)
        return Texts(pa.array([f"[{','.join(one)}]" for one in lists], pa.string()))

    def skip(self, bodies: BatchCursor) -> None:
        self.read(bodies)

    def one(self, body: BodyCursor) -> str:
        return f"[{','.join(body.charge(self.items.one(body)) for _ in body.items())}]"

    def skip_one(self, body: BodyCursor) -> None:
        self.one(body)


@dataclass(frozen=True, slots=True)
class _Map:
    values: ValueReader

    def read(self, bodies: BatchCursor) -> Texts:
        lists: list[list[str]] = [[] for _ in bodies.at]
        for some, numbers in read_blocks(bodies):
            names = _String().read(some).whole(len(numbers)).to_pylist()
            texts = self.values.read(some).whole(len(numbers)).to_pylist()
            some.charge(names)
            some.charge(texts)
            for number, name, text in zip(numbers.tolist(), names, texts, strict=True):
                lists[number].append(f"{name}:{text}")
        return Texts(pa.array([f"{{{','.join(one)}}}" for one in lists], pa.string()))

    def skip(self, bodies: BatchCursor) -> None:
        self.read(bodies)

    def one(self, body: BodyCursor) -> str:
        name = _String().one
        pairs = (body.charge(f"{name(body)}:{self.values.one(body)}") for _ in body.items())
        return f"{{{','.join(pairs)}}}"

    def skip_one(self, body: BodyCursor) -> None:
        self.one(body)


union: Callable[[tuple[ValueReader, ...], int], ValueReader] = _Union
record: Callable[[tuple[tuple[str, ValueReader, bool], ...]], ValueReader] = _Fields
array: Callable[[ValueReader], ValueReader] = _Array
map_of: Callable[[ValueReader], ValueReader] = _Map
enum: Callable[[tuple[str, ...]], ValueReader] = _Enum
fixed: Callable[[int], ValueReader] = _Fixed
PLAIN: Mapping[str, Callable[[], ValueReader]] = {
    NULL: _Null,
    "boolean": _Boolean,
    "int": lambda: _Long(narrow=True),
    "long": _Long,
    "float": lambda: _Real("<f4"),
    "double": lambda: _Real("<f8"),
    "bytes": _Bytes,
    "string": _String,
}


ESCAPED = re.compile(r"_u([0-9a-f]{4})")
NOISE = {  # parts of a row's envelope that no decoder reads
    "": frozenset({"ts_us", "ts_ns"}),
    "source": frozenset({"version", "name", "ts_ns", "gtid", "thread", "query"}),
    "transaction": frozenset({"data_collection_order"}),
}


MOST_DEPTH, MOST_TEXT, MOST_FIXED = 64, 2**20, 2**31 - 1
TOO_DEEP = f"types are nested more than {MOST_DEPTH} deep"
TOO_MANY_NAMES = "the names of the fields in one row are larger than 1 MiB"


class _Built(NamedTuple):
    """A reader, how deep types nest in it, and the most text around the content of a value."""

    reader: ValueReader
    depth: int = 1
    text: int = 24  # of the longest number


@lru_cache(maxsize=2**14)  # a schema of each table, and of each key
def value_reader(schema: str, *, unicode_names: bool) -> ValueReader:
    """Build the reader of *schema*, which is JSON from a registry.

    With *unicode_names*, ``_u0020`` in a field's name is a blank.

    Raises:
        FormatError: it is no schema of Avro, or one that cannot become JSON.
    """
    try:
        return _Builder(unicode_names).build(msgspec.json.decode(schema), "").reader
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise FormatError(f"it is no schema of Avro: {error!r}") from error


def plain_name(name: str) -> str:
    """Return the name that ``avro_unicode`` encodes: ``_u`` and a UTF-16 unit, also for ``_``."""
    found = ESCAPED.sub(lambda one: chr(int(one[1], 16)), name)
    return found.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


@dataclass(eq=False)
class _Builder:
    unicode_names: bool

    def __post_init__(self) -> None:
        self.named: dict[str, _Built] = {}

    def build(self, schema: Any, space: str, noise: frozenset[str] = frozenset()) -> _Built:
        while isinstance(schema, dict) and not isinstance(schema["type"], str):
            schema = schema["type"]
        if isinstance(schema, list):
            built = [self.build(one, space) for one in schema]
            text = max((one.text for one in built), default=0)
            return _around(union(_readers(built), _null_at(schema)), built, text)
        kind = schema["type"] if isinstance(schema, dict) else schema
        return _Built(PLAIN[kind]()) if kind in PLAIN else self._complex(kind, schema, space, noise)

    def _complex(self, kind: str, schema: Any, space: str, noise: frozenset[str]) -> _Built:
        if kind in ("array", "map"):
            inner = self.build(schema["items" if kind == "array" else "values"], space)
            return _around((array if kind == "array" else map_of)(inner.reader), [inner], 2)
        if kind not in ("record", "error", "enum", "fixed"):
            return self.named[kind if "." in kind or not space else f"{space}.{kind}"]
        return self._named(kind, schema, space, noise)

    def _named(self, kind: str, schema: Any, space: str, noise: frozenset[str]) -> _Built:
        name = _text_of(schema, "name")
        if "namespace" in schema and "." not in name:
            space = _text_of(schema, "namespace")
        within = name.rpartition(".")[0] if "." in name else space
        full = name if "." in name or not within else f"{within}.{name}"
        if kind == "enum":
            made = _enum(schema["symbols"])
        elif kind == "fixed":
            made = _fixed(schema["size"])
        else:
            made = self._record(schema["fields"], within, noise)
        self.named[full] = made
        return made

    def _record(self, fields: Sequence[Any], space: str, noise: frozenset[str]) -> _Built:
        names = [_text_of(one, "name") for one in fields]
        row = {"op", "source", "after"} <= set(names)
        noise = NOISE[""] if row else noise
        built = [
            self.build(one["type"], space, NOISE.get(name, frozenset()) if row else frozenset())
            for one, name in zip(fields, names, strict=True)
        ]
        plain = [self._name(name) for name in names]
        if len(set(plain)) != len(plain):
            raise ValueError("two fields of one name")
        kept = [name not in noise for name in names]
        text = 2 + sum(len(name) + 4 + one.text for name, one in zip(plain, built, strict=True))
        return _around(record(tuple(zip(plain, _readers(built), kept, strict=True))), built, text)

    def _name(self, name: str) -> str:
        return plain_name(name) if self.unicode_names else name


def _null_at(branches: Sequence[Any]) -> int:
    return branches.index(NULL) if NULL in branches else -1


def _readers(built: Iterable[_Built]) -> tuple[ValueReader, ...]:
    return tuple(one.reader for one in built)


def _around(made: ValueReader, inner: Iterable[_Built], text: int) -> _Built:
    """Return a type around others, if depth and text are within bounds."""
    depth = 1 + max((one.depth for one in inner), default=0)
    if depth > MOST_DEPTH:
        raise ValueError(TOO_DEEP)
    if text > MOST_TEXT:
        raise ValueError(TOO_MANY_NAMES)
    return _Built(made, depth, text)


def _enum(symbols: Any) -> _Built:
    if not isinstance(symbols, list) or not all(isinstance(one, str) for one in symbols):
        raise TypeError("symbols of an enum must be a list of texts")
    return _around(enum(tuple(symbols)), (), 2 + max(map(len, symbols), default=0))


def _fixed(size: Any) -> _Built:
    if isinstance(size, bool) or not isinstance(size, int) or not 0 <= size <= MOST_FIXED:
        raise ValueError(f"the size of a fixed must be a number from 0 to {MOST_FIXED}")
    return _Built(fixed(size))


def _text_of(schema: Any, key: str) -> str:
    found = schema[key]
    if not isinstance(found, str):
        raise TypeError(f"{key} must be a text")
    return found
