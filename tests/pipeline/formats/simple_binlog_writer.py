"""Messages of SimpleBinlog, as a collector and a replay write them, for tests."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

SECOND = 1_000
LAG = 300 * SECOND  # a replay is stamped so long before its query
LONGEST = 10**6


@dataclass(eq=False)
class Collector:
    """Counts within each millisecond of its own clock, ``now``."""

    now: int
    _last: tuple[int, int] = field(default=(-1, 0))

    def message(self, kind: str, table: str, row: Mapping[str, object]) -> bytes:
        count = self._last[1] + 1 if self._last[0] == self.now else 0
        self._last = (self.now, count)
        offset = self.now * LONGEST + count
        return _bytes(kind, table, row, offset=offset, source="BINLOG", executed=self.now)

    def replay(self, table: str, row: Mapping[str, object], executed: int) -> bytes:
        """A row that was selected now: five minutes old, so that live events win."""
        offset = (self.now - LAG) * LONGEST
        return _bytes("INSERT", table, row, offset=offset, source="MOCK", executed=executed)


def _bytes(
    kind: str,
    table: str,
    row: Mapping[str, object],
    *,
    offset: int,
    source: str,
    executed: int,
) -> bytes:
    database, _, name = table.partition(".")
    told = {
        "binlogOffset": offset,
        "executeTime": executed,
        "eventType": kind,
        "schemaName": database,
        "tableName": name,
        "source": source,
        "version": "1.0",
        "content": dict(row),
    }
    return json.dumps(told, ensure_ascii=False).encode()
