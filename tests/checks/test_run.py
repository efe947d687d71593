import ast
import dataclasses
import importlib
import inspect
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

import pytest
from structlog.testing import capture_logs

from checks import probes
from checks.model import FailKind, NotYet, Outcome, Ruling, Undecided, Verdict
from checks.run import Check, Probe, find_probe, is_whole, kind_of, probe_names, run_probe
from checks.world import World
from pipeline.errors import ConfigError, ProofError, UnreachableError
from pipeline.model import Fence, Op, Shard, Table
from pipeline.schema.model import TableSchema
from tests.checks.world_fake import ONE, START, TABLE, TWO, FakeWorld

IMPURE = {"datetime.now", "time.time", "random", "os.environ", "world", "open", "print"}


def test_an_unknown_probe_stops_the_start_and_lists_the_known() -> None:
    with pytest.raises(
        ConfigError,
        match=r"no probe .max_ids. .* the nearest is max_id; known: compl",
    ):
        find_probe("max_ids")


def test_every_file_of_the_folder_is_a_probe() -> None:
    folder = Path(inspect.getfile(probes)).parent
    files = {file.stem for file in folder.glob("*.py")} - {"__init__"}

    assert set(probe_names()) == files
    assert files >= {
        "max_id",
        "offset_keys",
        "range_counts",
        "volatility",
        "completeness",
        "schema",
    }


@pytest.mark.parametrize("name", probe_names())
def test_a_probe_keeps_the_contract(name: str) -> None:
    module = importlib.import_module(f"checks.probes.{name}")
    probe = find_probe(name)

    assert "Cannot detect: " in (module.__doc__ or "")
    assert probe.__doc__
    assert probe.__doc__.startswith("Fail when ")
    made: Any = probe()
    assert dataclasses.is_dataclass(type(made))
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.limit = timedelta()
    assert not {"every", "gating"} & {field.name for field in dataclasses.fields(made)}
    assert made.every > timedelta()
    assert made.limit > timedelta()
    assert isinstance(made.gating, bool)
    assert getattr(module, "NAME", name) == name


def test_the_probes_that_block_a_table_are_those_whose_fail_is_a_loss_or_a_wrong_shape() -> None:
    """A table with a FAIL of any other probe may be READY."""
    assert {name for name in probe_names() if find_probe(name).gating} == {
        "completeness",
        "inversions",
        "offset_keys",
        "range_counts",
        "schema",
    }


@pytest.mark.parametrize("name", probe_names())
def test_judging_needs_nothing_but_the_reading(name: str) -> None:
    tree = ast.parse(inspect.getsource(importlib.import_module(f"checks.probes.{name}")))
    judges = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name == "judge"
    ]

    assert len(judges) == 1
    assert [arg.arg for arg in judges[0].args.args] == ["self", "reading", "past"]
    assert not IMPURE & {ast.unparse(n) for n in ast.walk(judges[0]) if isinstance(n, ast.expr)}


@dataclass(frozen=True, slots=True)
class Number:
    value: float | None = 3.0
    as_of: tuple[Fence, ...] = ()
    ended: datetime | None = None


@dataclass(frozen=True, slots=True)
class Scripted:
    """Fail when told to."""

    answer: Number | NotYet | Undecided | Exception
    takes: timedelta = timedelta()
    limit: timedelta = timedelta(seconds=5)
    says: Outcome = Outcome.FAIL
    every: ClassVar[timedelta] = timedelta(seconds=1)
    gating: ClassVar[bool] = False

    def measure(self, table: Table, world: World) -> Number | NotYet | Undecided:
        assert isinstance(world, FakeWorld)
        world.tick(self.takes)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def judge(self, reading: Number, past: Sequence[float]) -> Ruling:
        return Ruling(self.says, f"{reading.value} after {list(past)}", "told")


def run_scripted(probe: Probe[Number], past: Sequence[float] = ()) -> Verdict | NotYet:
    return run_probe(Check("scripted", probe, TABLE), FakeWorld(), past, run="r1")


