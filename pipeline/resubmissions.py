"""Which quarantined messages has a person corrected, and what became of each?  Pure."""

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
    """The message of the quarantined ``change`` as it should have been; bytes are told in base64.

    ``change`` is named as in the mark.  ``key``, ``headers`` and ``at`` (the record's own time) are
    those of the message that could not be read, or what its corrector said; None where nobody
    knows.
    """

    id: str
    change: str
    value: str
    key: str | None = None
    headers: tuple[tuple[str, str | None], ...] = ()
    at: datetime | None = None


@dataclass(frozen=True, slots=True)
class ResubmissionState:
    """What became of one: ``batch`` is the one that it landed in, None until then.

    ``why`` says what it waits for, or why it never lands if it is ``refused``.
    """

    id: str
    batch: int | None = None
    why: str = ""
    refused: bool = False


def is_shard_subject(subject: str) -> bool:
    """Whether a quarantine's subject is ``source/shard``, and no topic of which more is unknown."""
    return not subject.startswith("topic:")


def parse_change_name(change: str) -> tuple[TopicPartition, int] | None:
    """Partition and offset of a quarantined change; None where its name is none of a message's.

    It is ``topic:partition:offset``, and in a mark ``@`` and its batch.
    """
    at, _, offset = change.rpartition("@")[0].rpartition(":")
    topic, _, partition = at.rpartition(":")
    if not topic or not (partition.isdigit() and offset.isdigit()):
        return None
    return TopicPartition(topic, int(partition)), int(offset)


def to_raw_message(one: Resubmission, columns: Sequence[str]) -> pa.RecordBatch:
    """``RAW`` of one message, then *columns*.

    Raises:
        FormatError: it names no place.
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
