"""delta/object_store.py and a server of S3's API: who wins, and what is said when it fails."""

import threading
import uuid
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from demo.s3 import BUCKET, S3, SECRET
from pipeline.delta import object_store
from pipeline.delta.commit import create_table
from pipeline.delta.store import Store, open_store
from pipeline.errors import ConfigError, LostRaceError, UnreachableError
from tests.pipeline.delta.racer import races
from tests.pipeline.delta.tables import NOW, PLAIN, Writer, found, numbers

pytestmark = pytest.mark.stack

LOG = "_delta_log"


@pytest.fixture
def uri(s3: S3) -> str:
    return f"s3a://{BUCKET}/{uuid.uuid4()}"


@pytest.fixture
def writer(uri: str) -> Writer:
    store = open_store(uri)
    return Writer(store, create_table(store, PLAIN, clock=NOW))


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of stores that are opened from now on: an answer may take its time, a second one may not."""
    monkeypatch.setattr(object_store, "ANSWERED", timedelta(seconds=4))
    monkeypatch.setattr(object_store, "TRIED", timedelta(seconds=0.6))


def test_of_many_writers_of_one_name_one_wins(uri: str) -> None:
    stores, gate = [open_store(uri) for _ in range(8)], threading.Barrier(8)

    def attempt(number: int, round_: int) -> str:
        gate.wait()
        try:
            stores[number].put_new(f"{round_}", str(number).encode())
        except FileExistsError:
            return "lost"
        return str(number)

    with ThreadPoolExecutor(8) as pool:
        for round_ in range(20):
            told = list(pool.map(attempt, range(8), [round_] * 8))
            won = [each for each in told if each != "lost"]

            assert won == [stores[0].read(f"{round_}").decode()]


def test_every_version_has_one_winner_among_processes(writer: Writer) -> None:
    racers, rounds = 3, 6
    told = races(writer.store.uri, racers, rounds)

    won = sorted(tuple(one) for each in told for one in each["won"])
    assert [version for version, _ in won] == list(range(1, racers * rounds + 1))
    assert found(writer.store).version == racers * rounds
    assert sum(each["lost"] for each in told) > 0  # else nobody raced


def test_deltalakes_own_commits_lose_no_row_in_a_race(uri: str) -> None:
    write_deltalake(uri, pa.table({"writer": [-1]}))

    def append(number: int) -> None:
        for _ in range(4):
            write_deltalake(uri, pa.table({"writer": [number]}), mode="append")

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(append, range(3)))

    rows = DeltaTable(uri).to_pyarrow_table()["writer"].to_pylist()
    assert Counter(rows) == {-1: 1, 0: 4, 1: 4, 2: 4}


def test_a_commit_whose_answer_was_lost_is_found_to_be_ours(s3: S3, writer: Writer) -> None:
    with s3.failing("lost_answer"):
        writer.append(numbers(0, 5))

    assert found(writer.store).commit_id == writer.snapshot.commit_id
    assert writer.snapshot.version == 1


def test_a_commit_whose_answer_was_lost_is_found_to_be_anothers(s3: S3, writer: Writer) -> None:
    late = Writer(writer.store, writer.snapshot)
    with s3.failing("lost_answer"):
        writer.append(numbers(0, 5))

        with pytest.raises(LostRaceError):
            late.append(numbers(5, 9))

    assert found(writer.store).version == 1


@pytest.mark.parametrize("fault", ["slow_down", "hang"])
def test_a_store_that_cannot_now_leaves_the_table_as_it_was(
    s3: S3, writer: Writer, hasty: None, fault: str
) -> None:
    del hasty  # it is for what is opened here
    other = Writer(open_store(writer.store.uri), writer.snapshot)
    with s3.failing(fault), pytest.raises(UnreachableError) as told:
        other.append(numbers(0, 5))

    assert "Sluice retries automatically" in str(told.value)
    assert found(writer.store).version == 0
    writer.append(numbers(0, 5))
    assert found(writer.store).version == 1


@pytest.mark.parametrize("fault", ["unconditional", "no_conditions"])
@pytest.mark.usefixtures("hasty")
def test_a_store_where_two_could_win_is_refused_with_words(s3: S3, uri: str, fault: str) -> None:
    store = open_store(uri)
    with s3.failing(fault), pytest.raises(ConfigError, match="two writers could both win"):
        store.prove(LOG)

    assert store.names(LOG) == []


ASKS: list[Callable[[Store], object]] = [
    lambda store: store.prove(LOG),
    lambda store: store.after(LOG, ""),
    lambda store: store.size("x"),
]


@pytest.mark.parametrize(
    ("variable", "value", "at", "says"),
    [
        pytest.param(
            "AWS_ACCESS_KEY_ID", "x", BUCKET, "(correct AWS_ACCESS_KEY_ID|allow Sluice's)", id="key"
        ),
        pytest.param("AWS_ENDPOINT_URL", "http://127.0.0.1:9", BUCKET, "error sending", id="host"),
        pytest.param("AWS_ALLOW_HTTP", "no", BUCKET, "needs AWS_ALLOW_HTTP=true", id="no TLS"),
    ],
)
@pytest.mark.usefixtures("s3", "hasty")
def test_what_is_set_wrong_is_told_with_its_setting_and_without_the_secret(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, at: str, says: str
) -> None:
    monkeypatch.setenv(variable, value)
    store = open_store(f"s3a://{at}/lake")

    for ask in ASKS:
        with pytest.raises(UnreachableError, match=says) as told:
            ask(store)
        assert SECRET not in str(told.value)


@pytest.mark.usefixtures("s3")
def test_a_bucket_that_is_not_there_is_no_lake_without_tables() -> None:
    store = open_store("s3a://nobody/lake")

    more: list[Callable[[Store], object]] = [
        lambda store: store.read("x"),
        lambda store: store.put("x", b""),
    ]
    for ask in (*ASKS[:2], *more):
        with pytest.raises(UnreachableError, match="no such bucket; make it, or correct `lake`"):
            ask(store)