def test_a_reading_is_judged_with_its_past() -> None:
    answer = run_scripted(Scripted(Number()), [1.0])

    assert isinstance(answer, Verdict)
    assert (answer.table, answer.check, answer.run) == (TABLE.name, "scripted", "r1")
    assert (answer.ruling.outcome, answer.value) == (Outcome.FAIL, 3.0)
    assert answer.ruling.reason == "3.0 after [1.0]"


@dataclass(frozen=True, slots=True)
class NamesKeys(Scripted):
    """Fail when told to, and name a key."""

    def judge(self, reading: Number, past: Sequence[float]) -> Ruling:
        return Ruling(self.says, "lost", "x", ('["shop","shop_00.orders","7"]',))


@pytest.mark.parametrize(
    ("kind", "parts"),
    [
        pytest.param("bigint", (True,), id="an integer"),
        pytest.param("varchar(20)", (False,), id="a text"),
    ],
)
def test_a_ruling_that_names_keys_tells_which_columns_hold_integers(
    kind: str, parts: tuple[bool, ...]
) -> None:
    world = KeyedWorld()
    world.alter(TWO, id=kind)
    world.catch_up()

    known = run_probe(Check("scripted", NamesKeys(Number()), TABLE), world)
    other_key = run_probe(
        Check("scripted", NamesKeys(Number()), replace(TABLE, key=("part",))), world
    )
    restated = run_probe(
        Check("scripted", NamesKeys(Number()), TABLE.with_standards(("id",))), world
    )

    assert isinstance(known, Verdict)
    assert isinstance(other_key, Verdict)
    assert isinstance(restated, Verdict)
    assert known.ruling.integer_parts == parts
    assert other_key.ruling.integer_parts == ()
    assert restated.ruling.integer_parts == (False,)


class KeyedWorld(FakeWorld):
    """A world whose schemas name the key."""

    def schema(self, shard: Shard) -> TableSchema | None:
        found = super().schema(shard)
        return found and replace(found, key=("id",))


def test_f111_a_fail_that_came_too_late_is_kept() -> None:
    answer = run_scripted(Scripted(Number(), takes=timedelta(seconds=6)))

    assert isinstance(answer, Verdict)
    assert answer.ruling.outcome is Outcome.FAIL


def test_f111_what_is_read_for_the_next_round_counts_against_no_limit() -> None:
    reading = Number(ended=START + timedelta(seconds=4))
    answer = run_scripted(Scripted(reading, takes=timedelta(seconds=60), says=Outcome.PASS))

    assert isinstance(answer, Verdict)
    assert answer.ruling.outcome is Outcome.PASS


@pytest.mark.parametrize("name", ["range_counts", "max_id", "offset_keys", "completeness"])
def test_f111_a_reading_says_when_it_was_complete(name: str) -> None:
    probe: Any = find_probe(name)()
    world = FakeWorld()
    world.commit(*[(Op.CREATE, ONE, id_) for id_ in range(1, 30)])
    world.catch_up()
    found = [probe.measure(TABLE, world)]
    while isinstance(found[-1], NotYet) and len(found) < 9:
        world.catch_up()
        found.append(probe.measure(TABLE, world))

    assert START < found[-1].ended <= world.clock()


@pytest.mark.parametrize(
    ("probe", "kind"),
    [
        pytest.param(Scripted(Number()), FailKind.SUSPECT, id="of somebody's own: a suspicion"),
        pytest.param(find_probe("range_counts")(), FailKind.LOST, id="it compares both ends"),
        pytest.param(find_probe("volatility")(), FailKind.SUSPECT, id="it looks unlike itself"),
    ],
)
def test_f125_the_kind_of_a_fail_is_a_field_of_the_probe(probe: Any, kind: FailKind) -> None:
    answer = run_scripted(probe) if isinstance(probe, Scripted) else None

    assert kind_of(probe) is kind
    assert answer is None or (isinstance(answer, Verdict) and answer.kind is kind)


