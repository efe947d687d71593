"""What is to be read again, and how far is it, as the mark remembers it?  Pure."""

from dataclasses import dataclass

from pipeline.model import Order, Origin


@dataclass(frozen=True, slots=True)
class KeyStretch:
    """Rows above those of the stretch before and not above ``until``; None is without end.

    ``read`` is the key up to which they are landed, at first the end of the stretch before; both
    are texts that only the source reads.
    """

    until: tuple[str, ...] | None = None
    read: tuple[str, ...] | None = None
    ended: bool = False


@dataclass(frozen=True, slots=True)
class Reread:
    """A shard that is read again from its source: its rows get the place ``order`` in its log.

    ``id`` tells one from another.  ``identity`` is the server's.  ``since`` is the first batch
    that began after ``order`` was noted, ``rows`` how many are landed.  ``key`` is what it is read
    along, empty until all below ``order`` has landed: till then nobody knows the table as it was
    there.  ``closing`` is where the log ended when all was read.  ``done`` is the batch in which it
    was complete.  One that was given up, and has left rows, is done without an ``id``: its rows
    tell nothing from above ``closing``.  ``first`` is the lowest order of those before it.
    """

    id: str
    origin: Origin
    order: Order
    identity: str
    since: int
    stretches: tuple[KeyStretch, ...] = (KeyStretch(),)
    rows: int = 0
    closing: Order | None = None
    done: int | None = None
    key: tuple[str, ...] = ()
    first: Order | None = None

    @property
    def lowest(self) -> Order:
        """Its rows, and those of all before it, tell of the table at this order or later."""
        return self.first or self.order

    @property
    def read(self) -> bool:
        """Whether all of its rows are landed."""
        return all(one.ended for one in self.stretches)


@dataclass(frozen=True, slots=True)
class RereadOrder:
    """What somebody wishes to have read again."""

    id: str
    table: str
    origin: Origin = Origin.SNAPSHOT


@dataclass(frozen=True, slots=True)
class RereadState:
    """How far an order is in one shard: ``rows`` are landed; ``done`` is the batch it ended in.

    ``why`` says what it waits for, or why it cannot go on; ``refused`` if it never will.
    """

    id: str
    table: str
    shard: str
    rows: int = 0
    done: int | None = None
    why: str = ""
    refused: bool = False
