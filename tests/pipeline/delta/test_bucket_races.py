"""delta/object_store.py over an object store in memory: two writers never both win one name.

Real servers are in test_bucket.py; what every store promises is in test_store.py.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import obstore
import pytest
from obstore.exceptions import AlreadyExistsError, GenericError, PreconditionError
from obstore.store import MemoryStore

from pipeline.delta.commit import create_table
from pipeline.delta.object_store import Bucket
from pipeline.errors import ConfigError, LostRaceError, UnreachableError
from tests.pipeline.delta.tables import NOW, PLAIN, Writer, found, numbers

ENTRY = "_delta_log/00000000000000000001.json"


def nothing() -> None:
    """Happens before most writes."""


@dataclass(eq=False)
class Wire:
    """What is between a bucket and its store: each conditional put goes through it.

    ``meanwhile`` happens once, right before the next put reaches the store.  ``refusal`` is how the
    store says that the file is there; ``lost`` puts reach the store and their answers do not come
    back; with ``blind`` the store ignores the condition.
    """

    put: Callable[..., Any]
    meanwhile: Callable[[], object] = nothing
    refusal: type[Exception] = AlreadyExistsError
    lost: int = 0
    blind: bool = False
    modes: list[object] = field(default_factory=list)

    def __call__(self, objects: MemoryStore, name: str, data: bytes, **how: Any) -> object:
        if not how:  # a file whose name nobody else uses
            return self.put(objects, name, data)
        meanwhile, self.meanwhile = self.meanwhile, nothing
        meanwhile()
        self.modes.append(how.get("mode"))
        try:
            answer = self.put(objects, name, data, **({} if self.blind else how))
        except AlreadyExistsError as error:
            raise self.refusal(str(error)) from error
        if self.lost:
            self.lost -= 1
            raise GenericError("operation timed out")
        return answer


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Wire:
    made = Wire(obstore.put)
    monkeypatch.setattr(obstore, "put", made)
    return made


@pytest.fixture
def writer(wire: Wire) -> Writer:
    del wire  # it is between this bucket and its store
    store = Bucket("s3://lake/t", MemoryStore())
    return Writer(store, create_table(store, PLAIN, clock=NOW))


def rival_of(writer: Writer) -> Writer:
    """Another process that has read the same version."""
    assert isinstance(writer.store, Bucket)
    return Writer(Bucket(writer.store.uri, writer.store.objects), writer.snapshot)


@pytest.mark.parametrize("refusal", [AlreadyExistsError, PreconditionError])
def test_f113_who_loses_the_swap_does_not_take_itself_for_the_winner(
    wire: Wire, writer: Writer, refusal: type[Exception]
) -> None:
    rival, wire.refusal = rival_of(writer), refusal
    late = writer.file(numbers(5, 9))
    wire.meanwhile = lambda: rival.append(numbers(0, 5))

    with pytest.raises(LostRaceError, match="another commit is version 1"):
        writer.commit([late])

    assert writer.snapshot.version == 0
    assert found(writer.store).commit_id == rival.snapshot.commit_id
    assert list(found(writer.store).files) == list(rival.snapshot.files)


@pytest.mark.parametrize("winner", ["ours", "the rival's"])
def test_f113_a_swap_whose_answer_is_lost_is_won_by_the_one_whose_entry_is_there(
    wire: Wire, writer: Writer, winner: str
) -> None:
    rival, late = rival_of(writer), writer.file(numbers(5, 9))
    wire.lost = 1
    if winner == "ours":
        writer.commit([late])
        with pytest.raises(LostRaceError):
            rival.append(numbers(0, 5))
    else:
        wire.meanwhile = lambda: rival.append(numbers(0, 5))
        with pytest.raises(LostRaceError):
            writer.commit([late])

    won = {one.snapshot.commit_id for one in (writer, rival) if one.snapshot.version == 1}
    assert won == {found(writer.store).commit_id}


def test_f113_a_name_is_asked_for_only_if_it_is_not_there(wire: Wire) -> None:
    store = Bucket("s3://lake/t", MemoryStore())
    store.put_new(ENTRY, b"first")

    with pytest.raises(FileExistsError, match=f"s3://lake/t/{ENTRY}: another writer made it"):
        store.put_new(ENTRY, b"second")

    assert store.read(ENTRY) == b"first"
    assert wire.modes == ["create", "create"]


def test_f113_a_store_that_forgets_the_condition_is_refused_before_anyone_writes(
    wire: Wire,
) -> None:
    store, wire.blind = Bucket("s3://lake/t", MemoryStore()), True

    with pytest.raises(ConfigError, match="two writers could both win"):
        store.prove("_delta_log")

    assert store.names("_delta_log") == []


def test_f113_a_write_of_which_nothing_is_known_is_no_win(wire: Wire) -> None:
    store, wire.lost = Bucket("s3://lake/t", MemoryStore()), 1

    with pytest.raises(UnreachableError, match="operation timed out; Sluice retries automatically"):
        store.put_new(ENTRY, b"first")
