"""What does a lane's newest mark say?  Put together from the texts of its markers.

A text tells only what its batch changed, so a hole before it would go unseen: every batch from
the newest full text on must be there, once.  Pure.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from pipeline.checkpoint import FULL_EVERY, Mark, MarkDelta
from pipeline.errors import HeldError

Texts = Sequence[tuple[int, str]]


def replay(texts: Iterable[tuple[int, str]], before: Mark | None = None) -> Mark:
    """The mark after the last of *texts*: (batch, text), in any order, each batch once.

    It grows from *before*, the mark of the batch before the first text; without it, from the
    newest full text among them.

    Raises:
        HeldError: ``mark_lost`` if a batch is missing or there twice, or none tells everything.
    """
    ordered: Texts = sorted(texts)
    mark = before
    if ordered:
        first = MarkDelta.loads(ordered[-1][1]).changed.full
        if mark is None or first > mark.batch:
            mark, ordered = _full(ordered, first)
    if mark is None:
        raise HeldError("mark_lost", "there is no marker; restore it, or begin with an empty lake")
    for batch, text in ordered:
        if batch != mark.batch + 1:
            raise HeldError("mark_lost", _hole(mark.batch + 1, batch))
        mark = mark.advanced(text)
    return mark


def _full(ordered: Texts, first: int) -> tuple[Mark, Texts]:
    """The full mark of batch *first*, and the texts after it."""
    found = [text for batch, text in ordered if batch == first]
    if len(found) != 1:
        detail = f"batch {first} has {len(found)} markers that tell everything"
        raise HeldError("mark_lost", f"{detail}; restore it, or begin with an empty lake")
    return Mark.loads(found[0]), [(batch, text) for batch, text in ordered if batch > first]


def _hole(expected: int, found: int) -> str:
    what = f"the marker of batch {expected} is not there, that of batch {found} is"
    if found < expected:
        what = f"batch {found} has more than one marker"
    return f"{what}; restore the change log, or begin with an empty lake"


@dataclass(eq=False)
class MarkReader:
    """The mark of any batch of one lane, asked for in rising order; reads only what is new.

    ``texts`` reads (batch, text) of the lane's markers in batches after the one it is given.
    """

    texts: Callable[[int], Iterable[tuple[int, str]]]
    _known: Mark | None = field(default=None, repr=False)

    def at(self, batch: int) -> Mark:
        """The mark of *batch*, which was the newest one once; nothing is read twice.

        Raises:
            HeldError: ``mark_lost`` if one of the markers it rests on is not there.
        """
        known = self._known
        if known is not None and known.batch == batch:
            return known
        if known is None or not known.batch < batch <= known.batch + FULL_EVERY:
            mark = replay(self._whole(batch))
        else:
            mark = replay(self._after(known.batch, batch), known)
        if mark.batch != batch:
            detail = f"batch {batch} has no marker, the newest is that of {mark.batch}"
            raise HeldError("mark_lost", f"{detail}; restore it, or begin with an empty lake")
        self._known = mark
        return mark

    def _whole(self, batch: int) -> Texts:
        """The texts from the newest full one on, which the last one names."""
        last = self._after(batch - 1, batch)
        if len(last) != 1:
            detail = f"batch {batch} has {len(last)} markers"
            raise HeldError("mark_lost", f"{detail}; restore it, or begin with an empty lake")
        first = MarkDelta.loads(last[0][1]).changed.full
        return last if first == batch else self._after(first - 1, batch)

    def _after(self, since: int, until: int) -> Texts:
        return [(batch, text) for batch, text in self.texts(since) if batch <= until]
