"""Messages as Maxwell writes them, for tests."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.pipeline.formats.batches import Raw

Values = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class MaxwellTable:
    """A table whose messages are written, each a transaction of its own."""

    database: str
    name: str
    key: tuple[str, ...]
    topic: str = "maxwell"

    def insert(self, row: Values, place: str | None = "binlog.000001:4") -> Raw:
        return self._message("insert", row, None, place)

    def delete(self, row: Values, place: str | None = "binlog.000001:4") -> Raw:
        return self._message("delete", row, None, place)

    def update(self, was: Values, now: Values, place: str | None = "binlog.000001:4") -> Raw:
        """Of the row before only what changed is sent."""
        old = {n: v for n, v in was.items() if (now[n], type(now[n])) != (v, type(v))}
        return self._message("update", now, old or None, place)

    def statement(
        self, kind: str, sql: str, columns: Sequence[tuple[str, str, bool | None]]
    ) -> Raw:
        """A statement with the table that it leaves; columns as name, type and sign."""
        told = [
            {"type": kind, "name": name} | ({} if signed is None else {"signed": signed})
            for name, kind, signed in columns
        ]
        names = {"database": self.database, "table": self.name}
        left = {**names, "charset": "utf8mb4", "columns": told, "primary-key": list(self.key)}
        message = {"type": kind, **names, "def": left, "ts": 1477053217000, "sql": sql}
        return None, _bytes(message | {"position": "binlog.000001:3"}), self.topic

    def _message(self, kind: str, data: Values, old: Values | None, place: str | None) -> Raw:
        told: dict[str, object] = {"database": self.database, "table": self.name, "type": kind}
        told |= {"ts": 1477053217, "xid": 9, "commit": True}
        told |= {} if place is None else {"position": place}
        told |= {"data": data} | ({} if old is None else {"old": old})
        key: dict[str, object] = {"database": self.database, "table": self.name}
        key |= {f"pk.{name.lower()}": data[name] for name in self.key}
        return _bytes(key), _bytes(told), self.topic


def _bytes(told: object) -> bytes:
    return json.dumps(told, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
