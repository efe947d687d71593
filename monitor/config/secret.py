"""Where does a value come from that does not stand in `sluice.yaml`?

Any value may be ``{env: NAME}``: what differs between two places need not be two files.  A secret
must be that, or ``{file: PATH}``; it is never written down.  A field is secret if its dataclass
hides it from `repr` (``field(repr=False)``): what keeps it out of logs keeps it out of the file.
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import yaml

WAYS = "{env: NAME} or {file: PATH}"
SECRET_SCHEMA = {
    "oneOf": [
        {
            "type": "object",
            "properties": {way: {"type": "string"}},
            "required": [way],
            "additionalProperties": False,
        }
        for way in ("env", "file")
    ]
}
"""How editors are told what a secret may be."""


def resolve(
    raw: Mapping[str, Any], kind: type, where: str, folder: Path
) -> tuple[dict[str, Any], list[str]]:
    """Replace the references in *raw*'s secret fields of *kind* by what they refer to.

    Files are named from *folder*, in which the config lies, wherever the program was started.
    Returns the new mapping and one line per reference that is wrong; what is wrong is left out,
    so that no message built from the mapping can show it.
    """
    return resolve_names(raw, secret_fields(kind) & raw.keys(), where, folder)


def resolve_names(
    raw: Mapping[str, Any], names: Iterable[str], where: str, folder: Path
) -> tuple[dict[str, Any], list[str]]:
    """The same of *names*, which *raw* has."""
    found, faults = dict(raw), []
    for name in sorted(names):
        try:
            found[name] = _read(raw[name], folder)
        except ValueError as error:
            faults.append(f"{where}.{name}: {error}")
            del found[name]
    return found, faults


def expand(raw: Any, at: str) -> tuple[Any, list[str]]:
    """Replace every ``{env: NAME}`` in *raw* by its value, read as YAML: a port is a number."""
    if isinstance(raw, Mapping):
        if set(raw) == {"env"} and isinstance(raw["env"], str):
            return _expanded(raw["env"], at)
        pairs = {
            key: expand(value, f"{at}.{key}" if at else str(key)) for key, value in raw.items()
        }
        return {k: v for k, (v, _) in pairs.items()}, [f for _, fs in pairs.values() for f in fs]
    if isinstance(raw, list):
        items = [expand(value, f"{at}[{number}]") for number, value in enumerate(raw)]
        return [value for value, _ in items], [fault for _, faults in items for fault in faults]
    return raw, []


def beside(faults: Iterable[str], unset: Iterable[str]) -> list[str]:
    """Those of *faults* that are not about a value which is only *unset*."""
    places = [fault.partition(": ")[0] for fault in unset]
    within = tuple(f"{place}{sign}" for place in places for sign in (": ", ".", "["))
    return [fault for fault in faults if not fault.startswith(within)]


def secret_fields(kind: type) -> frozenset[str]:
    """Names of the fields of dataclass *kind* that hold secrets."""
    return frozenset(field.name for field in fields(kind) if not field.repr)


def _expanded(name: str, at: str) -> tuple[Any, list[str]]:
    try:
        return yaml.safe_load(_from_environment(name)), []
    except ValueError as error:
        return None, [f"{at}: {error}"]
    except yaml.YAMLError:
        return None, [f"{at}: environment variable {name} is no YAML value"]


def _read(reference: object, folder: Path) -> str:
    match reference:
        case {"env": str(name), **rest} if not rest:
            return _full(_from_environment(name), f"environment variable {name}")
        case {"file": str(path), **rest} if not rest:
            return _full(_from_file(folder / path), str(folder / path))
    msg = f"a secret is never written here; name where it is: {WAYS}"
    raise ValueError(msg)


def _full(secret: str, where: str) -> str:
    if not secret:
        msg = f"{where} is empty; write the secret there, or remove the line"
        raise ValueError(msg)
    return secret


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
