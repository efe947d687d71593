"""Copies to Redis: a hash of canonical texts for each row; the position moves after the rows.

A row of ``shop.orders`` with key 7 is the hash ``sluice:shop.orders:7``.  Columns that are NULL
have no field.  Each hash also has its source and shard, and the mirror's version that wrote it.
Its field of the load number and rank has digits of fixed width, because Lua compares texts.

Scripts compare and write a few hundred rows at a time.  Each script does so only while the
table's position is the one at which the step began.  So an interrupted step is repeated, and a
step that another process has overtaken does nothing.
"""

import base64
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from typing import Any

import msgspec
import pyarrow as pa
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from pipeline.copies.copy import CopiedTable, Copy, CopyPosition, CopyStep, RankedRows
from pipeline.errors import ConfigError, HeldError, LostRaceError, SluiceError, UnreachableError
from pipeline.settings import TlsSettings, needs_tls

SOURCE, SHARD, RANK, VERSION = "_sluice_source", "_sluice_shard", "_sluice_rank", "_sluice_version"
OWN = (SOURCE, SHARD, RANK, VERSION)
AT_ONCE = 500  # rows of one script; Redis answers no other client while it runs
LARGEST = 8 * 2**20  # characters of one script's rows; a script that reaches it takes no more
MOST_COLUMNS = 1_500  # Lua passes each name and value as an argument of one call
DIGITS = 20
LOWEST = -(2**63)
OVERTAKEN = -1

# KEYS: the hash of positions.  ARGV: table, its position when the step began, rows in MessagePack.
PUT = """
if (redis.call('HGET', KEYS[1], ARGV[1]) or '') ~= ARGV[2] then return -1 end
local refused = 0
for _, row in ipairs(cmsgpack.unpack(ARGV[3])) do
  local there = redis.call('HMGET', row[1], '_sluice_source', '_sluice_rank')
  if there[2] and there[1] == row[2] and there[2] > row[3] then
    refused = refused + 1
  else
    redis.call('DEL', row[1])
    redis.call('HSET', row[1], unpack(row[4]))
  end
end
return refused
"""
TAKE = """
if (redis.call('HGET', KEYS[1], ARGV[1]) or '') ~= ARGV[2] then return -1 end
local gone = 0
for _, row in ipairs(cmsgpack.unpack(ARGV[3])) do
  local there = redis.call('HMGET', row[1], '_sluice_source', '_sluice_rank', '_sluice_version')
  if there[2] and there[1] == row[2] and there[2] <= row[3]
     and tonumber(there[3]) < tonumber(row[4]) then
    redis.call('DEL', row[1])
    gone = gone + 1
  elseif not there[2] then
    gone = gone + 1
  end
end
return gone
"""
SWEEP = """
if (redis.call('HGET', KEYS[1], ARGV[1]) or '') ~= ARGV[2] then return -1 end
for _, key in ipairs(cmsgpack.unpack(ARGV[3])) do
  local rank = redis.call('HGET', key, '_sluice_rank')
  if rank and string.sub(rank, 1, 20) < ARGV[4] then redis.call('DEL', key) end
end
return 0
"""
STAND = """
if (redis.call('HGET', KEYS[1], ARGV[1]) or '') ~= ARGV[2] then return -1 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
return 0
"""


@dataclass(frozen=True, slots=True)
class RedisCopy(TlsSettings):
    """One server, not a cluster, and the prefix of all keys.

    ``patience`` is the time limit of one answer.
    """

    host: str
    """Host name or address of the server."""
    port: int = 6379
    """Port of the server."""
    database: int = 0
    """Number of the database."""
    prefix: str = "sluice"
    """What every key begins with."""
    user: str = ""
    """The user that writes the copy; empty for the default user."""
    password: str = field(default="", repr=False)
    """The password of `user`."""
    patience: timedelta = timedelta(seconds=10)

    def __post_init__(self) -> None:
        """Reject a negative ``database`` and an empty ``prefix``.

        Raises:
            ConfigError: names the setting.
        """
        if self.database < 0:
            raise ConfigError(f"database: {self.database} is negative; write 0 or more")
        if not self.prefix.strip():
            raise ConfigError("prefix: is empty; write what all keys of the copy begin with")

    @property
    def place(self) -> str:
        """The server's address, the database and the prefix."""
        return f"redis://{self.host}:{self.port}/{self.database}/{self.prefix}"

    def opened(self, owner: str) -> "RedisTarget":
        return RedisTarget(self, owner)


