"""Messages for the formats' tests: one JSON object a line, bytes that are no text as base64."""

import base64
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CORPUS = Path(__file__).parents[1] / "corpus"


@dataclass(frozen=True, slots=True)
class Message:
    """One message and what a person says it must become (only the fields that matter)."""

    id: str
    topic: str
    key: bytes | None
    value: bytes | None
    expect: dict[str, Any]


def messages(name: str) -> tuple[Message, ...]:
    """Every message of a format's corpus, in the order of its files."""
    return tuple(
        _message(path.stem, json.loads(line))
        for path in sorted((CORPUS / name).glob("*.jsonl"))
        for line in path.read_text(encoding="utf-8").splitlines()
    )


def _message(file: str, raw: dict[str, Any]) -> Message:
    return Message(
        id=f"{file}: {raw['id']}",
        topic=raw["topic"],
        key=_bytes(raw["key"]),
        value=_bytes(raw["value"]),
        expect=raw.get("expect", {}),
    )


def _bytes(text: str | dict[str, str] | None) -> bytes | None:
    if isinstance(text, dict):
        return base64.b64decode(text["base64"])
    return text if text is None else text.encode()
