"""The demo's shop: its tables on one server, and the people who keep changing them.

    ledger = Ledger(folder / "ledger.jsonl")
    shop = Shop(Address("127.0.0.1", 3306))
    shop.create()
    workload = Workload(shop.address, ledger, seed=1, rate=100)
    workload.fill(400)
    workload.start()
    ...
    workload.stop()

One seed gives one sequence of transactions per writer; how the writers interleave is the
server's affair.  ``rate`` counts row changes, not transactions.
"""

import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

from demo.shop.ledger import Ledger
from demo.shop.link import Address
from demo.shop.schema import SHELVES
from demo.shop.server import Link, ShopServer
from demo.shop.shapes import place_order, register
from demo.shop.writer import Writer

__all__ = ["Address", "Ledger", "Shop", "Workload"]

PATIENCE = 1.0
"""Seconds that a writer may be late; more lost time is not made up by a burst."""


@dataclass(frozen=True, slots=True)
class Shop:
    """The shop's databases and tables on the server at ``address``."""

    address: ShopServer

    def create(self) -> None:
        """Create databases and tables; those of an earlier shop are dropped."""
        with self._link() as link, link.cursor() as cursor:
            for statement in self.address.creation():
                cursor.execute(statement)
            link.commit()

    def counts(self) -> dict[str, int]:
        """Return the current number of rows of each physical table."""
        found = {}
        with self._link() as link, link.cursor() as cursor:
            for shelf in SHELVES:
                cursor.execute(f"SELECT COUNT(*) FROM {shelf.name}")
                (found[shelf.name],) = cursor.fetchone() or (0,)
        return found

    @contextmanager
    def _link(self) -> Iterator[Link]:
        link = self.address.connect()
        try:
            yield link
        finally:
            self.address.hang_up(link)


@dataclass(eq=False)
class Workload:
    """Writers that change the shop at a steady rate until they are stopped.

    With ``survive`` they reconnect when the server goes away, and settle unknown outcomes. It may
    be started again after a stop; it then owns all rows that it finds.
    """

    address: ShopServer
    ledger: Ledger
    seed: int = 1
    rate: float = 100
    writers: int = 4
    survive: bool = False
    _stop: threading.Event = field(default_factory=threading.Event)
    _team: list[Writer] = field(default_factory=list)
    _work: list[Future[None]] = field(default_factory=list)
    _past: Counter[str] = field(default_factory=Counter)
    _starts: int = 0

    @property
    def tally(self) -> Counter[str]:
        """Return how many changes were made, under ``changes``, and transactions by outcome."""
        return sum((writer.tally for writer in self._team), Counter(self._past))

    @property
    def running(self) -> bool:
        """Tell whether every writer works; False after one failed, and stop() raises its error."""
        return bool(self._work) and not any(work.done() for work in self._work)

    def fill(self, rows: int) -> None:
        """Insert at least *rows* rows at full speed, before the start."""
        (writer,) = self._recruit(1)
        while writer.tally["changes"] < rows:
            writer.work(writer.rng.choice((place_order, place_order, register)))
        self._dismiss()

    def start(self) -> None:
        """Start to write, in separate threads."""
        self._stop.clear()
        team = self._recruit(self.writers)
        pool = ThreadPoolExecutor(self.writers, thread_name_prefix="shop")
        self._work = [pool.submit(self._keep_at, writer) for writer in team]
        pool.shutdown(wait=False)

    def stop(self) -> None:
        """End after the current transactions.

        Raises:
            Exception: the error with which a writer failed, as its server's driver raises it.
        """
        self._stop.set()
        work, self._work = self._work, []
        failures = [failure for each in work if (failure := each.exception())]
        self._dismiss()
        if failures:
            raise failures[0]

    def _recruit(self, writers: int) -> list[Writer]:
        """Create the writers, each with its share of the existing rows."""
        self._starts += 1
        self._team = [
            Writer(
                self.address,
                self.ledger,
                random.Random(f"{self.seed}/{self._starts}/{place}"),
                (place, writers),
                self.survive,
                self._stop,
            )
            for place in range(writers)
        ]
        self.ledger.skip_to(max(writer.load() for writer in self._team) + 1)
        return self._team

    def _dismiss(self) -> None:
        """Close the writers; the tally keeps their counts."""
        self._past = self.tally
        for writer in self._team:
            writer.close()
        self._team = []

    def _keep_at(self, writer: Writer) -> None:
        """Run a writer at its share of the rate until it is stopped."""
        due = time.monotonic()
        while not self._stop.is_set():
            changes = writer.work()
            now = time.monotonic()
            due = max(due + changes * self.writers / self.rate, now - PATIENCE)
            self._stop.wait(max(0, due - now))
