"""Which implementations stand at a seam?  The files of its folder, by name; or a module of yours.

Each seam (sources, collectors, formats, probes, channels) is a folder; a file or folder in it is
one implementation, its name is the key in the config, and one name in it is the class.  A key with
a dot in it is the full name of a module elsewhere, which needs no entry anywhere here.
"""

from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType
from typing import Any

from pipeline.errors import ConfigError


def known(seam: ModuleType, name: str) -> tuple[str, ...]:
    """Keys of all implementations in the folder of *seam*, sorted; *name* as for ``find``."""
    found = (module.name for module in iter_modules(seam.__path__))
    return tuple(sorted(key for key in found if hasattr(_load(f"{seam.__name__}.{key}"), name)))


def find(seam: ModuleType, name: str, key: str) -> Any:
    """The class that the implementation *key* of *seam* bears under *name*, such as ``PROBE``.

    Raises:
        ConfigError: there is no such implementation; lists those there are.
    """
    where = key if "." in key else f"{seam.__name__}.{key}"
    try:
        module = _load(where)
    except ModuleNotFoundError as error:
        if not where.startswith(error.name or ""):  # the module is there, and lacks something
            raise ConfigError(f"{where}: {error}; install it first") from error
        module = None
    if module is not None and hasattr(module, name):
        return getattr(module, name)
    folder, word = seam.__name__.replace(".", "/"), name.lower()
    raise ConfigError(f"no {word} {key!r} in {folder}; known: {', '.join(known(seam, name))}")


def _load(name: str) -> ModuleType:
    return import_module(name)
