"""DBEvents as a sender of theirs writes them, in Avro, for tests."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.pipeline.formats.avro_writer import Schema, message, record

CHANGED = record(
    "changed",
    name="string",
    ref_key="long",
    hadoop_changelog_fields={"type": "array", "items": "string"},
)
METADATA = record(
    "metadata",
    row_key="string",
    ref_key="long",
    changelog_columns=["null", {"type": "array", "items": CHANGED}],
    source="string",
    timestamp="long",
    is_deleted="boolean",
    error_exception=["null", "string"],
    error_source_data=["null", "bytes"],
    force_update="boolean",
    data_center="string",
)
COLUMNS: Mapping[str, Schema] = {
    "id": ["null", "long"],
    "fare": ["null", "double"],
    "note": ["null", "string"],
    "raw": ["null", "bytes"],
    "tags": ["null", {"type": "array", "items": "string"}],
}
SCHEMA = record("trips", **COLUMNS, hadoop_metadata=METADATA)
NUMBER = 7


@dataclass(frozen=True, slots=True)
class Event:
    """One event; ``changed`` are columns by version, None for a whole row."""

    key: str
    version: int
    row: Mapping[str, Any]
    changed: Sequence[tuple[int, Sequence[str]]] | None = None
    deleted: bool = False
    error: str | None = None
    forced: bool = False
    at: int = 1_552_521_600_000

    @property
    def value(self) -> bytes:
        """In Confluent's format."""
        return message(NUMBER, SCHEMA, {**_columns(self.row), "hadoop_metadata": self._metadata})

    @property
    def _metadata(self) -> dict[str, Any]:
        named = [
            {"name": "c", "ref_key": version, "hadoop_changelog_fields": list(names)}
            for version, names in self.changed or ()
        ]
        return {
            "row_key": self.key,
            "ref_key": self.version,
            "changelog_columns": (0, None) if self.changed is None else (1, named),
            "source": "MySQL",
            "timestamp": self.at,
            "is_deleted": self.deleted,
            "error_exception": _optional(self.error),
            "error_source_data": (0, None),
            "force_update": self.forced,
            "data_center": "dca1",
        }


def _columns(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _optional(row.get(name)) for name in COLUMNS}


def _optional(value: Any) -> tuple[int, Any]:
    return (0, None) if value is None else (1, value)
