"""Do alerts reach people?  A channel that does not take them, and letters that were given up.

A letter that was given up is something that nobody was told: it counts until a person has waived
it, and with it all that were given up before.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

from alerts.outbox import ChannelHealth
from monitor.board import ChannelView
from monitor.store.outbox import Pile, StoredOutbox

PATIENCE = timedelta(minutes=5)  # a rate limit or a digest may hold a letter for a minute or two


def given_up_id(channel: str, number: int | str) -> str:
    """What `sluice waive` takes for the letters to *channel* given up so far."""
    return f"dead_letters:{channel}:{number}"


def channel_views(
    letters: StoredOutbox, names: Iterable[str], waived: frozenset[str], now: datetime
) -> tuple[ChannelView, ...]:
    """Every channel of *names*, and those that letters wait for or were given up for."""
    undone = {name for name, state in letters.counts() if state != "delivered"}
    return tuple(_view(letters, name, waived, now) for name in sorted({*names, *undone}))


def _view(letters: StoredOutbox, name: str, waived: frozenset[str], now: datetime) -> ChannelView:
    standing, pile = letters.standing(name), letters.pile(name, _seen(name, waived))
    ailments = "; ".join(_ailments(name, standing, pile, now))
    return ChannelView(name, pile.waiting, pile.dead, standing.failures, ailments)


def _seen(name: str, waived: frozenset[str]) -> int:
    prefix = given_up_id(name, "")
    ends = [one.removeprefix(prefix) for one in waived if one.startswith(prefix)]
    return max((int(end) for end in ends if end.isdecimal()), default=0)


def _ailments(name: str, standing: ChannelHealth, pile: Pile, now: datetime) -> Iterator[str]:
    if standing.failures:
        yield f"sendings that failed in a row: {standing.failures}, the last: {standing.why}"
    elif pile.since is not None and now - pile.since > PATIENCE:
        yield f"a letter waits since {pile.since.isoformat(timespec='seconds')}"
    if pile.dead:
        waiver = given_up_id(name, pile.last)
        yield f"letters given up: {pile.dead}, the last: {pile.why}; once read, waive {waiver}"
