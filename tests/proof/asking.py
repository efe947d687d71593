"""Asks the gate while things die, and keeps every answer.

Each cut is asked for until it is READY, as by a waiting job: answers at the edge, where NOT_READY
turns into READY, are the ones most likely to be wrong.
"""

import json
import random
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx

from demo.shop.schema import MIRRORS
from demo.web import LOCAL

STAGES = ("landed", "mirror")
AGES = (0.0, 2.0, 5.0, 15.0)  # seconds that a new cut may lie back
PAUSE = 0.5  # seconds between two passes
NEW = 4  # passes between two new cuts
PICKED = 8  # waiting questions of each stage that one pass asks again
LATE = timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class Question:
    """Asks whether *table* is ready for *stage* up to *cut*."""

    stage: str
    table: str
    cut: datetime


@dataclass(frozen=True, slots=True)
class Decision:
    """One answer of the gate; ``certificate`` and ``version`` are there if it is READY."""

    question: Question
    asked: datetime
    answered: datetime
    state: str
    certificate: str | None = None
    version: int | None = None
    reasons: tuple[str, ...] = ()

    @property
    def ready(self) -> bool:
        """Whether a job may go on."""
        return self.state == "ready"


def questions(cut: datetime) -> list[Question]:
    """Every table and stage, for one *cut*."""
    return [Question(stage, table, cut) for stage in STAGES for table in MIRRORS]


@dataclass(eq=False)
class Asker:
    """Keeps ``decisions``; ``unanswered`` counts calls to a service that was not there."""

    url: str
    rng: random.Random
    decisions: list[Decision] = field(default_factory=list)
    unanswered: Counter[str] = field(default_factory=Counter)
    _waiting: list[Question] = field(default_factory=list)
    _done: list[Question] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self, stop: threading.Event) -> None:
        """Ask until *stop*; at most 40 questions a second."""
        with httpx.Client(trust_env=False) as http:
            passes = 0
            while not stop.wait(PAUSE):
                if passes % NEW == 0:
                    age = timedelta(seconds=self.rng.choice(AGES))
                    self._waiting += questions(datetime.now(UTC) - age)
                    self._ask_all(http, self._waiting[-2 * len(MIRRORS) :])
                self._ask_all(http, self._edge())
                self._ask_all(http, self.rng.sample(self._done, min(1, len(self._done))))
                passes += 1

    def ask(self, wanted: Iterable[Question]) -> list[Question]:
        """Ask each once, from any thread; those that are not READY."""
        return [q for q in wanted if not ((got := self._ask(LOCAL, q)) and got.ready)]

    def answer(self, question: Question) -> Decision | None:
        """What the gate says to one, from any thread; None if nobody answers."""
        return self._ask(LOCAL, question)

    def save(self, path: Path) -> None:
        """Leave what was decided as JSON lines."""
        with path.open("w", encoding="utf-8") as file:
            for each in self.decisions:
                file.write(json.dumps(asdict(each), default=str) + "\n")

    def _edge(self) -> list[Question]:
        """The waiting questions with the earliest cuts, of each stage."""
        return [
            question
            for stage in STAGES
            for question in [q for q in self._waiting if q.stage == stage][:PICKED]
        ]

    def _ask_all(self, http: httpx.Client, asked: Sequence[Question]) -> None:
        ready = {q for q in asked if (got := self._ask(http, q)) and got.ready}
        self._done += [q for q in self._waiting if q in ready]
        self._waiting = [q for q in self._waiting if q not in ready]

    def _ask(self, http: httpx.Client, question: Question) -> Decision | None:
        asked = datetime.now(UTC)
        params = {
            "table": question.table,
            "stage": question.stage,
            "cut": question.cut.isoformat(),
        }
        try:
            answer = http.get(f"{self.url}/v1/gate", params=params, timeout=LATE.total_seconds())
        except httpx.HTTPError as error:
            self.unanswered[type(error).__name__] += 1
            return None
        if answer.status_code not in {httpx.codes.OK, httpx.codes.NOT_FOUND, httpx.codes.CONFLICT}:
            self.unanswered[f"{answer.status_code}: {answer.text[:200]}"] += 1
            return None
        decision = _decision(question, asked, answer)
        with self._lock:
            self.decisions.append(decision)
        return decision


def _decision(question: Question, asked: datetime, answer: httpx.Response) -> Decision:
    """Read the answer; the status alone is what a job goes by, so it decides what READY is."""
    told = answer.json()
    table = told["tables"][0] if told["tables"] else {}
    ready = answer.status_code == httpx.codes.OK
    return Decision(
        question=question,
        asked=asked,
        answered=datetime.now(UTC),
        state="ready" if ready else told["state"],
        certificate=table.get("certificate"),
        version=table.get("version"),
        reasons=tuple(reason["code"] for reason in table.get("reasons", ())),
    )
