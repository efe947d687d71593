"""F34: whatever state can be reached, wherever it is shown, there is a reason beside it."""

import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from checks.model import Outcome, Reason, Ruling, Verdict
from monitor.commands import explain, gate, status
from monitor.web import metrics
from pipeline.checkpoint import Checkpoint, Gap, OpenSnapshot, Quarantine
from pipeline.collectors.collector import CollectorState
from pipeline.errors import HeldError, ProofError, SluiceError, UnreachableError
from pipeline.model import Account, Missing, Order, Shard
from pipeline.reports import Hold, LandingReport, MergeFailure, MergeReport
from tests.monitor.rig import ORDERS, SHARDS, USERS, Rig

WORDLESS = ("", "  ")
Step = Callable[["Walk"], None]


class Walk:
    """A rig to which one thing after another happens, most of it without a word why."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self.rig = Rig(folder)
        self.count = 0

    @property
    def word(self) -> str:
        """What an error says: nothing, mostly."""
        return self.chance.choice((*WORDLESS, "why"))

    @property
    def table(self) -> str:
        return self.chance.choice((USERS, ORDERS))

    def well(self) -> None:
        rig = self.rig
        rig.collector.silent = rig.lake.silent = rig.dictionary.silent = rig.schema.silent = False
        rig.collector.trouble = CollectorState("running")
        rig.facts.broken.clear()
        rig.hold_registry.landed(LandingReport("main", 1, 0, rig.now, timedelta()), rig.now)
        free = [MergeReport(t, 1, 1, Account(), rig.now, timedelta()) for t in SHARDS.values()]
        rig.hold_registry.applied(free, rig.now)
        rig.round()

    def collector_silent(self) -> None:
        self.rig.collector.silent = True

    def collector_fails(self) -> None:
        self.rig.collector.trouble = CollectorState("failed", self.word)

    def no_offset(self) -> None:
        self.rig.collector.position = Missing(self.word)

    def lake_silent(self) -> None:
        self.rig.lake.silent = True

    def source_down(self) -> None:
        self.rig.facts.broken["source:shop"] = str(UnreachableError(self.word))

    def spark_down(self) -> None:
        self.rig.facts.broken["worker"] = str(UnreachableError(self.word))

    def table_held(self) -> None:
        codes = ("schema", "no_key", "unreachable", "foreign_write", "unacknowledged")
        refusal = MergeFailure.of(HeldError(self.chance.choice(codes), self.word))
        turn = MergeReport(self.table, 1, 1, Account(), self.rig.now, timedelta())
        self.rig.hold_registry.applied([replace(turn, hold=refusal.hold(turn.table))], self.rig.now)

    def source_held(self) -> None:
        hold = Hold("disorder:shop:t:0:5@1", "source:shop", "disorder", self.word)
        landed = LandingReport("main", None, 0, self.rig.now, timedelta(), holds=(hold,))
        self.rig.hold_registry.landed(landed, self.rig.now)

    def lane_held(self) -> None:
        hold = Hold("mark_lost:main", "", "mark_lost", self.word)
        self.rig.hold_registry.lane_held(hold, ("shop",), self.rig.now)

    def gap(self) -> None:
        tables = self.chance.choice(((), (USERS,)))
        gap = Gap("shop.shop.users:0:5@1", "shop.shop.users", 0, 5, 9, self.word, tables)
        self.checkpoint(gaps={gap.id: replace(gap, batch=1)})

    def quarantine(self) -> None:
        own = Quarantine(USERS, 1, 2, ("t:0:5@1",), ("shop/shop.users",))
        everyone = Quarantine(None, 1, 1, ("t:0:5@1",))
        self.checkpoint(
            quarantine=self.chance.choice(({"shop/shop.users": own}, {"topic:shop": everyone}))
        )

    def snapshot(self) -> None:
        shard = Shard("shop", self.table)
        mark = self.rig.lake.newest
        bases = dict(mark.bases) if mark else {}
        bases.pop(shard, None)
        self.checkpoint(bases=bases, snaps={shard: OpenSnapshot(Order(1, 1, 0), 0, 5)})

    def base_gone(self) -> None:
        mark = self.rig.lake.newest
        self.checkpoint(bases=dict(list(mark.bases.items())[:1]) if mark else {})

    def mirror_gone(self) -> None:
        self.rig.lake.mirrors.pop(self.table, None)

    def intruded(self) -> None:
        if USERS in self.rig.lake.mirrors:
            self.rig.intrude(USERS)

    def probe(self) -> None:
        outcome = self.chance.choice((Outcome.FAIL, Outcome.UNKNOWN, Outcome.PASS))
        code = self.chance.choice(("", "unreachable", "not_reached"))
        check = self.chance.choice(("range_counts", "max_id"))
        fences = self.rig.fences.of("shop")[-1:]
        ruling = Ruling(outcome, self.word, code)
        self.rig.recorder.tell([Verdict(self.table, check, ruling, self.rig.now, fences)])

    def unaccounted(self) -> None:
        account = Account(read=3, applied=1)
        self.rig.store.accounts.add("main", self.table, 900 + self.count, account, self.rig.now)

    def schema_silent(self) -> None:
        self.rig.schema.silent = True
        self.rig.second(86_401)

    def sources_silent(self) -> None:
        self.rig.dictionary.silent = True

    def time_passes(self) -> None:
        self.rig.second(self.chance.choice((5, 61, 1000)))

    def beats_alone(self) -> None:
        self.rig.write_heartbeat()

    def lands_alone(self) -> None:
        if self.rig.fences.of("shop"):
            self.rig.land()

    def checkpoint(self, **changed: Any) -> None:
        """Change the newest mark, if there is one, in its next batch."""
        newest: Checkpoint | None = self.rig.lake.newest
        if newest is not None:
            self.rig.lake.newest = replace(newest, batch=newest.batch + 1, **changed)


STEPS: Sequence[Step] = [
    value
    for name, value in vars(Walk).items()
    if callable(value) and name not in ("__init__", "mark")
]


def silent(rig: Rig) -> Iterator[str]:
    """Every place where a state stands without a reason."""
    yield from _api(rig)
    yield from _page(rig)
    yield from _metrics(rig)
    yield from _find_mute_messages(rig)


def _api(rig: Rig) -> Iterator[str]:
    for row in rig.client.get("/v1/tables").json():
        for when in ("day", "recent"):
            for stage, answer in row[when].items():
                yield from _answer(f"tables {row['table']} {when} {stage}", answer)
        yield from _hops(row)
        for stage in ("landed", "mirror"):
            url = f"/v1/readiness/{row['table']}?stage={stage}&cut=now"
            yield from _find_mute_answers(rig.client.get(url).json())
    status_, answer = rig.ask(USERS, ORDERS, cut="now")
    if status_ not in (200, 400):
        yield from (("gate says nothing",) if not (answer["tables"] or answer.get("why")) else ())
        yield from (f"gate: {line}" for line in gate.answer_lines(answer) if _mute(line))
    for one in rig.client.get("/v1/incidents").json():
        yield from (f"incident {one['about']}" for _ in "x" if not one["reason"].strip())
        yield from ("incident line" for _ in "x" if _mute(status.incident_line(one)))
    for one in rig.client.get("/v1/verdicts", params={"limit": 1000}).json():
        if one["outcome"] != "pass" and not one["reason"].strip():
            yield f"verdict {one['table']} {one['check']}"
    service = rig.client.get("/v1/service").json()
    yield from (p["name"] for p in service["parts"] if not p["works"] and not p["detail"].strip())
    yield from ("first line" for one in service["first"] if _mute(status.summary_line(one)))
    if not service["first"]:
        yield "nothing stands first"


def _find_mute_answers(answer: dict[str, Any]) -> Iterator[str]:
    if "hops" in answer:
        yield from _answer(f"readiness {answer['table']}", answer)
        yield from _hops(answer)
    yield from (f"explain: {line}" for line in explain.explanation_lines(answer) if _mute(line))


def _answer(where: str, answer: dict[str, Any]) -> Iterator[str]:
    told = [one for one in answer["reasons"] if one["text"].strip() and one["code"]]
    if answer["state"] != "ready" and (not told or len(told) < len(answer["reasons"])):
        yield f"{where}: {answer['state']} {answer['reasons']}"


def _hops(answer: dict[str, Any]) -> Iterator[str]:
    for hop in answer["hops"]:
        if hop["lag_seconds"] is None and not (hop["why"] or "").strip():
            yield f"hop {hop['hop']} of {answer['table']}"


def _page(rig: Rig) -> Iterator[str]:
    page = rig.client.get("/").text
    for card in re.findall(r'<article class="card table".*?</article>', page, re.DOTALL):
        state = re.search(r'data-state="(\w+)"', card)
        if state and state[1] != "ready" and not re.search(r"<li>\s*\S", card):
            yield f"page: {state[1]}"
    yield from (f"page: {li}" for li in re.findall(r"<li[^>]*>\s*</li>", page))
    for card in re.findall(r'<article class="card incident.*?</article>', page, re.DOTALL):
        if re.search(r"</div>\s*<div>\s*</div>", card):
            yield "page: an incident"


def _metrics(rig: Rig) -> Iterator[str]:
    board = rig.current.board
    said = {labels[:2] for labels, _ in metrics.WHY.rows(board, rig.now) if labels[2]}
    for (table, stage, state), value in metrics.READINESS.rows(board, rig.now):
        if value and state != "ready" and (table, stage) not in said:
            yield f"metric: {table} {stage} {state}"


def _find_mute_messages(rig: Rig) -> Iterator[str]:
    for letter in rig.store.outbox.waiting("log", 10_000):
        for line in (letter.message.subject, *letter.message.body.splitlines()):
            if _mute(line):
                yield f"letter: {letter.message.subject}"


def _mute(line: str) -> bool:
    """Whether a line ends where its reason should stand."""
    return not line.strip() or re.search(r":\s*($|\(|;)", line.strip()) is not None


def walk(folder: Path, seed: int, steps: int) -> list[str]:
    """Faults found on one walk, each with what had happened."""
    one = Walk(folder, seed)
    found, trail = [], []
    for number in range(steps):
        one.count = number
        step = one.chance.choice((*STEPS, Walk.well))
        trail.append(step.__name__)
        step(one)
        one.rig.second()
        one.rig.cycle.watch()
        found += [f"{where} after {' '.join(trail)}" for where in silent(one.rig)]
    one.rig.close()
    return found


@pytest.mark.parametrize("seed", range(3))
def test_f34_no_state_that_can_be_reached_is_without_a_reason(tmp_path: Path, seed: int) -> None:
    assert walk(tmp_path, seed, steps=10) == []


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 160))
def test_f34_nor_is_any_on_a_long_walk(tmp_path: Path, seed: int) -> None:
    assert walk(tmp_path, seed, steps=40) == []


@pytest.mark.parametrize("text", WORDLESS)
@pytest.mark.parametrize("kind", [SluiceError, UnreachableError, ProofError])
def test_f34_an_error_without_a_word_names_itself(kind: type[SluiceError], text: str) -> None:
    assert str(kind(text)) == f"{kind.__name__}, without a message; see the log"


@pytest.mark.parametrize("text", WORDLESS)
def test_f34_what_is_held_missing_or_ruled_without_a_word_says_so(text: str) -> None:
    said = "without a message; see the log"

    assert HeldError("schema", text).detail == f"schema, {said}"
    assert Hold("x", "t", "schema", text).detail == f"schema, {said}"
    assert Missing(text).why == f"no answer, {said}"
    assert Ruling(Outcome.UNKNOWN, text, "odd").reason == f"odd, {said}"
    assert Ruling(Outcome.FAIL, text).reason == f"fail, {said}"
    assert Reason("late", text).text == f"late, {said}"
