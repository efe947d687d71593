"""How does what the config file says of a plug-in become the fields of its class?

Options come as JSON has them; a field gets its own type of them: `PT3S` becomes a duration.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from functools import partial
from inspect import signature
from typing import Any, TypeVar, get_type_hints

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError

from pipeline.durations import with_durations
from pipeline.errors import ConfigError
from pipeline.faults import fault_lines

T = TypeVar("T")


def filled(
    kind: Callable[..., T],
    given: tuple[Any, ...],
    options: Mapping[str, Any],
    *,
    at: str,
    told: Mapping[str, Any] | None = None,
) -> T:
    """Build a *kind*: *given* come first, then *told* by their names, then the config's *options*.

    *at* is where the options stand in the file.

    Raises:
        ConfigError: an option is unknown, lacking or of a wrong type, or the class refuses it.
    """
    elsewhere = told or {}
    named = {**elsewhere, **options}
    every = [one for one in signature(kind).parameters.items() if not one[0].startswith("_")]
    fields = dict(every[len(given) :])
    if strange := sorted({*options} & {*elsewhere} | {*options} - {*fields}):
        known = ", ".join(sorted(fields.keys() - elsewhere)) or "none"
        raise ConfigError(f"{at}.{strange[0]}: unknown key; known: {known}")
    if lacking := [n for n, one in fields.items() if one.default is one.empty and n not in named]:
        raise ConfigError(f"{at}.{lacking[0]}: is required")
    types = _types(kind, at) if options else {}
    typed = {n: _typed(types.get(n, Any), one, f"{at}.{n}") for n, one in options.items()}
    try:
        return kind(*given, **{**named, **typed})
    except TypeError as error:
        raise ConfigError(f"{at}: {error}") from error


def _strict(adapter: TypeAdapter[Any], plain: Any) -> Any:
    return adapter.validate_json(json.dumps(plain), strict=True, extra="forbid")


def _types(kind: Any, at: str) -> Mapping[str, Any]:
    try:
        return get_type_hints(kind if is_dataclass(kind) else kind.__init__)
    except NameError as error:
        msg = f"{at}: {kind.__name__}: {error}; import what its fields are when it runs, too"
        raise ConfigError(msg) from error


def _typed(wanted: Any, value: Any, at: str) -> Any:
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(wanted)
        schema = adapter.json_schema()
    except PydanticUserError as error:  # a lock, a function: nothing that a file could say
        raise ConfigError(f"{at}: cannot be set; remove it") from error
    try:
        plain = json.loads(json.dumps(value, default=str))  # as the file is read: YAML knows dates
        return with_durations(partial(_strict, adapter), plain)
    except ConfigError as error:  # a class within refuses what its types allow
        raise ConfigError(f"{at}: {error}") from error
    except ValidationError as error:
        raise ConfigError("; ".join(fault_lines(error, schema, at))) from error
