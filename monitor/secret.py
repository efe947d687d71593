"""Where does a secret come from?  An environment variable or a file; never from `sluice.yaml`.

A field is secret if its dataclass hides it from `repr` (``field(repr=False)``): the same mark that
keeps it out of logs keeps it out of the config file.
"""

import os
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

WAYS = "{env: NAME} or {file: PATH}"


def resolve(raw: Mapping[str, Any], kind: type, where: str) -> tuple[dict[str, Any], list[str]]:
    """Replace the references in *raw*'s secret fields of *kind* by what they refer to.

    Returns the new mapping and one line per reference that is wrong; what is wrong is left out,
    so that no message built from the mapping can show it.
    """
    found, faults = dict(raw), []
    for name in sorted(secret_fields(kind) & raw.keys()):
        try:
            found[name] = _read(raw[name])
        except ValueError as error:
            faults.append(f"{where}.{name}: {error}")
            del found[name]
    return found, faults


def secret_fields(kind: type) -> frozenset[str]:
    """Names of the fields of dataclass *kind* that hold secrets."""
    return frozenset(field.name for field in fields(kind) if not field.repr)


def _read(reference: object) -> str:
    match reference:
        case {"env": str(name), **rest} if not rest:
            return _from_environment(name)
        case {"file": str(path), **rest} if not rest:
            return _from_file(Path(path))
    msg = f"a secret is never written here; name where it is: {WAYS}"
    raise ValueError(msg)


def _from_environment(name: str) -> str:
    value = os.environ.get(name)
    if value is None:
        msg = f"environment variable {name} is not set"
        raise ValueError(msg)
    return value


def _from_file(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "is not UTF-8 text"
        msg = f"cannot read {path}: {reason}"
        raise ValueError(msg) from None
