"""Names, encodes and decodes the entries of a Delta log, and reads the ids of commits."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from pipeline.errors import HeldError

FOLDER = "_delta_log"
ENGINE = "Sluice"  # how every commit of ours names its writer
Action = Mapping[str, Any]  # one line of an entry: {"add": {...}}

_lines = msgspec.json.Decoder()


def entry_name(version: int) -> str:
    """File of one version's entry."""
    return f"{FOLDER}/{version:020d}.json"


def entry_digest(content: bytes) -> str:
    """A digest of one entry's content."""
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def parse_entry(uri: str, name: str, content: bytes) -> list[Action]:
    """Actions of one file of the log, one JSON object in a line.

    Raises:
        HeldError: ``log_damaged``.
    """
    try:
        return [_lines.decode(line) for line in content.split(b"\n") if line.strip()]
    except msgspec.DecodeError as error:
        raise log_damaged(uri, f"{name} cannot be read ({error})") from error


def encode_entry(actions: Sequence[Action]) -> bytes:
    """An entry's file."""
    return b"".join(msgspec.json.encode(action) + b"\n" for action in actions)


def commit_id(actions: Iterable[Action]) -> str | None:
    """Id of the commit that an entry's actions make up, if it is one of Sluice's."""
    for action in actions:
        told = action.get("commitInfo")
        if told and str(told.get("engineInfo", "")).startswith(ENGINE):
            return str(told.get("txnId"))
    return None


def log_damaged(uri: str, what: str) -> HeldError:
    """It is not known what the table holds."""
    return HeldError(
        "log_damaged", f"{uri}: {what}; restore {FOLDER} from a backup, or rebuild the table"
    )
