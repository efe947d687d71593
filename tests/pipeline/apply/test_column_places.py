"""A row's column has the value told in the highest version of that column, in whichever slices.

The oracle knows nothing of orders, slices or mirrors.
"""

import json
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.apply.fold import ColumnPlaces, encode_versions
from pipeline.errors import HeldError
from pipeline.formats.dbevents_avro import DbEventsAvro
from pipeline.model import Op, Order
from pipeline.settings import RegistrySettings
from tests.example_count import examples
from tests.pipeline.formats.dbevents_writer import Event
from tests.pipeline.formats.test_dbevents_avro import SCHEMAS
from tests.pipeline.formats.test_formats_in_mirrors import Applied, value
from tests.pipeline.hand_lake import row

NAMES = ("id", "fare", "note")
Versioned = dict[str, tuple[int, Any]]


def applied(home: Path) -> Applied:
    return Applied(home, DbEventsAvro(RegistrySettings("http://r")), SCHEMAS)


def rows(made: Applied) -> dict[str, dict[str, Any]]:
    return {row["row_key"]: {name: row[name] for name in NAMES} for row in made.mirror()}


def send(made: Applied, *events: Event) -> None:
    assert made.send(*(value(one.value) for one in events)) is None


def versions(made: Applied) -> Any:
    (row,) = made.mirror()
    return json.loads(row["_column_versions"] or "null")


def test_a_column_that_comes_late_in_an_older_version_is_passed_over(tmp_path: Path) -> None:
    """The row is of another version by then: only that of the column says that it is old."""
    made = applied(tmp_path)
    send(made, Event("k", 5, {"id": 1, "fare": 0.5, "note": "a"}))
    send(made, Event("k", 10, {"fare": 2.5}, [(10, ["fare"])]))

    send(made, Event("k", 12, {"note": "b", "fare": 1.5}, [(12, ["note"]), (7, ["fare"])]))

    assert rows(made) == {"k": {"id": 1, "fare": 2.5, "note": "b"}}
    assert versions(made) == {"id": 5, "fare": 10, "raw": 5, "tags": 5}


def test_one_that_comes_late_and_is_newer_than_what_stands_counts(tmp_path: Path) -> None:
    made = applied(tmp_path)
    send(made, Event("k", 5, {"id": 1, "fare": 0.5, "note": "a"}))
    send(made, Event("k", 10, {"note": "b"}, [(10, ["note"])]))

    send(made, Event("k", 12, {"fare": 1.5}, [(7, ["fare"])]))

    assert rows(made) == {"k": {"id": 1, "fare": 1.5, "note": "b"}}


@pytest.mark.parametrize("apart", [False, True], ids=["in one slice", "in two"])
def test_what_was_deleted_tells_no_value_of_the_row_that_came_after(
    tmp_path: Path, apart: bool
) -> None:
    made, names = applied(tmp_path), ["id", "fare", "raw", "tags"]
    send(made, Event("k", 5, {"id": 1, "fare": 5.5, "note": "of before"}))
    gone = Event("k", 6, {}, deleted=True)
    again = Event("k", 8, {"id": 8, "fare": 8.5, "note": "now"}, [(8, names), (4, ["note"])])

    for events in ((gone,), (again,)) if apart else ((gone, again),):
        send(made, *events)

    assert rows(made) == {"k": {"id": 8, "fare": 8.5, "note": "now"}}


def test_what_a_base_says_is_of_its_own_version(tmp_path: Path) -> None:
    made = applied(tmp_path)
    send(made, Event("seen", 1, {}))
    image = {"id": 1, "fare": 9.5, "note": "base", "row_key": "k", "hadoop_metadata": {}}
    base = {"key": '["s","db.t","k"]', "order": Order(1, 0, 20), "after": json.dumps(image)}
    made.lake.land(row(Op.READ, 20, None) | base)
    assert made.lake.apply().hold is None

    old, new = [(18, ["fare"])], [(21, ["note"])]
    send(made, Event("k", 22, {"fare": 1.5, "note": "new"}, [*old, *new]))

    assert rows(made)["k"] == {"id": 1, "fare": 9.5, "note": "new"}


@dataclass
class Story:
    """Events as their sender makes them, and what a plain model says that they come to."""

    dice: random.Random
    ref: int = 0
    unused: list[int] = field(default_factory=list)
    model: dict[str, Versioned] = field(default_factory=dict)

    def event(self) -> Event:
        step = self.dice.randint(1, 4)
        self.unused += range(self.ref + 1, self.ref + step)
        self.ref += step
        key = self.dice.choice("ab")
        row = {"id": self.ref, "fare": self.ref + 0.5, "note": f"n{self.ref}"}
        pick = self.dice.random()
        if key not in self.model or pick < 0.15:
            self.model[key] = {name: (self.ref, row[name]) for name in NAMES}
            return Event(key, self.ref, row)
        if pick < 0.25:
            del self.model[key]
            return Event(key, self.ref, {}, deleted=True)
        return Event(key, self.ref, row, self._some(key, row))

    def _some(self, key: str, row: dict[str, Any]) -> list[tuple[int, list[str]]]:
        named = []
        for name in self.dice.sample(NAMES, self.dice.randint(1, 3)):
            version = self.ref
            if self.unused and self.dice.random() < 0.6:
                version = self.unused.pop(self.dice.randrange(len(self.unused)))
            named.append((version, [name]))
            if version > self.model[key][name][0]:
                self.model[key][name] = version, row[name]
        return named


@settings(max_examples=examples(40, brief=5))
@given(st.integers(0, 2**32))
def test_any_slices_come_to_what_a_plain_model_says(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    dice = random.Random(seed)
    made, story = applied(tmp_path_factory.mktemp("lake")), Story(dice)
    for _ in range(dice.randint(1, 6)):
        some = [story.event() for _ in range(dice.randint(1, 6))]
        send(made, *some)
        if dice.random() < 0.3:
            send(made, *some)

        assert rows(made) == {
            key: {name: found for name, (_, found) in row.items()}
            for key, row in story.model.items()
        }


def test_an_older_epochs_versions_are_below_all() -> None:
    own = (2, 5)

    said = encode_versions(own, {"new": (2, 5), "late": (2, 3), "old": (1, 900)})

    stand = ColumnPlaces.of_row((*own[:1], 0, own[1], 0, 1), said)
    assert json.loads(said) == {"late": 3, "old": -1}
    assert stand.of("old") < (2, 0) < stand.of("late") < stand.of("new") == own


@pytest.mark.parametrize("text", ["[]", '{"a": "b"}', "{"])
def test_what_tells_no_versions_holds_the_table(text: str) -> None:
    with pytest.raises(HeldError, match="misread"):
        ColumnPlaces.of_row((1, 0, 5, 0, 1), text)
