"""Which implementations stand at a seam?  The files of its folder, by name; or a module of yours.

Each seam (sources, collectors, formats, probes, channels) is a folder; a file or folder in it is
one implementation, its name is the key in the config, and one name in it is the class; in a folder
it stands in the file named for the seam (``SOURCE`` of ``mysql`` in ``mysql/source.py``).  A key
with a dot in it is the full name of a module elsewhere, which needs no entry anywhere here.
"""

from importlib import import_module
from inspect import get_annotations
from pkgutil import iter_modules
from types import ModuleType
from typing import Any

from pipeline.errors import ConfigError
from pipeline.extras import fix


def known(seam: ModuleType, name: str) -> tuple[str, ...]:
    """Keys of all implementations in the folder of *seam*, sorted; *name* as for ``find``."""
    found = (module.name for module in iter_modules(seam.__path__))
    return tuple(sorted(key for key in found if _bears(f"{seam.__name__}.{key}", name)))


def find(seam: ModuleType, name: str, key: str) -> Any:
    """The class that the implementation *key* of *seam* bears under *name*, such as ``PROBE``.

    Raises:
        ConfigError: there is no such implementation; lists those there are.
    """
    elsewhere = "." in key.lstrip(".")
    where = key if elsewhere else f"{seam.__name__}.{key}"
    try:
        module = _load(where, name)
    except ModuleNotFoundError as error:
        if not f"{where}.{name.lower()}".startswith(error.name or ""):  # it lacks more
            told = fix(error.name or "") or f"{error}; install it first"
            raise ConfigError(f"{where}: {told}") from error
        module = None
    except (Exception, SystemExit) as error:  # another's code: whatever it raises, it has a name
        msg = f"{where}: its import fails: {type(error).__name__}: {error}; mend the module"
        raise ConfigError(msg) from error
    if isinstance(found := getattr(module, name, None), type):
        return found
    if elsewhere:
        raise ConfigError(f"{where}: {_unfit(module, name, found)}")
    folder, word = seam.__name__.replace(".", "/"), name.lower()
    raise ConfigError(f"no {word} {key!r} in {folder}; known: {', '.join(known(seam, name))}")


def is_borne(seam: ModuleType, name: str, key: str) -> bool:
    """Whether the implementation *key* of *seam*, which is there, bears anything under *name*."""
    return _bears(key if "." in key.lstrip(".") else f"{seam.__name__}.{key}", name)


def lacking(kind: type, protocol: type) -> str:
    """What *kind* lacks of *protocol*, for people; empty if nothing.

    A field without a default is no attribute of its class, and a member of every object of it.
    """
    asked = {n for n in (*vars(protocol), *get_annotations(protocol)) if not n.startswith("_")}
    has = {*dir(kind), *getattr(kind, "__dataclass_fields__", ())}
    missing = ", ".join(sorted(asked - has))
    return f"lacks {missing}; see docs/extending.md" if missing else ""


def _unfit(module: ModuleType | None, name: str, found: object) -> str:
    """Why a module elsewhere is no implementation."""
    if module is None:
        return "there is no such module where Python looks; put its folder on PYTHONPATH"
    if found is None:
        return f"it has no {name}; write there `{name} = ` and the name of your class"
    return f"its {name} is {found!r}; it must be a class, whose fields are the settings"


def _bears(where: str, name: str) -> bool:
    try:
        return hasattr(_load(where, name), name)
    except ModuleNotFoundError as error:
        if error.name != f"{where}.{name.lower()}" and not fix(error.name or ""):
            raise
        return bool(fix(error.name or ""))  # it needs an extra; else a folder of something else


def _load(where: str, name: str) -> ModuleType:
    module = import_module(where)
    return import_module(f"{where}.{name.lower()}") if hasattr(module, "__path__") else module
