"""Answers gate requests from fresh samples, and stores certificates before any READY.

Each table gets one answer, and the gravest one is the answer to the whole request. One table
that is not ready closes the gate.

Stage IMAGE is rejected for a table without images, and COPY for a table without that copy.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from checks.proof import prove
from checks.readiness import Question, Readiness, ReadinessState, Rule
from monitor.board import GRAVITY
from monitor.display_text import similar_names
from monitor.observe.assessor import Assessor
from monitor.observe.recorder import VerdictRecorder
from monitor.observe.sampler import Sampling, Watcher
from monitor.observe.tables import MergeDemand, TableRegistry
from pipeline.clocks import parse_cut
from pipeline.errors import ConfigError, UnknownNameError
from pipeline.model import Stage


def validate_stage(
    tables: Sequence[str],
    stage: Stage,
    copy: str,
    published: Callable[[str], bool],
    copies: Callable[[str], tuple[str, ...]],
    *,
    verified: bool = False,
) -> str:
    """Return why *stage* cannot be answered for *tables*; empty if it can.

    *published* says whether a table has images. *copies* returns the names of its copies.
    """
    if verified and stage is not Stage.MIRROR:
        return (
            f"rows of stage {stage} are not compared; ask for stage mirror, or without `verified`"
        )
    if copy and stage is not Stage.COPY:
        return f"copy {copy!r} is asked for at stage {stage}; ask for stage copy, or name no copy"
    for name in tables:
        if stage is Stage.IMAGE and not published(name):
            return f"no images are made of {name}; name it in `publish`"
        if stage is Stage.COPY and copy not in (known := copies(name)):
            fix = f"known: {', '.join(known)}" if known else "name it in `copies`"
            needed = "stage copy needs `copy`, the name of a copy"
            return f"{name} has no copy {copy!r}; {fix}" if copy else f"{needed}; {fix}"
    return ""


FRESH = timedelta(seconds=1)
GateQuestion = tuple[tuple[str, ...], datetime, Stage, str, bool]
"""Tables, cut, stage, name of a copy or empty, and whether rows must be verified."""
CLOSED = (ReadinessState.BLOCKED, ReadinessState.REVOKED)
OPEN = (ReadinessState.NOT_READY, ReadinessState.UNKNOWN)  # states that a merge may change


@dataclass(frozen=True, slots=True)
class Decision:
    """The answers in the order of the request; empty while no table is known yet."""

    answers: tuple[Readiness, ...]

    @property
    def state(self) -> ReadinessState:
        """The gravest state of all answers; UNKNOWN without tables."""
        states = [answer.state for answer in self.answers]
        return min(states, key=GRAVITY.index, default=ReadinessState.UNKNOWN)

    def status(self, *, patient: bool = False) -> int:
        """Return 200 ready, 404 not yet or unknown, 409 blocked or revoked (404 if *patient*)."""
        if self.state is ReadinessState.READY:
            return 200
        return 409 if self.state in CLOSED and not patient else 404


@dataclass(eq=False)
class Gate:
    """Answers any number of clients at once; tables that they wait for are merged early."""

    watcher: Watcher
    roster: TableRegistry
    assessor: Assessor
    recorder: VerdictRecorder
    zone: ZoneInfo
    clock: Callable[[], datetime]
    published: Callable[[str], bool] = lambda _: False
    wanted: MergeDemand = field(default_factory=MergeDemand)
    copies: Callable[[str], tuple[str, ...]] = lambda _: ()

    def decide(
        self,
        tables: Sequence[str],
        cut: datetime,
        stage: Stage,
        copy: str = "",
        verified: bool = False,
    ) -> Decision:
        """Answer now for all *tables*; if *verified*, READY requires that rows were compared.

        Raises:
            UnknownNameError: a table is not known; the message lists similar known ones.
            ConfigError: a table does not have the requested stage, because it has no images or no
                such copy.
        """
        why = validate_stage(tables, stage, copy, self.published, self.copies, verified=verified)
        look = self.watcher.look(FRESH, tables)
        known = [(name, self.roster.table(name)) for name in tables]
        unknown = [name for name, table in known if table is None]
        if unknown and self.roster.known:
            names = [table.name for table in self.roster.tables()]
            raise UnknownNameError(
                f"no table {unknown[0]!r}; known: {similar_names(unknown[0], names)}"
            )
        if why:
            raise ConfigError(why)
        if unknown:
            return Decision(())
        with self.recorder.deciding:
            facts = self.assessor.facts(self.clock())
            answers = [
                self.assessor.decided(Question(stage, cut, copy, verified), table, look, facts)
                for _, table in known
                if table is not None
            ]
            self.assessor.certify(answers)
        if stage is not Stage.LANDED:
            self.wanted.want([one.table for one in answers if one.state in OPEN], cut)
            self.wanted.meet([one.table for one in answers if one.ready], cut)
        return Decision(tuple(answers))

    def hopeful(self, questions: Sequence[GateQuestion]) -> list[GateQuestion]:
        """Return those of *questions* whose tables may have landed up to the cut.

        No other question can be READY, unless the sum rule decides alone: then all are returned.
        It takes no lock, so it delays no decision, and it reads no mirror.
        """
        if self.assessor.policy.rule is Rule.SUM:
            return list(questions)
        look, now = self.watcher.look(FRESH, ()), self.clock()
        return [asked for asked in questions if self._landed(asked, look, now)]

    def _landed(self, asked: GateQuestion, look: Sampling, now: datetime) -> bool:
        names, cut, *_ = asked
        known = [table for name in names if (table := self.roster.table(name)) is not None]
        proofs = (prove(one, Stage.LANDED, cut, look.samples(one), now) for one in known)
        return all(proof.holds is not False for proof in proofs)

    def cut(self, text: str | None, name: str = "cut") -> datetime:
        """Parse *text*, the parameter *name*, as an instant; None means the end of yesterday.

        Raises:
            ConfigError: it is neither a date nor an instant.
        """
        now = self.clock()
        if text is None:
            text = (now.astimezone(self.zone).date() - timedelta(days=1)).isoformat()
        return parse_cut(text, self.zone, now, name)
