"""What does a READY answer rest on?  Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pipeline.model import Fence, Ordering


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a certificate rests on.

    ``fences`` stand for the cut, one per source; ``batch`` is the newest landed and ``offsets``
    its W where the table's own changes arrive; ``version`` is the mirror's and ``applied`` its
    batch, both None for `landed`; ``mirror`` is the id of its table.  ``life`` is that in which
    the batch was landed: a change log that lost it may have given its number to another.
    For `image` they are those of the image: the batch that proved it, and nothing applied; ``path``
    is the folder that it is written out to, if it is.  For `copy` version and batch are those that
    the ``copy`` of this name holds.  ``ordering`` is what the orders of the
    table's changes rest on: less than places in the log proves less.
    """

    fences: tuple[Fence, ...]
    batch: int
    version: int | None = None
    applied: int | None = None
    offsets: Mapping[str, int] = field(default_factory=dict)
    mirror: str = ""
    life: int | None = None
    path: str = ""
    copy: str = ""
    ordering: Ordering = Ordering.LOG
