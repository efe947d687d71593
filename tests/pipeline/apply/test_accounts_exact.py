"""apply/merge_run.py: rows before + inserted - deleted = rows after, by the log's counts."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.model import Op
from tests.builders.lake import LocalLake, row
from tests.example_count import examples
from tests.pipeline.apply.keeping import Keeping
from tests.pipeline.delta.replayed import Replayed

ACTS = st.tuples(
    st.sampled_from([Op.CREATE, Op.UPDATE, Op.UPDATE, Op.DELETE, Op.DELETE, Op.TRUNCATE]),
    st.integers(0, 5),
    st.sampled_from("abc"),
)
BATCHES = st.lists(st.lists(ACTS, min_size=1, max_size=7), min_size=1, max_size=6)


@settings(max_examples=examples(25, brief=4), deadline=None)
@given(BATCHES, st.lists(st.booleans(), min_size=6, max_size=6), st.integers(0, 3))
def test_every_turns_own_counts_are_what_its_files_say(
    batches: list[list[tuple[Op, int, str]]], kept: list[bool], again: int
) -> None:
    with TemporaryDirectory() as folder:
        lake, model, pos = LocalLake(Path(folder)), dict[int, str](), 10
        sent: list[dict[str, Any]] = []
        for acts, keep in zip(batches, kept, strict=False):
            fresh = []
            for op, key, name in acts:
                pos += 1
                fresh.append(_landed(op, pos, key, name))
                _do(model, op, key, name)
            lake.play([*sent[len(sent) - again :], *fresh] if again else fresh)
            sent += fresh
            if keep and model:
                Keeping(lake).run()
        if not sent:
            return

        replayed = Replayed(Path(lake.settings.mirror("db.t")))

        assert lake.rows() == model
        assert replayed.rows[-1] == len(model)
        assert replayed.missing == []
        assert 0 < replayed.turns <= len(batches)


def _landed(op: Op, pos: int, key: int, name: str) -> dict[str, Any]:
    return row(op, pos, None) if op is Op.TRUNCATE else row(op, pos, key, name)


def _do(model: dict[int, str], op: Op, key: int, name: str) -> None:
    if op is Op.TRUNCATE:
        model.clear()
    elif op is Op.DELETE:
        model.pop(key, None)
    else:
        model[key] = name
