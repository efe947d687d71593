"""Values as JSON text and back, by their types; an unknown field is an error, not a loss."""

from functools import cache
from typing import Any, TypeVar

from pydantic import TypeAdapter

T = TypeVar("T")


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def dumps(kind: Any, value: object) -> str:
    """Write *value* of type *kind*; times keep their microseconds, durations are ISO 8601."""
    return _adapter(kind).dump_json(value).decode()


def loads(kind: type[T], text: str) -> T:
    """Read back what :func:`dumps` wrote."""
    adapter: TypeAdapter[T] = _adapter(kind)  # type: ignore[arg-type]  # types are hashable
    return adapter.validate_json(text)
