"""Leases of lanes: one holder at a time, whatever its clock says and however it ends."""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from obstore.store import MemoryStore

from pipeline import lease as leases
from pipeline.delta.local import Folder
from pipeline.delta.object_store import Bucket
from pipeline.delta.store import Store
from pipeline.errors import ConfigError, UnreachableError
from pipeline.lease import EXPIRES, RENEWED_EVERY, Holder, Lease

AT = datetime(2026, 3, 29, 1, tzinfo=UTC)


class Hours:
    """A monotonic clock; waiting moves it, and lets others do what they do meanwhile."""

    def __init__(self) -> None:
        self.now = 0.0
        self.meanwhile: Callable[[], object] = lambda: None

    def __call__(self) -> float:
        """Now."""
        return self.now

    def wait(self, seconds: float) -> bool:
        """Nobody stops it."""
        self.now += seconds
        self.meanwhile()
        return False


def renew_in_time(lease: Lease, hours: Hours) -> None:
    """As the service does."""
    if hours.now % RENEWED_EVERY.total_seconds() == 0:
        lease.renew()


@pytest.fixture(params=["folder", "bucket"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "folder":
        return Folder(str(tmp_path / "changes"))
    return Bucket("memory://lake/changes", MemoryStore())


def elsewhere(store: str, at: datetime = AT) -> Holder:
    """A process of another machine: nobody here can look it up."""
    return replace(Holder.here(store, at), host=f"host-of-{store}", machine="another boot")


def test_f166_a_second_service_on_this_machine_is_refused_at_once_by_the_others_name(
    store: Store,
) -> None:
    hours = Hours()
    assert Lease(store, "main", Holder.here("/a/s.db", AT)).take(hours.wait)

    second = Lease(store, "main", Holder.here("/b/s.db", AT), hours)
    with pytest.raises(ConfigError) as refused:
        second.take(hours.wait)

    assert hours.now == 0
    said = str(refused.value)
    assert f"process {os.getpid()}, store /a/s.db, since 2026-03-29T01:00:00+00:00" in said
    assert "stop that one, or set another `lake` or `pipeline.lane`" in said


def test_f166_a_second_service_elsewhere_is_refused_when_it_sees_a_renewal(store: Store) -> None:
    hours = Hours()
    first = Lease(store, "main", elsewhere("a"))
    assert first.take(hours.wait)
    hours.meanwhile = partial(renew_in_time, first, hours)

    second = Lease(store, "main", elsewhere("b"), hours)
    with pytest.raises(ConfigError, match="host host-of-a"):
        second.take(hours.wait)

    assert hours.now <= RENEWED_EVERY.total_seconds()
    first.renew()


def test_f166_another_lane_of_the_lake_is_free(store: Store) -> None:
    hours = Hours()
    lanes = ("main", "Main", "a/b", "a", "..", ".", "ü", "main ")

    assert all(Lease(store, lane, Holder.here("s", AT)).take(hours.wait) for lane in lanes)


def test_f166_who_died_elsewhere_blocks_for_thirty_seconds_and_no_longer(store: Store) -> None:
    hours = Hours()
    assert Lease(store, "main", elsewhere("a")).take(hours.wait)

    assert Lease(store, "main", elsewhere("b"), hours).take(hours.wait)

    assert hours.now == EXPIRES.total_seconds() == 30


@pytest.mark.parametrize("year", [1971, 2026, 2190])
def test_f166_no_clock_of_a_holder_counts(store: Store, year: int) -> None:
    hours = Hours()
    first = Lease(store, "main", elsewhere("a", AT.replace(year=year)))
    assert first.take(hours.wait)
    hours.meanwhile = partial(renew_in_time, first, hours)

    with pytest.raises(ConfigError, match=f"since {year}-"):
        Lease(store, "main", elsewhere("b"), hours).take(hours.wait)


def test_f166_who_died_on_this_machine_blocks_nobody(store: Store) -> None:
    hours = Hours()
    told = subprocess.run(
        [sys.executable, "-c", DYING], capture_output=True, text=True, check=True
    ).stdout.split()
    dead = replace(Holder.here("a", AT), pid=int(told[0]), started=int(told[1]))
    assert Lease(store, "main", dead).take(hours.wait)

    assert Lease(store, "main", Holder.here("b", AT), hours).take(hours.wait)

    assert hours.now == 0


DYING = """
import datetime
from pipeline.lease import Holder
told = Holder.here("", datetime.datetime.now(datetime.UTC))
print(told.pid, told.started)
"""


def test_f166_a_number_of_a_process_that_was_given_again_is_not_the_holder(store: Store) -> None:
    hours = Hours()
    me = Holder.here("a", AT)
    assert Lease(store, "main", replace(me, started=me.started - 1)).take(hours.wait)

    assert Lease(store, "main", Holder.here("b", AT), hours).take(hours.wait)


def test_f166_who_stopped_blocks_nobody(store: Store) -> None:
    hours = Hours()
    first = Lease(store, "main", elsewhere("a"))
    assert first.take(hours.wait)
    first.release()

    assert Lease(store, "main", elsewhere("b"), hours).take(hours.wait)

    assert hours.now == 0


def test_f166_of_two_that_start_at_the_same_moment_one_is_refused(store: Store) -> None:
    """The second wins the race between the first one's look and its write."""
    hours = Hours()
    second = Lease(store, "main", elsewhere("b"))
    racing = Racing(store, lambda: second.take(hours.wait))

    with pytest.raises(ConfigError, match="host host-of-b"):
        Lease(cast("Store", racing), "main", elsewhere("a"), hours).take(hours.wait)
    second.renew()


class Racing:
    """A store in which somebody else is one write earlier, once."""

    def __init__(self, store: Store, first: Callable[[], object]) -> None:
        self.store, self.first = store, [first]

    def __getattr__(self, name: str) -> Any:
        """As the store does."""
        return getattr(self.store, name)

    def put_new(self, name: str, data: bytes) -> None:
        """After the other."""
        while self.first:
            self.first.pop()()
        self.store.put_new(name, data)


def test_f166_a_holder_that_slept_while_another_took_the_lane_is_told(store: Store) -> None:
    hours = Hours()
    first, second = (Lease(store, "main", elsewhere(name), hours) for name in "ab")
    assert first.take(hours.wait)
    assert second.take(hours.wait)
    for _ in range(3):
        second.renew()  # the number that the first would give next is removed

    with pytest.raises(ConfigError, match="host host-of-b"):
        first.renew()
    second.renew()
    second.release()
    assert Lease(store, "main", elsewhere("c"), hours).take(hours.wait)


def test_f166_a_renewal_whose_answer_was_lost_is_ones_own(store: Store) -> None:
    hours = Hours()
    lossy = Lossy(store)
    first = Lease(cast("Store", lossy), "main", elsewhere("a"), hours)
    for lost in (True, False):
        lossy.lost = lost
        if lost:
            with pytest.raises(UnreachableError):
                first.take(hours.wait)
        else:
            assert first.take(hours.wait)
    lossy.lost = True
    with pytest.raises(UnreachableError):
        first.renew()
    lossy.lost = False

    first.renew()
    first.renew()

    assert hours.now == 0
    assert len(store.after("_lease/main", "")) == 1


def test_f166_who_stops_after_a_renewal_whose_answer_was_lost_blocks_nobody(
    store: Store,
) -> None:
    hours = Hours()
    lossy = Lossy(store)
    first = Lease(cast("Store", lossy), "main", elsewhere("a"), hours)
    assert first.take(hours.wait)
    lossy.lost = True
    with pytest.raises(UnreachableError):
        first.renew()
    lossy.lost = False

    first.release()

    assert Lease(store, "main", elsewhere("b"), hours).take(hours.wait)
    assert hours.now == 0


class Lossy:
    """A store that writes, and whose answers get lost."""

    def __init__(self, store: Store) -> None:
        self.store, self.lost = store, False

    def __getattr__(self, name: str) -> Any:
        """As the store does."""
        return getattr(self.store, name)

    def put_new(self, name: str, data: bytes) -> None:
        """Write it, and say nothing."""
        self.store.put_new(name, data)
        if self.lost:
            raise UnreachableError("no answer")


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"id": 7}', b'{"id": "x", "new": 1}'])
def test_f166_a_lease_that_cannot_be_read_expires_like_every_other(
    store: Store, text: bytes
) -> None:
    hours = Hours()
    store.make_folder("_lease/main")
    store.put_new(f"_lease/main/{7:020}.json", text)

    assert Lease(store, "main", elsewhere("b"), hours).take(hours.wait)

    assert hours.now == EXPIRES.total_seconds()


def test_f166_a_service_that_is_to_stop_waits_for_no_lease(store: Store) -> None:
    assert Lease(store, "main", elsewhere("a")).take(lambda _: True)

    assert not Lease(store, "main", elsewhere("b")).take(lambda _: True)


def test_f166_a_process_that_may_not_be_read_is_not_called_dead(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    hours = Hours()
    assert Lease(store, "main", Holder.here("a", AT)).take(hours.wait)
    me = Holder.here("b", AT)
    monkeypatch.setattr(leases, "find_process", lambda _: None)

    assert Lease(store, "main", me, hours).take(hours.wait)

    assert hours.now == EXPIRES.total_seconds()


def test_f166_a_lake_that_went_is_no_lost_lease(tmp_path: Path) -> None:
    hours = Hours()
    lease = Lease(Folder(str(tmp_path / "changes")), "main", elsewhere("a"))
    assert lease.take(hours.wait)
    (tmp_path / "changes").rename(tmp_path / "away")

    with pytest.raises(UnreachableError, match="folder is gone; restore it"):
        lease.renew()
    (tmp_path / "away").rename(tmp_path / "changes")
    lease.renew()

    assert not (tmp_path / "away").exists()
