"""Holds a lease on a lane, so that one service at a time lands it, on any host and store.

The lease is a folder of numbered files beside the change log. A holder renews it by creating the
next number, which exactly one writer can create. No two clocks are compared: a service that waits
for the lease watches with its own monotonic clock whether the number changes. A holder that died on
the same machine is replaced at once. If it died elsewhere, others wait until the lease expires.

Commits do not depend on the lease: a batch that another service has landed is refused by its
number.
"""

import os
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from socket import gethostname
from urllib.parse import quote

import msgspec
import structlog

from pipeline.delta.store import Store
from pipeline.errors import ConfigError, UnreachableError

FOLDER = "_lease"
RENEWED_EVERY = timedelta(seconds=10)
EXPIRES = timedelta(seconds=30)  # without a renewal, by the monotonic clock of the waiting service
LOOKED_EVERY = 1.0  # seconds, while a service waits for another's lease to expire
_ENDED = frozenset({"Z", "X", "x"})  # states of a process that has ended
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Holder:
    """The service that has a lease; ``since`` is by its own clock, for display only.

    ``machine`` and ``started`` identify its process, if it can be looked up: the boot and the
    process namespace, and the start of the process in that boot's clock ticks.
    """

    id: str
    host: str = ""
    pid: int = 0
    store: str = ""
    since: str = ""
    machine: str = ""
    started: int = 0
    released: bool = False

    @classmethod
    def here(cls, store: str, at: datetime) -> "Holder":
        """Describe this process."""
        pid, began = os.getpid(), at.isoformat(timespec="seconds")
        found = find_process(pid)
        started = 0 if found is None else found[1]
        return cls(uuid.uuid4().hex, gethostname(), pid, store, began, _machine(), started)

    def __str__(self) -> str:
        """Host, process, store and time, for a person."""
        if not self.host:
            return "another service, whose name cannot be read"
        return f"host {self.host}, process {self.pid}, store {self.store}, since {self.since}"

    @property
    def runs(self) -> bool | None:
        """Whether its process runs; None if this process cannot look that up."""
        if not self.machine or not self.started or self.machine != _machine():
            return None
        found = find_process(self.pid)
        return _is_hidden(self.pid) if found is None else found == (True, self.started)


@dataclass(frozen=True, slots=True)
class _Seen:
    """The newest renewal; number 0 means no renewal."""

    number: int
    holder: Holder | None

    @property
    def free(self) -> bool:
        return not self.number or (
            self.holder is not None and (self.holder.released or self.holder.runs is False)
        )


@dataclass(eq=False)
class Lease:
    """The lease of ``lane`` on the change log in *store*; used by one thread at a time.

    ``monotonic`` returns seconds that only this process compares.
    """

    store: Store
    lane: str
    holder: Holder
    monotonic: Callable[[], float] = time.monotonic
    number: int = 0
    _folder: str = field(init=False)

    def __post_init__(self) -> None:
        """Compute the lease's folder; nothing is taken yet."""
        self._folder = f"{FOLDER}/{quote(self.lane, safe='').replace('.', '%2E')}"

    def take(self, stopped: Callable[[float], bool]) -> bool:
        """Take the lease; *stopped* waits some seconds, and ends the wait if it returns true.

        Returns at once if the last holder has stopped, or has died on this machine. If it died
        elsewhere, this waits until its lease expires. Returns False if *stopped* ended the wait.

        Raises:
            ConfigError: another service has it; the message names that service.
            UnreachableError: the lake does not answer.
        """
        self.store.make_folder(self._folder)
        seen, since, waiting = self._newest(), self.monotonic(), False
        while True:
            if self._is_own(seen):  # an earlier renewal whose answer was lost
                self.number = seen.number
                return True
            if not seen.free and seen.holder is not None and seen.holder.runs:
                raise self._refused(seen)
            if seen.free or self.monotonic() - since >= EXPIRES.total_seconds():
                if self._made(seen.number + 1):
                    return True
            else:
                if not waiting:
                    longest = EXPIRES.total_seconds()
                    holder = str(seen.holder or Holder(""))
                    log.warning("lease_waits", lane=self.lane, holder=holder, seconds=longest)
                waiting = True
                if stopped(LOOKED_EVERY):
                    return False
            now = self._newest()
            if now.number > seen.number and not (now.free or self._is_own(now)):
                raise self._refused(now)  # renewed or taken meanwhile
            if now != seen:
                seen, since = now, self.monotonic()

    def renew(self) -> None:
        """Renew the lease.

        Raises:
            ConfigError: another service has taken the lease; this one must stop.
            UnreachableError: the lake does not answer, or the change log's folder is gone.
        """
        if self._made(self.number + 1):
            return
        seen = self._newest()
        if seen.holder is None:
            msg = f"{self.store.uri}/{self._folder}: the lease of lane {self.lane} cannot be read"
            raise UnreachableError(msg)
        if not self._is_own(seen):
            raise self._refused(seen)
        self.number = seen.number  # an earlier renewal whose answer was lost

    def release(self) -> None:
        """Release the lease, so that another service can take it at once."""
        if self.number:
            self.holder = replace(self.holder, released=True)
            self.renew()
            if self._newest().holder != self.holder:  # that was an earlier renewal
                self.renew()

    def _made(self, number: int) -> bool:
        """Create *number*; return whether it is the newest. Older ones are removed."""
        try:
            self.store.put_new(self._name(number), msgspec.json.encode(self.holder))
        except FileExistsError:
            return False
        except FileNotFoundError as error:
            uri = f"{self.store.uri}/{self._folder}"
            raise UnreachableError(f"{uri}: the folder is gone; restore it") from error
        found = self._numbers()
        if not found or found[-1] != number:
            return False  # this holder slept while others renewed
        self.number = number
        for old in found[:-1]:
            self.store.remove(self._name(old))
        return True

    def _is_own(self, seen: _Seen) -> bool:
        return seen.holder is not None and seen.holder.id == self.holder.id

    def _newest(self) -> _Seen:
        while found := self._numbers():
            with suppress(FileNotFoundError):  # renewed meanwhile
                content = self.store.read(self._name(found[-1]))
                try:
                    return _Seen(found[-1], msgspec.json.decode(content, type=Holder))
                except msgspec.MsgspecError:
                    return _Seen(found[-1], None)
        return _Seen(0, None)

    def _numbers(self) -> list[int]:
        names = self.store.after(self._folder, "")
        found = (one.removesuffix(".json") for one in names if one.endswith(".json"))
        return [int(one) for one in found if one.isascii() and one.isdigit()]

    def _name(self, number: int) -> str:
        return f"{self._folder}/{number:020}.json"

    def _refused(self, seen: _Seen) -> ConfigError:
        return ConfigError(
            f"lane {self.lane} in {self.store.uri} is landed by another service "
            f"({seen.holder or Holder('')}); stop that one, or set another `lake` "
            "or `pipeline.lane` for this one"
        )


def _is_hidden(pid: int) -> bool | None:
    """False if there is no such process; None if it may be hidden (``hidepid``)."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return None
    return None


def _machine() -> str:
    """Identify this boot and this process namespace; empty if they cannot be read."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        return f"{boot}/{Path('/proc/self/ns/pid').stat().st_ino}"
    except OSError:
        return ""


def find_process(pid: int) -> tuple[bool, int] | None:
    """Whether a process of this machine runs, and its start in clock ticks; None without one.

    Process ids are reused, but never together with the same start.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
        return fields[0] not in _ENDED, int(fields[19])
    except (OSError, IndexError, ValueError):
        return None
