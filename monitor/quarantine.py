"""Reads quarantined messages, and tests whether a correction can be decoded.

The quarantine consists of the messages that could not be decoded, stored in the change log with
their bytes. The landing checkpoint says which of them are open. Key, headers and timestamp come
from the topic, as long as it still has the message.
"""

import base64
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from pipeline.changelog.reader import ErrorRow
from pipeline.checkpoint import Checkpoint
from pipeline.errors import ConfigError, FormatError, UnknownNameError, UnreachableError
from pipeline.formats.format import OPTIONAL, Format, MessageText, PlainText, Schemas
from pipeline.formats.schema_registry import SchemaRegistry, decode_with_registry
from pipeline.model import Op
from pipeline.resubmissions import Resubmission, parse_change_name, to_raw_message
from pipeline.tables.lake import Lake
from pipeline.transports.transport import OffsetRange, ReadBounds, Transport

PATIENCE = timedelta(seconds=5)
READABLE = (
    "{name} was read, but stays open: its transaction may have begun before the"
    " snapshot; only a new base of its table closes it"
)
UNKNOWN = "nothing that could not be read is named {name!r}; `sluice quarantine list` shows them"


@dataclass(frozen=True, slots=True)
class SourceFormat:
    """The format of one source's messages."""

    format: Format
    registry: SchemaRegistry | None
    text: MessageText = field(default_factory=PlainText)

    def schemas(self, number: int | None) -> Schemas:
        """Return schema *number*, if any; NoSchemasError if the registry does not have it."""
        if self.registry is None or number is None:
            return {}
        return self.registry.schemas(frozenset({number}))


@dataclass(frozen=True, slots=True)
class QuarantinedMessage:
    """One quarantined message.

    ``record`` is the message in its topic; None if the topic no longer has it. ``text`` is its
    readable form; empty if it cannot be rendered, and ``unread`` says why.
    """

    row: ErrorRow
    value: bytes
    record: Resubmission | None
    schema: int | None
    text: str
    unread: str = ""

    def objects(self) -> Iterator[Mapping[str, Any]]:
        """Yield all JSON objects in its text and in its key, as far as these are JSON."""
        key = None if self.record is None else self.record.key
        sent = "" if key is None else base64.b64decode(key).decode("utf-8", "replace")
        for text in (self.text, sent):
            try:
                yield from _objects(json.loads(text))
            except (ValueError, RecursionError):
                continue


