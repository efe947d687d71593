"""Data in the clear is found in each row of a slice, and never shown."""

from datetime import date
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from bench.plaintext import HARMLESS, HELD, card, email, note
from pipeline.apply.invariants import Demands
from pipeline.errors import ConfigError, HeldError
from pipeline.invariants.invariant import IntendedRows, LandedDay
from pipeline.invariants.plaintext import Plaintext
from pipeline.model import Op
from tests.pipeline.tables.delta.turns import TurnBench, change


def intended(key: tuple[str, ...] = ("id",), **columns: Any) -> IntendedRows:
    def landed(column: str, day: date) -> LandedDay:
        raise AssertionError("is not asked")

    rows = pa.table(columns)
    if "id" not in columns:
        rows = rows.append_column("id", pa.array(range(rows.num_rows), pa.int64()))
    return IntendedRows(
        *("shop.t", key, rows, np.zeros(rows.num_rows, np.int64), 0, 0, False),
        standing=lambda values: np.zeros(len(values), np.bool_),
        before=lambda names: rows.select(list(names)),
        elsewhere=lambda name, values: pa.array([], pa.bool_()),
        deleted=lambda names: rows.select(list(names)),
        landed=landed,
    )


def find(invariant: Plaintext, rows: IntendedRows) -> dict[str, list[int]]:
    """Places of the rows by what is said of them."""
    return {
        one.what: [] if one.rows is None else np.flatnonzero(one.rows).tolist()
        for one in invariant.breaches(rows)
    }


@pytest.mark.parametrize("name", HELD)
def test_a_column_in_the_clear_breaks_it(name: str) -> None:
    make, kind = HELD[name]
    rng = Random(4)
    values = [make(rng) for _ in range(300)]

    found = find(Plaintext(), intended(note=values))

    assert list(found) == [f"note holds {kind} in the clear"]
    assert not any(value in text for text in found for value in values)


@pytest.mark.parametrize("name", HARMLESS)
def test_what_only_looks_like_it_breaks_nothing(name: str) -> None:
    rng = Random(4)

    assert find(Plaintext(), intended(note=[HARMLESS[name](rng) for _ in range(300)])) == {}


def test_the_rows_that_hold_it_are_named_and_no_others() -> None:
    rng = Random(4)
    values = [f"to {email(rng)}" if at in (3, 250) else note(rng) for at in range(300)]

    found = find(Plaintext(), intended(note=[*values, None]))

    assert found == {"note holds e-mail in the clear": [3, 250]}


def test_by_a_higher_chance_one_card_is_enough() -> None:
    rows = intended(note=["paid", f"card {card(Random(4))}", None])

    assert find(Plaintext(), rows) == {}
    assert find(Plaintext(chance=0.2), rows) == {"note holds card in the clear": [1]}


def test_a_key_in_the_clear_is_not_shown() -> None:
    rng = Random(4)
    rows = intended(("mail",), mail=[email(rng) for _ in range(3)], note=[email(rng), "a", "b"])

    found = [(one.what, one.rows) for one in Plaintext().breaches(rows)]

    assert found == [
        ("mail holds e-mail in the clear (rows: 3; unnamed, as a key is in the clear)", None),
        ("note holds e-mail in the clear (rows: 1; unnamed, as a key is in the clear)", None),
    ]


@pytest.mark.parametrize(
    "key",
    [
        pa.array(["4111111111111111"]),
        pa.array([4111111111111111]),
        pa.array(["jane@example.com"]),
        pa.array([b"jane@example.com"]),
        pa.array(["11010519491231002X"]),
        pa.array(["13800138000"]),
        pa.array(["+49 1512 3456789"]),
        pa.array(["13800138000"]).dictionary_encode(),
    ],
    ids=str,
)
def test_a_key_that_may_be_in_the_clear_is_not_shown(key: pa.Array) -> None:
    rows = intended(id=key, note=["to a@b.co"])

    found = [(one.what, one.rows) for one in Plaintext(("note",)).breaches(rows)]

    assert found == [
        ("note holds e-mail in the clear (rows: 1; unnamed, as a key is in the clear)", None)
    ]


def test_keys_of_rows_that_are_not_named_hide_no_others() -> None:
    rows = intended(id=["17", "4111111111111111"], note=["to a@b.co", "paid"])

    assert find(Plaintext(), rows) == {"note holds e-mail in the clear": [0]}


def test_each_phone_with_a_country_is_found_among_many_numbers() -> None:
    numbers = [str(10**9 + at * 7919) for at in range(9_000)]
    numbers[::1001] = [f"+49 1512 34567{at:02}" for at in range(9)]

    found = find(Plaintext(), intended(note=numbers))

    assert found == {"note holds phone in the clear": list(range(0, 9_000, 1001))}


def test_columns_that_are_clear_are_not_looked_at_and_numbers_only_where_they_are_named() -> None:
    rng = Random(4)
    numbers = pa.array([int(card(rng)[:16].ljust(16, "0")) for _ in range(9)], pa.int64())
    cards = pa.array([int(one) for one in (card(rng) for _ in range(90)) if len(one) == 16])
    rows = intended(mail=[email(rng)] * len(cards), number=cards)

    assert find(Plaintext(clear=("mail",)), rows) == {}
    assert list(find(Plaintext(("number",)), rows)) == ["number holds card in the clear"]
    assert find(Plaintext(("number",)), intended(number=numbers)) == {}


def test_a_column_without_text_holds_the_table() -> None:
    rows = intended(at=pa.array([1.5]))

    with pytest.raises(HeldError, match="column at is of type double") as held:
        find(Plaintext(("at",)), rows)

    assert held.value.reason == "invariant"


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"columns": ()}, "names none"),
        ({"chance": 0.0}, "not above 0"),
        ({"regions": ("XX",)}, "'XX' is unknown"),
    ],
)
def test_what_would_find_nothing_is_refused(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Plaintext(**settings)


def test_a_slice_in_the_clear_reaches_no_mirror_and_its_message_shows_no_value(
    tmp_path: Path,
) -> None:
    rng = Random(4)
    bench = TurnBench(tmp_path)
    bench.play(change(Op.UPDATE, 10, 1, "a", batch=1))
    address = email(rng)
    rows = [change(Op.UPDATE, 100, 7, address, batch=1), change(Op.UPDATE, 101, 8, "b", batch=1)]

    with pytest.raises(HeldError) as held:
        bench.play(*rows, demands=Demands((("plaintext", Plaintext()),), "m", 0, 1))

    assert (held.value.reason, held.value.waiver) == ("invalid", "invalid:t:1-1@m")
    assert "plaintext: name holds e-mail in the clear in 1 row, key" in held.value.detail
    assert address not in held.value.detail
    assert bench.rows() == {1: "a"}
