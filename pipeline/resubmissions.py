"""Defines the corrections of quarantined messages, and the state of each. Pure."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa

from pipeline.errors import FormatError
from pipeline.formats.format import OPTIONAL, RAW
from pipeline.model import TopicPartition


@dataclass(frozen=True, slots=True)
class Resubmission:
    """The corrected message of the quarantined ``change``; bytes are in base64.

    ``change`` is named as in the checkpoint.  ``key``, ``headers`` and ``at`` (the record's own
    time) are those of the unreadable message, or the corrected ones; None if unknown.
    """

    id: str
    change: str
    value: str
    key: str | None = None
    headers: tuple[tuple[str, str | None], ...] = ()
    at: datetime | None = None


@dataclass(frozen=True, slots=True)
class ResubmissionState:
    """The state of a correction: ``batch`` is the one that landed it, None until then.

    ``why`` is what it waits for, or why it never lands if it is ``refused``.
    """

    id: str
    batch: int | None = None
    why: str = ""
    refused: bool = False


def is_shard_subject(subject: str) -> bool:
    """Whether a quarantine's subject is ``source/shard``, not a topic with unknown shards."""
    return not subject.startswith("topic:")


def parse_change_name(change: str) -> tuple[TopicPartition, int] | None:
    """Parse partition and offset of a quarantined change; None for other names.

    The name is ``topic:partition:offset``, in a checkpoint followed by ``@`` and its batch.
    """
    at, _, offset = change.rpartition("@")[0].rpartition(":")
    topic, _, partition = at.rpartition(":")
    if not topic or not (partition.isdigit() and offset.isdigit()):
        return None
    return TopicPartition(topic, int(partition)), int(offset)


def to_raw_message(one: Resubmission, columns: Sequence[str]) -> pa.RecordBatch:
    """``RAW`` of one message, then *columns*.

    Raises:
        FormatError: ``change`` does not name a message.
    """
    place = parse_change_name(one.change)
    if place is None:
        raise FormatError(f"{one.change} is no name of a message")
    at, offset = place
    row = {
        "key": _bytes(one.key),
        "value": _bytes(one.value),
        "topic": at.topic,
        "partition": at.partition,
        "offset": offset,
        "timestamp": one.at,
        "headers": [{"name": name, "value": _bytes(text)} for name, text in one.headers] or None,
    }
    schema = pa.schema([*RAW, *(pa.field(name, OPTIONAL[name]) for name in columns)])
    return pa.RecordBatch.from_pylist([{name: row[name] for name in schema.names}], schema)


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
