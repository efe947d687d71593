"""How far is the re-reading of a shard, as the mark remembers it?  Pure."""

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
    that began after ``order`` was noted, ``rows`` how many are landed.  ``closing`` is where the
    log ended when all was read.  ``done`` is the batch in which it was complete.
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

    @property
    def read(self) -> bool:
        """Whether all of its rows are landed."""
        return all(one.ended for one in self.stretches)
