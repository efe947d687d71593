"""What formats of messages without places make of their corpora, and of damaged messages."""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from pipeline.formats.format import Format, Schemas
from pipeline.model import Op
from tests.pipeline.corpus import Message
from tests.pipeline.formats.batches import Raw, batch, told
from tests.pipeline.formats.damage import damaged

Rows = list[dict[str, Any]]


def decoded(form: Format, values: Sequence[bytes | None], schemas: Schemas | None = None) -> Rows:
    """Changes of messages of one topic."""
    return told(form.decode(batch([(None, value, "t") for value in values]), schemas or {}))


def brief(row: Mapping[str, Any]) -> dict[str, Any]:
    """What a change says, without what it does not say and what is the same for all."""
    left_out = ("message", "schema_id", "raw")
    return {n: v for n, v in row.items() if v is not None and n not in left_out}


def as_expected(form: Format, message: Message, schemas: Schemas | None = None) -> None:
    """The message becomes the changes that a person wrote beside it, but for columns it tells."""
    sent: list[Raw] = [(message.key, message.value, message.topic)]
    found = [
        {name: str(value) if name == "at" else value for name, value in brief(row).items()}
        for row in told(form.decode(batch(sent), schemas or {}))
        if row["schema_id"] is None
    ]
    wanted = message.expect["changes"]

    picked = [{name: row.get(name) for name in one} for row, one in zip(found, wanted, strict=True)]
    assert picked == wanted


def hurt(some: Sequence[Raw], count: int, seed: int, size: int = 100) -> Iterator[list[Raw]]:
    """Batches of *size* of these messages, each damaged."""
    dice = random.Random(seed)
    for _ in range(max(count // size, 1)):
        yield [damaged(dice.choice(some), some, dice) for _ in range(size)]


def nothing_is_lost(
    form: Format, messages: Sequence[Raw], needs: Callable[[Any], Schemas] = lambda _: {}
) -> int:
    """Each message has a change; what makes no sense keeps its bytes and says why.

    A message says among others what it says alone.  Returns how many made no sense.
    """
    sent = batch(messages)
    found = told(form.decode(sent, needs(sent)))
    by_message: dict[int, Rows] = {number: [] for number in range(len(messages))}
    for row in found:
        by_message[row["message"]].append(row)
    assert [row["message"] for row in found] == sorted(row["message"] for row in found)
    odd = 0
    for number, raw in enumerate(messages):
        rows, alone = by_message[number], batch([raw])
        single = told(form.decode(alone, needs(alone)))
        assert _plain(rows) == _plain(single)
        assert rows, raw
        if any(row["op"] == Op.ERROR for row in rows):
            odd += 1
            assert len(rows) == 1
            assert rows[0]["error"]
            assert rows[0]["raw"] == raw[1]
    return odd


def _plain(rows: Rows) -> list[dict[str, Any]]:
    """Without columns that are told: those are told where they are news."""
    return [{**row, "message": 0} for row in rows if row["schema_id"] is None]
