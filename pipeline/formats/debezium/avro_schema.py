"""How are bodies of an Avro schema read, and what are its values in JSON?

A union is the value of its branch without a word of that; logical types change nothing: Connect's
own stand in its JSON as what they are stored as.  A schema that holds itself, or one name twice, is
refused.  Pure.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.errors import FormatError
from pipeline.formats.canonical import quote
from pipeline.formats.debezium.avro_bodies import Bodies, Places
from pipeline.formats.debezium.avro_texts import NULL, Texts, base64, escaped, joined, real, utf8

INT = range(-(2**31), 2**31)
ESCAPED = re.compile(r"_u([0-9a-f]{4})")
NOISE = {  # of a row's envelope: what no decoder asks for
    "": frozenset({"ts_us", "ts_ns"}),
    "source": frozenset({"version", "name", "ts_ns", "server_id", "gtid", "thread", "query"}),
    "transaction": frozenset({"data_collection_order"}),
}


class ValueReader(Protocol):
    """Reads the values of one type."""

    def read(self, bodies: Bodies) -> Texts:
        """Of at least one body; DamagedError if some do not fit."""
        ...

    def skip(self, bodies: Bodies) -> None:
        """Go behind them."""
        ...


@lru_cache(maxsize=2**14)  # a schema of each table, and of each key
def value_reader(schema: str, *, unicode_names: bool) -> ValueReader:
    """What reads bodies of *schema*, which is JSON as a registry tells it.

    With *unicode_names*, ``_u0020`` in a field's name is a blank.

    Raises:
        FormatError: it is no schema of Avro, or one that cannot be JSON.
    """
    try:
        return _Builder(unicode_names).build(msgspec.json.decode(schema), "")
    except (msgspec.DecodeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise FormatError(f"it is no schema of Avro: {error!r}") from error


def plain_name(name: str) -> str:
    """The name that ``avro_unicode`` stands for: UTF-16 units behind ``_u``, ``_`` itself too."""
    found = ESCAPED.sub(lambda one: chr(int(one[1], 16)), name)
    return found.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


@dataclass(eq=False)
class _Builder:
    unicode_names: bool

    def __post_init__(self) -> None:
        self.named: dict[str, ValueReader] = {}

    def build(self, schema: Any, space: str, noise: frozenset[str] = frozenset()) -> ValueReader:
        while isinstance(schema, dict) and not isinstance(schema["type"], str):
            schema = schema["type"]
        if isinstance(schema, list):
            return _Union(tuple(self.build(one, space) for one in schema), _null_at(schema))
        kind = schema["type"] if isinstance(schema, dict) else schema
        return _PLAIN[kind]() if kind in _PLAIN else self._complex(kind, schema, space, noise)

    def _complex(self, kind: str, schema: Any, space: str, noise: frozenset[str]) -> ValueReader:
        if kind == "array":
            return _Array(self.build(schema["items"], space))
        if kind == "map":
            return _Map(self.build(schema["values"], space))
        if kind not in ("record", "error", "enum", "fixed"):
            return self.named[kind if "." in kind or not space else f"{space}.{kind}"]
        return self._named(kind, schema, space, noise)

    def _named(self, kind: str, schema: Any, space: str, noise: frozenset[str]) -> ValueReader:
        name = schema["name"]
        within = name.rpartition(".")[0] if "." in name else schema.get("namespace", space)
        full = name if "." in name or not within else f"{within}.{name}"
        made: ValueReader
        if kind == "enum":
            made = _Enum(tuple(schema["symbols"]))
        elif kind == "fixed":
            made = _Fixed(int(schema["size"]))
        else:
            made = self._record(schema["fields"], within, noise)
        self.named[full] = made
        return made

    def _record(self, fields: Sequence[Any], space: str, noise: frozenset[str]) -> ValueReader:
        row = {"op", "source", "after"} <= {one["name"] for one in fields}
        noise = NOISE[""] if row else noise
        made = []
        for one in fields:
            inner = NOISE.get(one["name"], frozenset()) if row else frozenset()
            kept = one["name"] not in noise
            made.append((self._name(one["name"]), self.build(one["type"], space, inner), kept))
        names = [name for name, _, _ in made]
        if len(set(names)) != len(names):
            raise ValueError("two fields of one name")
        return _Fields(tuple(made))

    def _name(self, name: str) -> str:
        return plain_name(name) if self.unicode_names else name


@dataclass(frozen=True, slots=True)
class _Null:
    def read(self, _: Bodies) -> Texts:
        return Texts(NULL)

    def skip(self, _: Bodies) -> None:
        """Nothing is written."""


@dataclass(frozen=True, slots=True)
class _Boolean:
    def read(self, bodies: Bodies) -> Texts:
        found = bodies.numbers(np.dtype(np.uint8))
        bodies.refuse(found > 1, "a boolean is neither 0 nor 1")
        return Texts(pa.array(["false", "true"]).take(pa.array(found)))

    def skip(self, bodies: Bodies) -> None:
        bodies.numbers(np.dtype(np.uint8))


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
            bodies.refuse(odd, "an int has more than 32 bits")
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


@dataclass(frozen=True, slots=True)
class _Bytes:
    def read(self, bodies: Bodies) -> Texts:
        return base64(bodies.slices())

    def skip(self, bodies: Bodies) -> None:
        bodies.pass_over()


@dataclass(frozen=True, slots=True)
class _Fixed:
    size: int

    def read(self, bodies: Bodies) -> Texts:
        return base64(bodies.fixed(self.size))

    def skip(self, bodies: Bodies) -> None:
        bodies.fixed(self.size)


@dataclass(frozen=True, slots=True)
class _String:
    def read(self, bodies: Bodies) -> Texts:
        return Texts(escaped(utf8(bodies.slices(), bodies)), quoted=True)

    def skip(self, bodies: Bodies) -> None:
        bodies.pass_over()


@dataclass(frozen=True, slots=True)
class _Enum:
    symbols: tuple[str, ...]

    def read(self, bodies: Bodies) -> Texts:
        found = bodies.longs()
        odd = (found < 0) | (found >= len(self.symbols))
        bodies.refuse(odd, "an enum has no such symbol")
        return Texts(pa.array([quote(one) for one in self.symbols]).take(pa.array(found)))

    def skip(self, bodies: Bodies) -> None:
        bodies.longs()


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
        bodies.refuse(odd, "a union has no such branch")
        return found


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


@dataclass(frozen=True, slots=True)
class _Array:
    items: ValueReader

    def read(self, bodies: Bodies) -> Texts:
        lists: list[list[str]] = [[] for _ in bodies.at]
        for some, numbers in _blocks(bodies):
            texts = self.items.read(some).whole(len(numbers)).to_pylist()
            for number, text in zip(numbers.tolist(), texts, strict=True):
                lists[number].append(text)
        return Texts(pa.array([f"[{','.join(one)}]" for one in lists], pa.string()))

    def skip(self, bodies: Bodies) -> None:
        self.read(bodies)


@dataclass(frozen=True, slots=True)
class _Map:
    values: ValueReader

    def read(self, bodies: Bodies) -> Texts:
        lists: list[list[str]] = [[] for _ in bodies.at]
        for some, numbers in _blocks(bodies):
            names = _String().read(some).whole(len(numbers)).to_pylist()
            texts = self.values.read(some).whole(len(numbers)).to_pylist()
            for number, name, text in zip(numbers.tolist(), names, texts, strict=True):
                lists[number].append(f"{name}:{text}")
        return Texts(pa.array([f"{{{','.join(one)}}}" for one in lists], pa.string()))

    def skip(self, bodies: Bodies) -> None:
        self.read(bodies)


def _blocks(bodies: Bodies) -> Iterable[tuple[Bodies, NDArray[np.intp]]]:
    """Bodies that hold one more item, and their numbers, until none does.

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


def _counts(bodies: Bodies, mask: NDArray[np.bool_]) -> Places:
    """How many items the next block has; behind a negative count stands its size in bytes."""
    some = bodies.only(mask)
    found = some.longs()
    negative = found < 0
    if negative.any():
        sized = some.only(negative)
        sized.longs()
        some.follow(sized, negative)
    counts = np.abs(found)
    some.refuse((counts < 0) | (counts > some.end - some.at), "a list is longer than what is left")
    bodies.follow(some, mask)
    return counts


def _null_at(branches: Sequence[Any]) -> int:
    return branches.index(NULL) if NULL in branches else -1


_PLAIN: dict[str, Callable[[], ValueReader]] = {
    NULL: _Null,
    "boolean": _Boolean,
    "int": lambda: _Long(narrow=True),
    "long": _Long,
    "float": lambda: _Real("<f4"),
    "double": lambda: _Real("<f8"),
    "bytes": _Bytes,
    "string": _String,
}
