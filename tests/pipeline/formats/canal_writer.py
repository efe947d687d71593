"""Messages as canal's flat JSON writes them, for tests."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Texts = Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class CanalTable:
    """A table whose messages are written; ``types`` as SHOW COLUMNS spells them."""

    database: str
    name: str
    types: Mapping[str, str]
    key: tuple[str, ...]

    def insert(self, *rows: Texts, at: int = 0) -> bytes:
        return self._rows("INSERT", rows, None, at)

    def delete(self, *rows: Texts, at: int = 0) -> bytes:
        return self._rows("DELETE", rows, None, at)

    def update(self, *pairs: tuple[Texts, Texts], at: int = 0) -> bytes:
        """Each row before and after; of before only what changed is sent."""
        old = [{n: v for n, v in was.items() if now[n] != v} for was, now in pairs]
        return self._rows("UPDATE", [now for _, now in pairs], old, at)

    def statement(self, kind: str, sql: str, at: int = 0) -> bytes:
        return self._message(kind, None, None, at, sql=sql)

    def _rows(
        self, kind: str, rows: Sequence[Texts], old: Sequence[Texts] | None, at: int
    ) -> bytes:
        return self._message(kind, [dict(row) for row in rows], old, at)

    def _message(
        self, kind: str, data: object, old: object, at: int, sql: str | None = None
    ) -> bytes:
        told = {
            "data": data,
            "database": self.database,
            "es": at,
            "id": 1,
            "isDdl": sql is not None,
            "mysqlType": None if sql else dict(self.types),
            "old": old,
            "pkNames": None if sql else list(self.key) or None,
            "sql": sql or "",
            "sqlType": None if sql else dict.fromkeys(self.types, 12),
            "table": self.name,
            "ts": at + 9,
            "type": kind,
        }
        return json.dumps(told, ensure_ascii=False, separators=(",", ":")).encode()