@dataclass(eq=False)
class RedisTarget:
    """A client with one connection; after a failure the next request connects again."""

    settings: RedisCopy
    owner: str
    _client: redis.Redis | None = field(default=None, repr=False)

    @property
    def standing(self) -> str:
        """Key of the hash of positions by table."""
        return f"{self.settings.prefix}:copies"

    @property
    def naming(self) -> str:
        """Key of the hash that has, by table, the columns that name its rows."""
        return f"{self.settings.prefix}:named"

    def positions(self) -> Mapping[str, CopyPosition]:
        """Read the hash of positions.

        Raises:
            HeldError: ``copy_evicts``, the server may evict rows; ``copy_taken``, see `CopyTarget`.
        """
        with self._translated(""):
            stored: Any = self._open().hgetall(self.standing)
            memory: Any = self._open().info("memory")
        policy = str(memory.get("maxmemory_policy", ""))
        if int(memory.get("maxmemory", 0)) and policy.startswith("allkeys"):
            detail = f"{self.settings.place} drops rows when its memory is full ({policy})"
            raise HeldError("copy_evicts", f"{detail}; set maxmemory-policy to noeviction there")
        found = {}
        for name, text in stored.items():
            one = json.loads(text)
            if (owner := one.pop("owner")) != self.owner:
                raise self._taken(f"the copy there is that of the lake {owner}")
            found[name.decode()] = CopyPosition(**one)
        return found

    def shaped(self, table: CopiedTable) -> None:
        """Reject columns that a hash cannot hold, and rows named by another key than before.

        Rows named by the earlier key would never be removed, and each row would exist twice.
        """
        nested = [one for one in table.columns if pa.types.is_nested(one.type)]
        taken = [one for one in table.columns if one.name in OWN]
        if nested or taken or len(table.columns) > MOST_COLUMNS:
            what = f"column {(nested or taken)[0].name}" if nested or taken else "so many columns"
            raise HeldError("copy_columns", f"{table.name}: a hash cannot hold {what}")
        by = json.dumps([*table.key, *(("source", "shard") if table.sharded else ())])
        with self._translated(table.name):
            self._open().hsetnx(self.naming, table.name, by)
            stored: Any = self._open().hget(self.naming, table.name)
        if stored.decode() != by:
            here = f"rows of {table.name} in {self.settings.place} are named by {stored.decode()}"
            raise HeldError("copy_key", f"{here}, its mirror's by {by}; {self._dropping(table)}")

    def write(self, table: CopiedTable, step: CopyStep) -> int:
        """Write rows, remove keys, then set the position, which each script compares first."""
        with self._translated(table.name):
            gone = 0
            was, now = self._dump_position(step.was), self._dump_position(step.now)
            for rows in split_rows(self._rows(table, step)):
                if refused := self.run_script(PUT, table, was, rows):
                    raise self._written(table, refused)
            for keys in split_rows(self._keys(table, step)):
                gone += self.run_script(TAKE, table, was, keys)
            if step.sweeps and step.now.load > 1:
                self._sweep(table, step, was)
            self.run_script(STAND, table, was, now)
        return gone

    def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def _rows(self, table: CopiedTable, step: CopyStep) -> Iterator[list[Any]]:
        for some in step.came:
            texts = {name: _texts(some.rows[name]) for name in some.rows.column_names}
            columns = list(texts.items())
            for at, (key, source, shard, rank) in enumerate(self._name_rows(table, some, step)):
                fields = [SOURCE, source, SHARD, shard, RANK, rank, VERSION, str(step.now.version)]
                for name, values in columns:
                    if (value := values[at]) is not None:
                        fields += (name, value)
                yield [key, source, rank, fields]

    def _keys(self, table: CopiedTable, step: CopyStep) -> Iterator[list[Any]]:
        version = str(step.now.version)
        for some in step.went:
            for key, source, _, rank in self._name_rows(table, some, step):
                yield [key, source, rank, version]

    def _name_rows(
        self, table: CopiedTable, some: RankedRows, step: CopyStep
    ) -> Iterator[tuple[str, str, str, str]]:
        """Yield the key in Redis, source, shard and rank of each row."""
        sources, shards = some.owned.source.to_pylist(), some.owned.shard.to_pylist()
        values = [_texts(some.rows[name]) for name in table.key]
        if table.sharded:
            values += [sources, shards]
        begin, load = self.key_prefix(table), f"{step.now.load:0{DIGITS}}"
        ranks = some.owned.rank.T.tolist()
        for *key, source, shard, rank in zip(*values, sources, shards, ranks, strict=True):
            places = "".join(f"{one - LOWEST:0{DIGITS}}" for one in rank)
            yield begin + ":".join(map(_escaped, key)), source or "", shard or "", load + places

    def _sweep(self, table: CopiedTable, step: CopyStep, was: str) -> None:
        """Remove rows of earlier loads; this scans all keys, because no list of rows exists."""
        below = f"{step.now.load:0{DIGITS}}"
        found = self._open().scan_iter(f"{_no_pattern(self.key_prefix(table))}*", count=1_000)
        # Redis cannot unpack bytes from MessagePack; a key that is not UTF-8 is not ours
        for keys in split_rows(key.decode(errors="replace") for key in found):
            self.run_script(SWEEP, table, was, keys, below)

    def run_script(self, script: str, table: CopiedTable, was: str, what: Any, *more: str) -> int:
        """Return the result of *script*; LostRaceError if the table's position is not *was*."""
        argument = what if isinstance(what, str) else msgspec.msgpack.encode(what)
        run: Callable[..., Any] = self._open().register_script(script)
        said = int(run(keys=[self.standing], args=[table.name, was, argument, *more]))
        if said == OVERTAKEN:
            msg = f"{self.settings.place}: another client has written the copy of {table.name}"
            raise LostRaceError(msg)
        return said

    def _dump_position(self, position: CopyPosition | None) -> str:
        if position is None:
            return ""
        fields = {**asdict(position), "owner": self.owner}
        if not position.load_id:  # as earlier versions wrote it: scripts compare the whole text
            del fields["load_id"]
        return json.dumps(fields, sort_keys=True)

    def key_prefix(self, table: CopiedTable) -> str:
        return f"{self.settings.prefix}:{_escaped(table.name)}:"

    def _dropping(self, table: CopiedTable) -> str:
        hashes = f"HDEL {self.standing} {table.name} and HDEL {self.naming} {table.name}"
        return f"delete the keys {self.key_prefix(table)}*, then {hashes}, to have it loaded again"

    def _written(self, table: CopiedTable, refused: int) -> HeldError:
        problem = f"{refused} rows of {table.name} in {self.settings.place} are newer than the"
        advice = f"another client writes there; stop it, and {self._dropping(table)}"
        return HeldError("copy_written", f"{problem} mirror's: {advice}")

    def _taken(self, problem: str) -> HeldError:
        detail = f"{self.settings.place}: {problem}; name another prefix, or drop what is there"
        return HeldError("copy_taken", detail)

    def _open(self) -> redis.Redis:
        if self._client is None:
            own, seconds = self.settings, self.settings.patience.total_seconds()
            self._client = redis.Redis(
                host=own.host,
                port=own.port,
                db=own.database,
                username=own.user or None,
                password=own.password or None,
                ssl=needs_tls(own.tls, own.host),
                ssl_ca_certs=own.ca or None,
                ssl_certfile=own.certificate or None,
                ssl_keyfile=own.key or None,
                ssl_check_hostname=True,
                socket_timeout=seconds,
                socket_connect_timeout=min(5.0, seconds),
                retry=Retry(NoBackoff(), 0),  # a request without an answer may have been executed
                client_name="sluice",
            )
        return self._client

    @contextmanager
    def _translated(self, table: str) -> Iterator[None]:
        try:
            yield
        except SluiceError:
            raise
        except redis.ResponseError as error:
            self.close()
            raise self._said(error, table) from None
        except (redis.RedisError, OSError) as error:
            self.close()
            advice = self.settings.tls_advice(str(error), self.settings.host)
            raise UnreachableError(f"{self.settings.place}: {error}{advice}") from error

    def _said(self, error: redis.ResponseError, table: str) -> SluiceError:
        said = str(error)
        if "WRONGTYPE" in said:
            return self._taken(f"a key of {table} does not hold a row")
        return UnreachableError(f"{self.settings.place}: {said}")


def _texts(column: pa.ChunkedArray) -> list[str | None]:
    """The values as canonical texts: ISO dates and times, bytes in base64, true and false."""
    if pa.types.is_binary(column.type):
        values = column.to_pylist()
        return [None if one is None else base64.b64encode(one).decode() for one in values]
    found: list[str | None] = column.cast(pa.string()).to_pylist()
    return found


def _escaped(part: str) -> str:
    """A part of a key, with the separator escaped."""
    return part.replace("%", "%25").replace(":", "%3A")


def _no_pattern(text: str) -> str:
    """Escape *text* for a glob pattern of Redis."""
    return "".join(f"\\{sign}" if sign in "\\*?[]^-" else sign for sign in text)


def split_rows(rows: Iterable[Any]) -> Iterator[list[Any]]:
    """Split *rows* into lists that one script takes."""
    held: list[Any] = []
    size = 0
    for one in rows:
        held.append(one)
        size += _size(one)
        if len(held) == AT_ONCE or size >= LARGEST:
            yield held
            held, size = [], 0
    if held:
        yield held


def _size(reply: Any) -> int:
    return len(reply) if isinstance(reply, str) else sum(map(_size, reply))


COPY: type[Copy] = RedisCopy