def test_nothing_new_is_no_verdict() -> None:
    assert run_scripted(Scripted(NotYet("later"))) == NotYet("later")


@pytest.mark.parametrize(
    ("probe", "code", "cause"),
    [
        pytest.param(Scripted(Undecided("unsupported", "x")), "unsupported", "", id="undecided"),
        pytest.param(
            Scripted(UnreachableError("source:shop: slow: timed out")),
            "unreachable",
            "source:shop",
            id="a part that does not answer is the cause",
        ),
        pytest.param(
            Scripted(UnreachableError("slow: timed out")), "unreachable", "", id="a nameless part"
        ),
        pytest.param(Scripted(ProofError("no table")), "unprovable", "", id="not provable"),
        pytest.param(Scripted(KeyError("secret")), "check_broken", "", id="broken probe"),
        pytest.param(
            Scripted(Number(), takes=timedelta(seconds=6), says=Outcome.PASS),
            "over_time",
            "",
            id="over its time",
        ),
    ],
)
def test_what_proved_nothing_is_unknown(probe: Scripted, code: str, cause: str) -> None:
    answer = run_scripted(probe)

    assert isinstance(answer, Verdict)
    assert answer.ruling.outcome is Outcome.UNKNOWN
    assert (answer.ruling.code, answer.cause) == (code, cause)
    assert "secret" not in answer.ruling.reason


@pytest.mark.parametrize(
    ("by_clock", "by_timer", "outcome"),
    [
        pytest.param(3600, 0.2, Outcome.PASS, id="the clock went ahead"),
        pytest.param(-3600, 0.2, Outcome.PASS, id="the clock went back"),
        pytest.param(-3600, 6.0, Outcome.UNKNOWN, id="it went back in a slow round"),
        pytest.param(6, 6.0, Outcome.UNKNOWN, id="the clock is right"),
    ],
)
def test_a_step_of_the_clock_is_no_time_that_a_probe_took(
    by_clock: int, by_timer: float, outcome: Outcome
) -> None:
    probe = Scripted(Number(), takes=timedelta(seconds=by_clock), says=Outcome.PASS)
    timer = iter([7.0, 7.0 + by_timer])

    answer = run_probe(Check("scripted", probe, TABLE), FakeWorld(), elapsed=lambda: next(timer))

    assert isinstance(answer, Verdict)
    assert answer.ruling.outcome is outcome


def test_a_broken_probe_leaves_its_traceback_in_the_log() -> None:
    with capture_logs() as logs:
        run_scripted(Scripted(ValueError("x")))

    assert [(line["event"], line["check"], line["exc_info"]) for line in logs] == [
        ("check_broken", "scripted", True)
    ]


@pytest.mark.parametrize("name", ["max_id", "range_counts"])
def test_a_source_that_does_not_answer_is_unknown_not_fail(name: str) -> None:
    world = FakeWorld(error=UnreachableError("source:shop: down"))

    answer = run_probe(Check(name, find_probe(name)(), TABLE), world)

    assert isinstance(answer, Verdict)
    assert answer.ruling.outcome is Outcome.UNKNOWN
    assert answer.cause == "source:shop"


@pytest.mark.parametrize("name", ["max_id", "range_counts"])
@pytest.mark.parametrize(
    "table",
    [
        pytest.param(dataclasses.replace(TABLE, id_column=None), id="no integer key"),
        pytest.param(dataclasses.replace(TABLE, key=("id", "line")), id="composite key"),
    ],
)
def test_a_table_whose_keys_cannot_be_ranged_is_unsupported(name: str, table: Table) -> None:
    answer = run_probe(Check(name, find_probe(name)(), table), FakeWorld())

    assert isinstance(answer, Verdict)
    assert answer.ruling.code == "unsupported"


def test_f03_only_what_looks_at_all_rows_says_so() -> None:
    assert [name for name in probe_names() if is_whole(name)] == ["completeness", "schema"]
