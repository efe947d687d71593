"""What a seed does to a model, second by second, and what the gate said of it."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from checks.readiness import ReadinessState
from pipeline.lags.lag import MOVING
from pipeline.model import Stage, TopicPartition
from tests.proof.model import KEYS, TABLE, TOPIC, Model

SIZES = (-700.0, -40.0, -5.0, 3.0, 30.0, 720.0)  # of clock steps, in seconds
CUTS = 12  # new ones a second
ASKED = 40  # questions a second
WAITING = 80  # that are asked again


@dataclass(eq=False)
class Play:
    """One run; ``certificates`` are those that were given, ``states`` what else was said."""

    model: Model
    certificates: set[str] = field(default_factory=set)
    states: Counter[ReadinessState] = field(default_factory=Counter)
    done: Counter[str] = field(default_factory=Counter)
    seconds: int = 0
    calm: bool = False  # nothing new happens; what is broken is still mended
    _dead: int = 0
    _mends: list[tuple[int, Callable[[], object]]] = field(default_factory=list)
    _waiting: list[tuple[Stage, datetime]] = field(default_factory=list)

    def second(self) -> None:
        """Time passes; now and then something happens; the gate is asked."""
        model, random = self.model, self.model.random
        model.change()
        self.mend()
        if random.random() < 0.15 and len(self._mends) < 3 and not self.calm:
            self._happen()
        self._dead = max(self._dead - 1, 0)
        if not self._dead:
            model.carry(random.randint(1, 9))
        model.write_heartbeat()
        if random.random() < 0.7:
            model.land()
        if random.random() < 0.7:
            model.apply()
        model.cycle.watch() if random.random() < 0.2 else None
        self.ask()

    def mend(self) -> None:
        """What is due of what somebody does about trouble."""
        self.seconds += 1
        due = [mend for at, mend in self._mends if at <= self.seconds]
        self._mends = [one for one in self._mends if one[0] > self.seconds]
        for mend in due:
            mend()

    def _then(self, mend: Callable[[], object]) -> None:
        self._mends.append((self.seconds + self.model.random.randint(2, 9), mend))

    def ask(self) -> None:
        """Old questions again, and new ones of cuts about now, by the time that is true."""
        random = self.model.random
        for _ in range(CUTS):
            ago = random.choice((-2.0, 0.0, 0.3, 1.5, 4.0, 20.0)) + random.random() / 2
            cut = self.model.truth - timedelta(seconds=ago)
            self._waiting += [(stage, cut) for stage in MOVING]
        asked = random.sample(self._waiting, min(ASKED, len(self._waiting)))
        for stage, cut in asked:
            (answer,) = self.model.gate.decide([TABLE], cut, stage).answers
            self.states[answer.state] += 1
            if answer.certificate is not None:
                self.certificates.add(answer.certificate.id)
                self._waiting.remove((stage, cut))
        self._waiting = self._waiting[-WAITING:]

    def _happen(self) -> None:
        events: list[Callable[[], object]] = [
            self.clock,
            self.source_clock,
            self.die,
            self.fail_over if self.model.database.named else self.fail_over_unnamed,
            self.skip,
            self.tolerate,
            self.new_topic,
            self.lose_statement,
            self.intrude,
            self.model.rebuild,
            self.model.reload,
            self.lose_rows,
            self.model.database.snapshot,
        ]
        event = self.model.random.choice(events)
        self.done[event.__name__] += 1
        event()

    def clock(self) -> None:
        """Sluice's clock is wrong, or right again; never fast while the source's is."""
        apart = self.model.apart.total_seconds()
        to = 0.0 if apart else self.model.random.choice(SIZES)
        if to <= 0 or self.model.source_apart <= timedelta():
            self.model.set_clock(to - apart)
            self._then(lambda: self.model.set_clock(-self.model.apart.total_seconds()))

    def source_clock(self) -> None:
        """The same of the source's."""
        apart = self.model.source_apart.total_seconds()
        to = 0.0 if apart else self.model.random.choice(SIZES)
        if to <= 0 or self.model.apart <= timedelta():
            self.model.set_source_clock(to - apart)
            self._then(
                lambda: self.model.set_source_clock(-self.model.source_apart.total_seconds())
            )

    def die(self) -> None:
        """The collector is away for some seconds."""
        self._dead = self.model.random.randint(2, 9)

    def fail_over(self) -> None:
        """Another server, perhaps with another clock; the collector sends some of it again."""
        database = self.model.database
        database.fail_over()
        again = range(max(0, database.carried - self.model.random.randint(0, 3)), database.carried)
        for place in again:
            database.send(place, database.written[place])

    def fail_over_unnamed(self) -> None:
        """The same where no transaction has a name: somebody says where the collector goes on.

        It sends some again, or skips what it had not sent; somebody reads the table anew.
        """
        if self.model.random.random() < 0.5:
            self.model.carry(99)  # no heartbeat is skipped: that alone would tell
            self.model.change()
            self.model.database.fail_over()
            self.model.database.skip()
        else:
            self.fail_over()
        self._then(self.model.database.snapshot)

    def skip(self) -> None:
        """The collector skips a piece of the log with a heartbeat in it; a new base has it all."""
        self.model.change()
        self.model.write_heartbeat()
        self.model.database.skip()
        self._then(self.model.database.snapshot)

    def tolerate(self) -> None:
        """The collector is to go on though it cannot send some rows, and then no more.

        Each is seen by a look: what is changed back between two looks nobody sees.
        """
        database, random = self.model.database, self.model.random
        database.tolerant, database.refused = True, random.randint(1, 2)
        self.model.land()
        self._then(self._end_tolerance)

    def _end_tolerance(self) -> None:
        self.model.land()
        self.model.database.tolerant = False
        self._mends.append((self.seconds + 14, self.model.database.snapshot))

    def new_topic(self) -> None:
        """The topic goes, with what was not landed, and comes again, empty.

        One that was never listed before it went is missed by nobody: no log of ours knows of it.
        """
        if TopicPartition(TOPIC, 0) not in self.model.harness.loop.checkpoint.offsets:
            return
        self.model.change()
        self.model.carry(9)
        if self.model.random.random() < 0.5:
            self.model.topics.create_anew(TOPIC)
        else:  # a listing sees that it is gone, before somebody writes to it again
            self.model.topics.delete(TOPIC)
            self.model.land()
        self._then(self.model.database.snapshot)

    def lose_statement(self) -> None:
        """A statement goes with its topic; somebody, who knows of it, reads the table anew.

        A topic that was never listed before it went is missed by nobody, as above.
        """
        if TopicPartition("shop", 0) in self.model.harness.loop.checkpoint.offsets:
            self.model.lose_statement()
            self._then(self.model.describe)

    def lose_rows(self) -> None:
        """A merge loses rows, and a check finds them; a finding may be cut off.

        Somebody may waive some of them, and withdraw that.  Somebody repairs them all, and the
        check passes; the service may be restarted between any two of these.
        """
        model, random = self.model, self.model.random
        lost = random.sample(range(KEYS), random.randint(1, 3))
        if not model.lose(lost, named=random.randint(1, len(lost))):
            return
        for act in (model.reload, model.waive, model.withdraw, model.reload):
            if random.random() < 0.4:
                self._then(act)
        self._mends.append((self.seconds + random.randint(5, 12), model.repair))
        if random.random() < 0.5:
            self._mends.append((self.seconds + 13, model.reload))

    def intrude(self) -> None:
        """Somebody deletes a row of the mirror, and somebody rebuilds it."""
        self.model.intrude()
        self._then(self.model.rebuild)
