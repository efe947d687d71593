"""What is a message, as every format tells it?  One message here, many in Spark: same answers."""

from dataclasses import dataclass
from datetime import datetime
from importlib import import_module
from pkgutil import iter_modules
from typing import Protocol, cast

from pyspark.sql import DataFrame

from pipeline import formats
from pipeline.errors import ConfigError
from pipeline.model import Op, Origin


@dataclass(frozen=True, slots=True)
class Tx:
    """The source's transaction a change belongs to, and the change's place in it."""

    id: str
    total_order: int | None = None


@dataclass(frozen=True, slots=True)
class Decoded:
    """One message; None where the message does not say.

    ``shard``       ``database.table``; ``key_values`` a JSON array of the key values' texts.
    ``before``/``after``  the row (or, for begin, end and ddl, the whole payload) as JSON text.
    ``at``          the source's clock, for display only.
    ``log``         the binlog file's number, ``pos`` and ``row`` the place in it.
    ``snapshot``    which snapshot row this is; None for a live change.
    ``error``       why it could not be decoded; then ``raw`` holds the value's bytes, and only
                    ``shard`` and ``key_values`` may be known besides.
    """

    op: Op
    shard: str | None = None
    key_values: str | None = None
    before: str | None = None
    after: str | None = None
    changed: tuple[str, ...] | None = None
    at: datetime | None = None
    log: int | None = None
    pos: int | None = None
    row: int | None = None
    snapshot: str | None = None
    origin: Origin = Origin.LIVE
    tx: Tx | None = None
    gtid: str | None = None
    schema_id: int | None = None
    error: str | None = None
    raw: bytes | None = None


class Format(Protocol):
    """A file of formats/: two faces, one for Spark and one for a single message, that agree."""

    def columns(self, raw: DataFrame) -> DataFrame:
        """Add the fields of :class:`Decoded` as columns to Kafka's own; never fails on a row.

        In: ``key binary, value binary, topic string`` at least; whatever comes in stays.
        Out: besides, ``changed array<string>``, ``at timestamp``, ``log``, ``pos``, ``row``
        bigint, ``origin`` and ``schema_id`` int, ``tx struct<id:string,total_order:bigint>``,
        ``raw binary``; the other fields are strings.
        """
        ...

    def decode(self, key: bytes | None, value: bytes | None, topic: str) -> Decoded:
        """Decode one message; one that cannot be decoded is ``Op.ERROR``, never an exception."""
        ...


def find(name: str) -> Format:
    """Give the format of that name, the file ``formats/<name>.py``.

    Raises:
        ConfigError: if there is none; lists those there are.
    """
    if name not in known():
        msg = f"no format {name!r} in pipeline/formats; known: {', '.join(known())}"
        raise ConfigError(msg)
    return cast(Format, import_module(f"{formats.__name__}.{name}").FORMAT)


def known() -> tuple[str, ...]:
    """Names of all formats, sorted."""
    return tuple(sorted(module.name for module in iter_modules(formats.__path__)))
