"""Which tables does the page show?  Those that need a person first; the rest by name and state.

The head counts all of them, whatever is shown.  Pure.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from monitor.board import TableView

AT_ONCE = 60  # of thousands; each is a kilobyte and a half


@dataclass(frozen=True, slots=True)
class TableQuestion:
    """Tables whose name holds *text*, in *state* if one is named; *page* counts from 1."""

    text: str = ""
    state: str = ""
    page: int = 1


@dataclass(frozen=True, slots=True)
class ShownTables:
    """*views* of one page, out of *found* that answer the question; *states* count all tables.

    ``before`` and ``after`` are the addresses of the pages beside it, empty where there is none.
    """

    views: tuple[TableView, ...]
    found: int
    states: Mapping[str, int]
    first: int = 1
    before: str = ""
    after: str = ""


def shown(
    views: Sequence[TableView], state: Callable[[TableView], str], asked: TableQuestion
) -> ShownTables:
    """One page of *views*, which come in the order of the page; *state* is what each counts as."""
    states = [state(view) for view in views]
    text = asked.text.strip().lower()
    found = [
        view
        for view, own in zip(views, states, strict=True)
        if asked.state in ("", own) and text in view.table.name.lower()
    ]
    last = max(1, -(-len(found) // AT_ONCE))
    page = min(max(asked.page, 1), last)
    first = (page - 1) * AT_ONCE
    return ShownTables(
        views=tuple(found[first : first + AT_ONCE]),
        found=len(found),
        states=Counter(states),
        first=first + 1,
        before=_address(asked, page - 1) if page > 1 else "",
        after=_address(asked, page + 1) if page < last else "",
    )


def _address(asked: TableQuestion, page: int) -> str:
    words = {"text": asked.text, "state": asked.state, "page": str(page)}
    return "?" + urlencode({name: word for name, word in words.items() if word})
