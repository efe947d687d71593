"""How is a history kept short and still answers nearly as well?  The older, the wider apart.

What is left out makes an answer later, never wrong; how much later is a fixed share of its age, so
that a question about this morning is never answered with the afternoon.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def spaced(
    history: Sequence[T], place: Callable[[T], float], *, share: int, limit: int
) -> tuple[T, ...]:
    """Of *history*, ascending by *place*: all of it up to *limit*, else what must not be left out.

    Between two that are kept lies at most the *share*-th part of their distance to the newest,
    unless nothing was there.  The newest and the oldest are always kept.  Where that is still more
    than *limit*, every second of the older half goes.
    """
    if len(history) <= limit:
        return tuple(history)
    newest, kept = place(history[-1]), [history[-1]]
    for number in range(len(history) - 2, 0, -1):
        gap = place(kept[-1]) - place(history[number - 1])
        if gap * share > newest - place(history[number - 1]):
            kept.append(history[number])
    found = (history[0], *reversed(kept))
    half = len(found) // 2
    return found if len(found) <= limit else (*found[:half:2], *found[half:])