@dataclass(eq=False)
class ErrorTable:
    """Reads quarantined messages from change log, topics and registries.

    ``formats`` are by source.
    """

    lake: Lake
    formats: Mapping[str, SourceFormat]
    transport: Callable[[], Transport]

    def rows(self, table: str | None, most: int) -> tuple[ErrorRow, ...]:
        """Return the *most* newest rows, of one table or topic, or of all."""
        return self.lake.changes().errors(table, most)

    def open(self, rows: Iterable[ErrorRow]) -> Mapping[str, bool]:
        """Return, by name, whether each row is open; true if only a count is known."""
        known = self._checkpoint().quarantine
        named = {name for one in known.values() for name in one.ids}
        some = {subject for subject, one in known.items() if one.count > len(one.ids)}
        return {row.change: row.change in named or row.subject in some for row in rows}

    def count(self) -> Mapping[str, int]:
        """Return how many are open, by table, or by ``topic:NAME`` if the table is unknown."""
        counts: dict[str, int] = {}
        for subject, one in self._checkpoint().quarantine.items():
            name = one.table or subject
            counts[name] = counts.get(name, 0) + one.count
        return counts

    def message(self, name: str) -> QuarantinedMessage:
        """Return all that is known of one message.

        Raises:
            UnknownNameError: no message has that name.
            ConfigError: it is open, but was decoded.
        """
        found = self.lake.changes().error(name) if parse_change_name(name) is not None else None
        if found is None:
            named = any(name in one.ids for one in self._checkpoint().quarantine.values())
            if named:
                raise ConfigError(READABLE.format(name=name))
            raise UnknownNameError(UNKNOWN.format(name=name))
        row, value = found
        its = self._format(row.source)
        number = its.text.schema_of(value)
        try:
            text, why = its.text.readable(value, its.schemas(number)), ""
        except (FormatError, UnreachableError) as error:
            text, why = "", str(error)
        return QuarantinedMessage(row, value, self._record(row, value), number, text, why)

    def corrected(
        self, one: QuarantinedMessage, value: bytes, key: bytes | None, id_: str
    ) -> Resubmission:
        """Return a resubmission of *value* instead of *one*, under its old key unless *key* is set.

        Raises:
            ConfigError: *one* is not open by name, or *value* cannot be decoded either.
        """
        name, known = one.row.change, self._checkpoint().quarantine.values()
        if not any(name in each.ids for each in known):
            msg = f"{name} is not open by name: a new base, a waiver or a correction closed it, or"
            raise ConfigError(f"{msg} it is one of too many; `sluice quarantine list` shows them")
        made = one.record or Resubmission(id_, name, "")
        sent = base64.b64encode(value).decode()
        encoded_key = made.key if key is None else base64.b64encode(key).decode()
        made = replace(made, id=id_, value=sent, key=encoded_key)
        self._require_readable(one.row.source, made)
        return made

    def written(self, one: QuarantinedMessage, text: str, schema: int | None) -> bytes:
        """Encode *text* as a message of the same source, in *schema*, or in that of *one*.

        Raises:
            ConfigError: *text* does not fit the schema.
        """
        its, number = self._format(one.row.source), one.schema if schema is None else schema
        try:
            return its.text.written(text, its.schemas(number), number)
        except FormatError as error:
            raise ConfigError(f"the message does not fit its format: {error}") from error

    def _require_readable(self, source: str, made: Resubmission) -> None:
        its = self._format(source)
        rows = decode_with_registry(
            its.format, its.registry, to_raw_message(made, its.format.columns)
        ).to_pylist()
        for row in rows:
            if row["op"] == Op.ERROR:
                raise ConfigError(f"the message cannot be read either: {row['error']}")
        if not rows:
            raise ConfigError("the message contains no change of a row")

    def _format(self, source: str) -> SourceFormat:
        if source not in self.formats:
            raise ConfigError(f"no source {source!r} is in the config any more")
        return self.formats[source]

    def _checkpoint(self) -> Checkpoint:
        found = self.lake.checkpoint()
        if found is None:
            raise ConfigError("nothing has landed yet")
        return found

    def _record(self, row: ErrorRow, value: bytes) -> Resubmission | None:
        """Return the record from its topic; None if it is missing or was replaced."""
        place = parse_change_name(row.change)
        if place is None:
            return None
        at, offset = place
        asked = OffsetRange(at.topic, at.partition, offset, offset + 1)
        bounds = ReadBounds(patience=PATIENCE)
        try:
            read = (
                self.transport()
                .reader([asked])
                .consume([asked], bounds=bounds, columns=[*OPTIONAL])
            )
            found = [one for batch in read for one in batch.to_pylist()]
        except UnreachableError:
            return None
        same = [one for one in found if one["value"] == value]
        return _recorded(row.change, same[0]) if same else None


def _objects(value: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(value, dict):
        yield value
    inner = value.values() if isinstance(value, dict) else value
    for one in inner if isinstance(inner, Iterable) and not isinstance(inner, str) else ():
        yield from _objects(one)


def _recorded(change: str, found: Mapping[str, Any]) -> Resubmission:
    headers = tuple(
        (one["name"], _encode_base64(one["value"])) for one in found.get("headers") or ()
    )
    return Resubmission(
        "", change, "", _encode_base64(found["key"]), headers, found.get("timestamp")
    )


def _encode_base64(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()
