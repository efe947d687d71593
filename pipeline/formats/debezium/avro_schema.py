"""How are bodies of an Avro schema read, and what are its values in JSON?

A union is the value of its branch without a word of that; logical types change nothing: Connect's
own stand in its JSON as what they are stored as.  A schema that holds itself, or one name twice, is
refused.  Pure.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import msgspec

from pipeline.errors import FormatError
from pipeline.formats.debezium import avro_values as values
from pipeline.formats.debezium.avro_texts import NULL
from pipeline.formats.debezium.avro_values import PLAIN, ValueReader

ESCAPED = re.compile(r"_u([0-9a-f]{4})")
NOISE = {  # of a row's envelope: what no decoder asks for
    "": frozenset({"ts_us", "ts_ns"}),
    "source": frozenset({"version", "name", "ts_ns", "gtid", "thread", "query"}),
    "transaction": frozenset({"data_collection_order"}),
}


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
            return values.union(tuple(self.build(one, space) for one in schema), _null_at(schema))
        kind = schema["type"] if isinstance(schema, dict) else schema
        return PLAIN[kind]() if kind in PLAIN else self._complex(kind, schema, space, noise)

    def _complex(self, kind: str, schema: Any, space: str, noise: frozenset[str]) -> ValueReader:
        if kind == "array":
            return values.array(self.build(schema["items"], space))
        if kind == "map":
            return values.map_of(self.build(schema["values"], space))
        if kind not in ("record", "error", "enum", "fixed"):
            return self.named[kind if "." in kind or not space else f"{space}.{kind}"]
        return self._named(kind, schema, space, noise)

    def _named(self, kind: str, schema: Any, space: str, noise: frozenset[str]) -> ValueReader:
        name = schema["name"]
        within = name.rpartition(".")[0] if "." in name else schema.get("namespace", space)
        full = name if "." in name or not within else f"{within}.{name}"
        made: ValueReader
        if kind == "enum":
            made = values.enum(tuple(schema["symbols"]))
        elif kind == "fixed":
            made = values.fixed(int(schema["size"]))
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
        return values.record(tuple(made))

    def _name(self, name: str) -> str:
        return plain_name(name) if self.unicode_names else name


def _null_at(branches: Sequence[Any]) -> int:
    return branches.index(NULL) if NULL in branches else -1
