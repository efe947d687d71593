"""What do statements still ask of each shard's rows, as of the newest one?  Pure.

A hold, rows that come from another shard, or that there are none left of one that moved away or
was dropped; a base or a truncate at that order or later answers each.  A statement that leaves a
shard empty asks for one of these, too: a CREATE is a base by itself, but only where nothing of its
name was there, and a TRUNCATE that only its statement tells of empties nothing.
The effects of an order are worked out again whenever more of it comes: the messages of one RENAME
may be cut apart by the end of a batch, and a collector that starts again sends some of them twice.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from pipeline.model import Order, ShardId
from pipeline.schema.dialect import Dialect
from pipeline.schema.effect import BaseNeeded, Drop, Effect, Empty, KnownTables, Replace
from pipeline.schema.schema_change import Told

EMPTIED = "emptied"  # reason of what asks for an answer only where there was a base before


@dataclass(frozen=True, slots=True)
class MovedRows:
    """Rows of *shard* below *order* are those that *rows_of* had just before it.

    ``before`` is what was asked of *rows_of* then, by the newest statement below *order*.
    """

    shard: ShardId
    order: Order
    rows_of: ShardId
    before: "Asked | None" = None


@dataclass(frozen=True, slots=True)
class Gone:
    """No table *shard* is left since *order*: nor are rows of it among those of other shards."""

    shard: ShardId
    order: Order


Asked = BaseNeeded | MovedRows | Gone


def _every_table() -> KnownTables:
    return KnownTables(captured=lambda _: True)


@dataclass(frozen=True, slots=True)
class PendingStatements:
    """What the statements of one source ask; ``newest`` are those of the highest order so far.

    ``known`` and ``asked`` are as of just below that order.  Every table counts as captured: one
    that is not has no base in the change log, which decides.
    """

    dialect: Dialect
    known: KnownTables = field(default_factory=_every_table)
    asked: Mapping[ShardId, Asked] = field(default_factory=dict)
    newest: tuple[Told, ...] = ()

    def after(self, told: Sequence[Told]) -> "PendingStatements | None":
        """With *told* too, in any order; None if some of it lies lower than the newest here."""
        every = sorted((*self.newest, *told), key=lambda message: message.order)
        if not every or (self.newest and every[0].order < self.newest[0].order):
            return None if every else self
        newest = tuple(message for message in every if message.order == every[-1].order)
        made, known = self.dialect.follow(every[: -len(newest)], self.known)
        return PendingStatements(self.dialect, known, _asked(self.asked, made), newest)

    def standing(self) -> Mapping[ShardId, Asked]:
        """By shard, what nothing later has closed."""
        return _asked(self.asked, self.dialect.follow(self.newest, self.known)[0])


def _asked(asked: Mapping[ShardId, Asked], made: Sequence[Effect]) -> dict[ShardId, Asked]:
    found = dict(asked)
    for _, group in groupby(made, key=lambda effect: effect.order):
        together = tuple(group)
        moving = {effect.rows_of for effect in together if isinstance(effect, Replace)}
        before = {shard: found.get(shard) for shard in moving}  # two tables may change places
        for effect in together:
            if isinstance(effect, BaseNeeded):
                found[effect.shard] = effect
            elif isinstance(effect, Replace):
                rows_of = effect.rows_of
                asked_of = before[rows_of]
                found[effect.shard] = MovedRows(effect.shard, effect.order, rows_of, asked_of)
            elif isinstance(effect, Empty):
                found[effect.shard] = _base_of(effect)
            elif isinstance(effect, Drop):
                found[effect.shard] = Gone(effect.shard, effect.order)
    return found


def _base_of(effect: Empty) -> BaseNeeded:
    """What a CREATE or a truncate among the rows answers by itself, at the very order."""
    detail = (
        f"a statement left {effect.shard} empty, and nothing among its rows says so; "
        f"take a new base of {effect.shard}"
    )
    return BaseNeeded(effect.shard, effect.order, EMPTIED, detail, effect.schema)
