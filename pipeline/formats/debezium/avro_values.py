"""How is each kind of Avro's values read, side by side or one alone, and what is it in JSON?

Both ways say the same of every body.  Side by side a field costs some calls, however many bodies
there are; alone it costs some in each body, which is less where they are few.  Pure.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from pipeline.formats.canonical import quote
from pipeline.formats.debezium.avro_bodies import Bodies, Places, blocks
from pipeline.formats.debezium.avro_body import Body
from pipeline.formats.debezium.avro_texts import (
    NO_TEXT,
    NULL,
    Texts,
    base64,
    encoded,
    escaped,
    joined,
    real,
    utf8,
)

INT = range(-(2**31), 2**31)
NO_BOOLEAN = "a boolean is neither 0 nor 1"
NO_INT = "an int has more than 32 bits"
NO_SYMBOL = "an enum has no such symbol"
NO_BRANCH = "a union has no such branch"


class ValueReader(Protocol):
    """Reads the values of one type."""

    def read(self, bodies: Bodies) -> Texts:
        """Of at least one body; DamagedError if some do not fit."""
        ...

    def skip(self, bodies: Bodies) -> None:
        """Go behind them."""
        ...

    def one(self, body: Body) -> str:
        """JSON of one; DamagedError, or IndexError at its end, if it does not fit."""
        ...

    def skip_one(self, body: Body) -> None:
        """Go behind it."""
        ...


@dataclass(frozen=True, slots=True)
class _Null:
    def read(self, _: Bodies) -> Texts:
        return Texts(NULL)

    def skip(self, _: Bodies) -> None:
        """Nothing is written."""

    def one(self, _: Body) -> str:
        return NULL

    def skip_one(self, _: Body) -> None:
        """Nothing is written."""


@dataclass(frozen=True, slots=True)
class _Boolean:
    def read(self, bodies: Bodies) -> Texts:
        found = bodies.numbers(np.dtype(np.uint8))
        bodies.refuse(found > 1, NO_BOOLEAN)
        return Texts(pa.array(["false", "true"]).take(pa.array(found)))

    def skip(self, bodies: Bodies) -> None:
        bodies.numbers(np.dtype(np.uint8))

    def one(self, body: Body) -> str:
        (found,) = body.take(1)
        if found > 1:
            raise body.damaged(NO_BOOLEAN)
        return "true" if found else "false"

    def skip_one(self, body: Body) -> None:
        body.take(1)


@dataclass(frozen=True, slots=True)
class _Long:
    narrow: bool = False

    def read(self, bodies: Bodies) -> Texts:
        found = self._longs(bodies)
        first = int(found[0])
        return Texts(str(first) if (found == first).all() else pa.array(found).cast(pa.string()))

    def skip(self, bodies: Bodies) -> None:
        self._longs(bodies)

    def _longs(self, bodies: Bodies) -> Places:
        found = bodies.longs()
        if self.narrow:
            odd = (found < INT.start) | (found >= INT.stop)
            bodies.refuse(odd, NO_INT)
        return found

    def one(self, body: Body) -> str:
        return str(self._long(body))

    def skip_one(self, body: Body) -> None:
        self._long(body)

    def _long(self, body: Body) -> int:
        found = body.long()
        if self.narrow and found not in INT:
            raise body.damaged(NO_INT)
        return found


@dataclass(frozen=True, slots=True)
class _Real:
    kind: str

    def read(self, bodies: Bodies) -> Texts:
        found = bodies.numbers(np.dtype(self.kind))
        shortest = map(str, found) if self.kind == "<f4" else found.tolist()
        return Texts(pa.array([real(float(one)) for one in shortest], pa.string()))

    def skip(self, bodies: Bodies) -> None:
        bodies.numbers(np.dtype(self.kind))

    def one(self, body: Body) -> str:
        kind = np.dtype(self.kind)
        (found,) = np.frombuffer(body.take(kind.itemsize), kind)
        return real(float(str(found)) if self.kind == "<f4" else float(found))

    def skip_one(self, body: Body) -> None:
        body.take(np.dtype(self.kind).itemsize)


@dataclass(frozen=True, slots=True)
class _Bytes:
    def read(self, bodies: Bodies) -> Texts:
        return base64(bodies.slices())

    def skip(self, bodies: Bodies) -> None:
        bodies.pass_over()

    def one(self, body: Body) -> str:
        return f'"{encoded(body.slice())}"'

    def skip_one(self, body: Body) -> None:
        body.slice()


@dataclass(frozen=True, slots=True)
class _Fixed:
    size: int

    def read(self, bodies: Bodies) -> Texts:
        return base64(bodies.fixed(self.size))

    def skip(self, bodies: Bodies) -> None:
        bodies.fixed(self.size)

    def one(self, body: Body) -> str:
        return f'"{encoded(body.take(self.size))}"'

    def skip_one(self, body: Body) -> None:
        body.take(self.size)


@dataclass(frozen=True, slots=True)
class _String:
    def read(self, bodies: Bodies) -> Texts:
        return Texts(escaped(utf8(bodies.slices(), bodies)), quoted=True)

    def skip(self, bodies: Bodies) -> None:
        bodies.pass_over()

    def one(self, body: Body) -> str:
        try:
            return quote(body.slice().decode("utf-8"))
        except UnicodeDecodeError as error:
            raise body.damaged(NO_TEXT) from error

    def skip_one(self, body: Body) -> None:
        body.slice()


@dataclass(frozen=True, slots=True)
class _Enum:
    symbols: tuple[str, ...]

    def read(self, bodies: Bodies) -> Texts:
        found = bodies.longs()
        odd = (found < 0) | (found >= len(self.symbols))
        bodies.refuse(odd, NO_SYMBOL)
        return Texts(pa.array([quote(one) for one in self.symbols]).take(pa.array(found)))

    def skip(self, bodies: Bodies) -> None:
        bodies.longs()

    def one(self, body: Body) -> str:
        found = body.long()
        if not 0 <= found < len(self.symbols):
            raise body.damaged(NO_SYMBOL)
        return quote(self.symbols[found])

    def skip_one(self, body: Body) -> None:
        body.long()


@dataclass(frozen=True, slots=True)
class _Union:
    branches: tuple[ValueReader, ...]
    null_at: int

    def read(self, bodies: Bodies) -> Texts:
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

    def skip(self, bodies: Bodies) -> None:
        found = self._chosen(bodies)
        for branch in np.unique(found).tolist():
            mask = found == branch
            some = bodies.only(mask)
            self.branches[branch].skip(some)
            bodies.follow(some, mask)

    def _chosen(self, bodies: Bodies) -> Places:
        found = bodies.longs()
        odd = (found < 0) | (found >= len(self.branches))
        bodies.refuse(odd, NO_BRANCH)
        return found

    def one(self, body: Body) -> str:
        return self._branch(body).one(body)

    def skip_one(self, body: Body) -> None:
        self._branch(body).skip_one(body)

    def _branch(self, body: Body) -> ValueReader:
        found = body.long()
        if not 0 <= found < len(self.branches):
            raise body.damaged(NO_BRANCH)
        return self.branches[found]


@dataclass(frozen=True, slots=True)
class _Fields:
    fields: tuple[tuple[str, ValueReader, bool], ...]

    def read(self, bodies: Bodies) -> Texts:
        pieces: list[str | Texts] = []
        before = "{"
        for name, one, kept in self.fields:
            if not kept:
                one.skip(bodies)
                continue
            pieces.append(f"{before}{quote(name)}:")
            found = one.read(bodies)
            pieces += ['"', found, '"'] if found.quoted else [found]
            before = ","
        pieces.append("{}" if before == "{" else "}")
        return joined(pieces)

    def skip(self, bodies: Bodies) -> None:
        for _, one, _ in self.fields:
            one.skip(bodies)

    def one(self, body: Body) -> str:
        told = []
        for name, each, kept in self.fields:
            if kept:
                told.append(f"{quote(name)}:{each.one(body)}")
            else:
                each.skip_one(body)
        return f"{{{','.join(told)}}}"

    def skip_one(self, body: Body) -> None:
        for _, each, _ in self.fields:
            each.skip_one(body)


@dataclass(frozen=True, slots=True)
class _Array:
    items: ValueReader

    def read(self, bodies: Bodies) -> Texts:
        lists: list[list[str]] = [[] for _ in bodies.at]
        for some, numbers in blocks(bodies):
            texts = self.items.read(some).whole(len(numbers)).to_pylist()
            for number, text in zip(numbers.tolist(), texts, strict=True):
                lists[number].append(text)
        return Texts(pa.array([f"[{','.join(one)}]" for one in lists], pa.string()))

    def skip(self, bodies: Bodies) -> None:
        self.read(bodies)

    def one(self, body: Body) -> str:
        return f"[{','.join(self.items.one(body) for _ in body.items())}]"

    def skip_one(self, body: Body) -> None:
        self.one(body)


@dataclass(frozen=True, slots=True)
class _Map:
    values: ValueReader

    def read(self, bodies: Bodies) -> Texts:
        lists: list[list[str]] = [[] for _ in bodies.at]
        for some, numbers in blocks(bodies):
            names = _String().read(some).whole(len(numbers)).to_pylist()
            texts = self.values.read(some).whole(len(numbers)).to_pylist()
            for number, name, text in zip(numbers.tolist(), names, texts, strict=True):
                lists[number].append(f"{name}:{text}")
        return Texts(pa.array([f"{{{','.join(one)}}}" for one in lists], pa.string()))

    def skip(self, bodies: Bodies) -> None:
        self.read(bodies)

    def one(self, body: Body) -> str:
        name = _String().one
        pairs = (f"{name(body)}:{self.values.one(body)}" for _ in body.items())
        return f"{{{','.join(pairs)}}}"

    def skip_one(self, body: Body) -> None:
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
