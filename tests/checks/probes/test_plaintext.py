from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any

import pytest

from bench.plaintext import email, identity, mobile, note
from checks.model import NotYet, Outcome, Undecided, Verdict
from checks.probes.plaintext import ClearColumns, Plaintext
from checks.run import Check, run_probe
from checks.world import MirrorSide
from pipeline.errors import ConfigError
from pipeline.model import Table
from tests.checks.world_fake import TABLE, FakeWorld

RNG = Random(3)
ROWS: Sequence[Mapping[str, Any]] = [
    {
        "id": number,
        "contact": email(RNG),
        "who": identity(RNG) if number % 2 else None,
        "phone": int(mobile(RNG)),
        "note": note(RNG),
        "raw": b"a@example.com",
    }
    for number in range(100)
]


class World(FakeWorld):
    """A world whose mirror holds the rows above."""

    rows_: Sequence[Mapping[str, Any]] = ROWS

    def mirror(self, table: Table) -> Any:
        side: MirrorSide = super().mirror(table)
        side.sample = lambda limit: self.rows_[:limit]  # type: ignore[method-assign]
        return side


def found(probe: Plaintext) -> dict[str, str]:
    reading = probe.measure(TABLE, World())
    assert isinstance(reading, ClearColumns)
    return {one.column: one.kind for one in reading.found}


def test_all_columns_of_text_but_those_that_are_meant_to_be_clear() -> None:
    assert found(Plaintext(("*",))) == {"contact": "e-mail", "who": "identity cn.ric"}
    assert found(Plaintext(("*",), clear=("contact",))) == {"who": "identity cn.ric"}


def test_a_column_that_is_named_may_be_of_numbers() -> None:
    assert found(Plaintext(("phone",))) == {"phone": "phone"}


@pytest.mark.parametrize("columns", [("*",), ("contact", "phone")])
def test_verdicts_hold_counts_and_no_value(columns: tuple[str, ...]) -> None:
    probe = Plaintext(columns)

    reading = probe.measure(TABLE, World())
    assert isinstance(reading, ClearColumns)
    ruling = probe.judge(reading, [])

    assert (ruling.outcome, ruling.code, reading.value) == (Outcome.FAIL, "plaintext", 2.0)
    assert "e-mail in contact (100)" in ruling.reason
    told = f"{reading}{ruling}"
    assert not any(str(row[name]) in told for row in ROWS for name in ("contact", "phone", "who"))


def test_nothing_in_the_clear_passes() -> None:
    probe = Plaintext(("note",))
    reading = probe.measure(TABLE, World())
    assert isinstance(reading, ClearColumns)

    assert probe.judge(reading, []).outcome is Outcome.PASS


def test_it_is_off_until_columns_are_named_and_waits_for_rows() -> None:
    empty = World()
    empty.rows_ = []

    assert isinstance(Plaintext().measure(TABLE, World()), NotYet)
    assert isinstance(Plaintext(("*",)).measure(TABLE, empty), NotYet)


@pytest.mark.parametrize("emptied", [True, False], ids=["the mirror", "the settings"])
def test_a_finding_ends_when_there_is_nothing_left_to_look_at(*, emptied: bool) -> None:
    world, probe = World(), Plaintext(("*",))
    world.outdated.add("plaintext")
    assert rule(probe, world) == Outcome.FAIL

    if emptied:
        world.rows_ = []
    probe = probe if emptied else Plaintext()

    assert rule(probe, world) == Outcome.PASS
    assert rule(probe, world) is None


def rule(probe: Plaintext, world: World) -> Outcome | None:
    verdict = run_probe(Check("plaintext", probe, TABLE), world)
    return verdict.ruling.outcome if isinstance(verdict, Verdict) else None


@pytest.mark.parametrize(
    ("column", "code", "why"),
    [
        pytest.param("gone", "no_column", "the mirror has no column gone", id="not there"),
        pytest.param(
            "raw",
            "no_text",
            "raw: holds neither text nor whole numbers, so it is not searched",
            id="of another type",
        ),
    ],
)
def test_a_named_column_that_cannot_be_looked_at_is_no_pass(
    column: str, code: str, why: str
) -> None:
    assert Plaintext((column, "note")).measure(TABLE, World()) == Undecided(code, why)


def test_whole_numbers_without_a_sign_are_looked_at() -> None:
    world = World()
    world.rows_ = [{"phone": Decimal(mobile(RNG))} for _ in range(100)]

    reading = Plaintext(("phone",)).measure(TABLE, world)

    assert isinstance(reading, ClearColumns)
    assert [one.kind for one in reading.found] == ["phone"]


def test_a_named_column_without_a_value_is_looked_at() -> None:
    world = World()
    world.rows_ = [{"note": None}, {"note": ""}]

    assert isinstance(Plaintext(("note",)).measure(TABLE, world), ClearColumns)


@pytest.mark.parametrize("region", ["XX", "cn", ""])
def test_a_region_that_is_none_is_refused(region: str) -> None:
    with pytest.raises(ConfigError, match=r"regions: .* ISO 3166"):
        Plaintext(("*",), regions=("CN", region))


def test_long_values_are_looked_at_where_they_begin() -> None:
    world = World()
    world.rows_ = [{"far": "x " * 5000 + "a@example.com", "near": "a@example.com" + " x" * 500_000}]

    reading = Plaintext(("*",)).measure(TABLE, world)

    assert isinstance(reading, ClearColumns)
    assert [one.column for one in reading.found] == ["near"]


def test_without_time_for_all_columns_it_ends() -> None:
    class Slow(World):
        ticks = 0

        def clock(self) -> datetime:
            self.ticks += 1
            return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=self.ticks)

    told = Plaintext(("*",)).measure(TABLE, Slow())

    assert isinstance(told, Undecided)
    assert (told.code, told.why.split(" ", 1)[0]) == ("over_time", "2")
