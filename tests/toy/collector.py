"""What carries the toy's log into one topic, three changes a message, and what is asked of it."""

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

from confluent_kafka import Producer

from pipeline.collectors.collector import (
    CollectionScope,
    Collector,
    CollectorExamination,
    CollectorState,
)
from pipeline.finding import NOTE, Finding
from pipeline.model import Acknowledged, CaptureScope, Missing
from pipeline.settings import SourceSettings
from tests.toy.database import Database
from tests.toy.position import entry

EACH = 3  # changes in a message


@dataclass(eq=False)
class ToyCollector:
    """``url`` is the database's file: what was sent is remembered there."""

    usual_kind: ClassVar[str] = "tests.toy.source"
    usual_format: ClassVar[str] = "tests.toy.format"
    rests_on: ClassVar[str] = ""
    url: str

    def acknowledged(self) -> Acknowledged | Missing:
        return Acknowledged(entry(Database(Path(self.url)).sent()))

    def address(self) -> tuple[str, int]:
        return ("toy", 1)

    def captures(self) -> CaptureScope:
        return CaptureScope(lambda shard: True)

    def examine(
        self, settings: SourceSettings, worker: Mapping[str, str] | None
    ) -> CollectorExamination:
        told = f"{len(Database(Path(self.url)).unsent())} changes are not sent yet"
        where = f"collector:{settings.name}"
        return CollectorExamination((Finding(NOTE, "unsent", where, told, "start the pump"),))

    def registration(self, scope: CollectionScope) -> None:
        """Whoever starts the pump says what it carries."""

    def state(self) -> CollectorState:
        return CollectorState("running")

    def close(self) -> None:
        pass


COLLECTOR: type[Collector] = ToyCollector


def to_kafka(bootstrap: str, topic: str) -> Callable[[Sequence[str]], bool]:
    """What sends messages to a topic, and says whether all have arrived."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 1, "log_level": 0})

    def send(messages: Sequence[str]) -> bool:
        for message in messages:
            producer.produce(topic, message.encode())
        return producer.flush(30) == 0

    return send


def to_lines(path: Path) -> Callable[[Sequence[str]], bool]:
    """The same to a file, as the transport in examples/json_lines.py reads it."""

    def send(messages: Sequence[str]) -> bool:
        with path.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps({"key": None, "value": one}) + "\n" for one in messages)
        return True

    return send


@dataclass(eq=False)
class Pump:
    """Sends on what the log holds, until it is stopped; may be started again.

    While it is not ``acknowledging``, everything is sent and nothing said of it.
    """

    database: Database
    send: Callable[[Sequence[str]], bool]
    acknowledging: bool = True
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        self._stop.clear()
        self._thread = threading.Thread(target=self._run, name="toy pump")
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        sent = self.database.sent()
        while not self._stop.wait(0.1):
            waiting = [(n, change) for n, change in self.database.unsent() if n > sent]
            threes = _threes(change for _, change in waiting)
            if self.send([json.dumps({"changes": changes}) for changes in threes]):
                sent = waiting[-1][0] if waiting else sent
                if self.acknowledging:
                    self.database.mark_sent(sent)


def _threes(changes: Iterable[Any]) -> Iterator[list[Any]]:
    left = iter(changes)
    while some := list(islice(left, EACH)):
        yield some
