"""Finds the implementations of a seam by name, and builds them from their config options.

Each seam (sources, collectors, formats, probes, channels, ...) is a folder. A file or folder in
it is one implementation, and its name is the config key. One name in the module is the class.
In a folder that module is named for the seam: `SOURCE` of `mysql` is in `mysql/source.py`. A
key with a dot is the full name of a user's module and needs no registration.

Options arrive as JSON values and are converted to the types of the class's fields: `PT3S`
becomes a duration.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from difflib import get_close_matches
from functools import partial
from importlib import import_module
from inspect import get_annotations, signature
from pkgutil import iter_modules
from types import ModuleType
from typing import Any, TypeVar, get_type_hints

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError

from pipeline.durations import with_durations
from pipeline.errors import ConfigError
from pipeline.faults import fault_lines
from pipeline.installed import explain_install


def list_keys(seam: ModuleType, name: str) -> tuple[str, ...]:
    """Keys of all implementations in the folder of *seam*, sorted; *name* as in `find_class`."""
    found = (module.name for module in iter_modules(seam.__path__))
    return tuple(sorted(key for key in found if _bears(f"{seam.__name__}.{key}", name)))


def find_class(seam: ModuleType, name: str, key: str) -> Any:
    """The class ``name`` (such as ``PROBE``) of the implementation *key* of *seam*.

    Raises:
        ConfigError: there is no such implementation; the message lists the known ones.
    """
    elsewhere = "." in key.lstrip(".")
    where = key if elsewhere else f"{seam.__name__}.{key}"
    try:
        module = _load(where, name)
    except ModuleNotFoundError as error:
        if not f"{where}.{name.lower()}".startswith(error.name or ""):  # another module is missing
            advice = explain_install(error.name or "") or f"{error}; install it first"
            raise ConfigError(f"{where}: {advice}") from error
        module = None
    except (Exception, SystemExit) as error:  # user code may raise anything
        msg = f"{where}: its import fails: {type(error).__name__}: {error}; fix the module"
        raise ConfigError(msg) from error
    if isinstance(found := getattr(module, name, None), type):
        return found
    if elsewhere:
        raise ConfigError(f"{where}: {_unfit(module, name, found)}")
    folder, word = seam.__name__.replace(".", "/"), name.lower()
    known = list_keys(seam, name)
    close = get_close_matches(key, known, n=1)
    near = f"the nearest is {close[0]}; " if close else ""
    raise ConfigError(f"no {word} {key!r} in {folder}; {near}known: {', '.join(known)}")


def has_class(seam: ModuleType, name: str, key: str) -> bool:
    """Whether the existing implementation *key* of *seam* has anything under *name*."""
    return _bears(key if "." in key.lstrip(".") else f"{seam.__name__}.{key}", name)


def missing_members(kind: type, protocol: type) -> str:
    """Members of *protocol* that *kind* does not have, as a message; empty if it has all.

    A field without a default is not an attribute of its class, but a member of every object of it.
    """
    asked = {n for n in (*vars(protocol), *get_annotations(protocol)) if not n.startswith("_")}
    has = {*dir(kind), *getattr(kind, "__dataclass_fields__", ())}
    missing = ", ".join(sorted(asked - has))
    return f"has no {missing}; see docs/extending.md" if missing else ""


def _unfit(module: ModuleType | None, name: str, found: object) -> str:
    """Why a user's module is not an implementation."""
    if module is None:
        return "there is no such module where Python looks; put its folder on PYTHONPATH"
    if found is None:
        return f"it has no {name}; write there `{name} = ` and the name of your class"
    return f"its {name} is {found!r}; it must be a class, whose fields are the settings"


def _bears(where: str, name: str) -> bool:
    try:
        return hasattr(_load(where, name), name)
    except ModuleNotFoundError as error:
        if error.name != f"{where}.{name.lower()}" and not explain_install(error.name or ""):
            raise
        return bool(
            explain_install(error.name or "")
        )  # an extra is missing; else the folder is no implementation


def _load(where: str, name: str) -> ModuleType:
    module = import_module(where)
    return import_module(f"{where}.{name.lower()}") if hasattr(module, "__path__") else module


T = TypeVar("T")


def build_object(
    kind: Callable[..., T],
    given: tuple[Any, ...],
    options: Mapping[str, Any],
    *,
    at: str,
    injected: Mapping[str, Any] | None = None,
) -> T:
    """Build a *kind*: first *given*, then *injected* by name, then the config's *options*.

    *at* is the path of the options in the config file.

    Raises:
        ConfigError: an option is unknown, missing or of a wrong type, or the class refuses it.
    """
    elsewhere = injected or {}
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
        msg = f"{at}: {kind.__name__}: {error}; import the types of its fields"
        msg += " at run time, not only under TYPE_CHECKING"
        raise ConfigError(msg) from error


def _typed(wanted: Any, value: Any, at: str) -> Any:
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(wanted)
        schema = adapter.json_schema()
    except PydanticUserError as error:  # a lock or a function cannot be in a file
        raise ConfigError(f"{at}: cannot be set; remove it") from error
    try:
        plain = json.loads(json.dumps(value, default=str))  # as the file is read: YAML has dates
        return with_durations(partial(_strict, adapter), plain)
    except ConfigError as error:  # a class of an option refuses values that its types allow
        raise ConfigError(f"{at}: {error}") from error
    except ValidationError as error:
        raise ConfigError("; ".join(fault_lines(error, schema, at))) from error
