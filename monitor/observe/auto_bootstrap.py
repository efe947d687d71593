"""Requests a new base for tables that only a base can heal, where the config allows it.

This needs `how: auto`. It covers a table with a gap, a table without a base, and a table that a
statement holds until it has one. A quarantined change is left to operators, because its writer
would write the next one the same way. A problem that no base can heal is left to them too, such
as collector lists that leave a table out.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from fnmatch import fnmatchcase
from uuid import uuid4

import structlog

from checks.model import Reason
from monitor.board import Board, TableView
from monitor.config.model import RebootstrapRule
from monitor.store.requests import RereadRequest, RereadRequests
from pipeline.errors import ConfigError
from pipeline.model import Origin, Stage

WHO = "sluice"
HEALED = frozenset({"gap", "no_base", "schema", "created", "emptied", "statement", "renamed"})
"""Reason codes that a new base ends."""
ELSEWHERE = ("lists:", "hidden:", "again:")
"""Gaps of tables that the collector does not send, or reads again automatically."""
log = structlog.get_logger(__name__)


@dataclass(eq=False)
class AutoBootstrap:
    """Asks for bases as people do, and by the same way.

    A table is looked at for as long as its rule says first: what heals automatically needs no base.
    That time is forgotten at a restart, what was tried is not.
    """

    rules: tuple[RebootstrapRule, ...]
    rereads: RereadRequests
    board: Callable[[], Board]
    clock: Callable[[], datetime]
    _since: dict[str, datetime] = field(default_factory=dict)

    def look(self) -> None:
        """Ask for what is due."""
        if not any(rule.how == "auto" for rule in self.rules):
            return
        board, now = self.board(), self.clock()
        if board.stale(now):
            return
        needing = dict(self._needing(board))
        self._since = {name: self._since.get(name, now) for name in needing}
        due = {n: one for n, one in needing.items() if now - self._since[n] >= one[0].after}
        if not due:
            return
        going = self.rereads.open()
        taken, own = {one.table for one in going}, sum(one.who == WHO for one in going)
        tried = self._tried()
        for name, (rule, why) in due.items():
            last = tried.get(name)
            rests = last is not None and now - last < rule.again
            if name in taken or rests or own >= rule.at_once:
                continue
            own += self._ask(name, why, now)

    def _needing(self, board: Board) -> Iterator[tuple[str, tuple[RebootstrapRule, str]]]:
        starting = {name for one in board.firsts if one.stuck is None for name in one.tables}
        for view in board.tables:
            name = view.table.name
            rule = next((one for one in self.rules if fnmatchcase(name, one.tables)), None)
            if rule is None or rule.how != "auto" or name in starting:
                continue
            reasons = [one for one in _reasons(view) if _is_healed(one)]
            if reasons:
                yield name, (rule, f"{reasons[0].code}: {reasons[0].text}")

    def _tried(self) -> Mapping[str, datetime]:
        """Table -> when the service asked for a base of it last, as far as it is remembered."""
        own = [one for one in self.rereads.list(limit=1000) if one.who == WHO]
        bases = [one for one in own if one.wish.origin is Origin.SNAPSHOT]
        return {one.table: one.ended or one.at for one in reversed(bases)}

    def _ask(self, name: str, why: str, now: datetime) -> bool:
        reason = f"rebootstrap: auto; {why}"
        try:
            self.rereads.add(RereadRequest(uuid4().hex[:12], name, reason, WHO, now))
        except ConfigError:  # somebody asked for something of it just now
            return False
        log.warning("rebootstrap", table=name, why=why)
        return True


def _reasons(view: TableView) -> Sequence[Reason]:
    return view.recent[Stage.MIRROR].reasons


def _is_healed(reason: Reason) -> bool:
    return reason.code in HEALED and not reason.id.startswith(ELSEWHERE)
