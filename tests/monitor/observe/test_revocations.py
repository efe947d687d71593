"""What is lost is taken back, and nobody asks the store while nothing can be.

Looks of before come late: a round goes through many tables while jobs ask with newer ones.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import cast

import pytest
from structlog.testing import capture_logs

from checks.certificate import Certificate, Evidence
from checks.readiness import Question
from monitor.observe.assessor import CertificateRevocation
from monitor.observe.sampler import Sampling
from monitor.store.certificates import Certificates
from pipeline.checkpoint import Checkpoint, Gap
from pipeline.lags.samples import MirrorPosition, Sample
from pipeline.landing.gaps import detect_new_rules
from pipeline.model import Missing, Shard, Stage
from pipeline.settings import Router, TableRule
from tests.builders import batch_context
from tests.builders.values import by_shard
from tests.monitor.rig import NOON, ORDERS, SHARDS, USERS, Rig

DAY, EARLIER = "2026-03-28", "2026-03-27"


@dataclass(eq=False)
class Shelf:
    """A store of certificates of one table, that counts how often it is asked for them."""

    held: list[Certificate] = field(default_factory=list)
    asked: int = 0

    def holding(self, table: str) -> tuple[Certificate, ...]:
        assert table == USERS
        self.asked += 1
        return tuple(one for one in self.held if one.revoked is None)

    def revoke(self, revoked: Sequence[Certificate]) -> int:
        changed = {one.id: one for one in revoked}
        self.held = [changed.get(one.id, one) for one in self.held]
        return len(revoked)


STANDS = MirrorPosition(3, 5, "m")


@dataclass(frozen=True, slots=True)
class Seen:
    """What a look shows; ``batch`` None: the change log is silent, ``mirror`` None: not sampled.

    ``mirror`` is why it cannot be read where it is a text; ``gaps`` are kinds and batches.
    """

    batch: int | None = 6
    lives: Mapping[str, int] = field(default_factory=lambda: {"0": 1})
    mirror: MirrorPosition | str | Missing | None = STANDS
    gaps: Collection[tuple[str, int]] = ()

    def look(self, number: int) -> Sampling:
        mark: Sample[Checkpoint] | Missing = Missing("no route to host")
        if self.batch is not None:
            told = Checkpoint(
                "main",
                self.batch,
                incarnations=self.lives,
                shards=by_shard(SHARDS),
                gaps=self._gaps(),
            )
            mark = Sample(told, NOON, timedelta(minutes=1))
        look = Sampling(NOON, {}, mark, {}, number=number)
        match self.mirror:
            case MirrorPosition():
                sample = Sample(self.mirror, NOON, timedelta(minutes=1))
                return replace(look, mirrors={USERS: sample})
            case str():
                silent = Missing("the mirror was not sampled")
                return replace(look, mirrors={USERS: silent}, unreadable={USERS: self.mirror})
            case Missing():
                return replace(look, mirrors={USERS: self.mirror})
        return look

    def _gaps(self) -> dict[str, Gap]:
        shard = next(name for name, table in SHARDS.items() if table == USERS)
        made = [
            Gap(f"{kind}:{shard}@{batch}", "t", 0, 0, 0, "so", shards=(shard, "x"), batch=batch)
            for kind, batch in self.gaps
        ]
        return {one.id: one for one in made}


WELL = Seen()
LATER = Seen(batch=7, mirror=MirrorPosition(4, 6, "m"))
DEAF = Seen(batch=None)
UNSEEN = Seen(mirror=None)
GONE = Seen(mirror="there is no mirror")
ANOTHER_LIFE = Seen(lives={"0": 1, "6": 2})
RULED = Seen(batch=7, gaps=[("rules", 7)])


@pytest.mark.parametrize(
    ("seen", "asks"),
    [
        pytest.param([WELL, WELL], "!.", id="nothing moves"),
        pytest.param([WELL, LATER, LATER], "!..", id="all goes on"),
        pytest.param([WELL, Seen(mirror=MirrorPosition(4, 5, "m"))], "!.", id="a version more"),
        pytest.param([WELL, Seen(mirror=MirrorPosition(3, 6, "m"))], "!.", id="a batch more"),
        pytest.param([WELL, DEAF, WELL], "!..", id="the change log is silent for a while"),
        pytest.param([DEAF, WELL, WELL], "!!.", id="it is silent at first"),
        pytest.param([WELL, DEAF, ANOTHER_LIFE], "!.!", id="it comes back as another"),
        pytest.param([WELL, DEAF, LATER, Seen(batch=5)], "!..!", id="it comes back, and falls"),
        pytest.param([WELL, UNSEEN, WELL], "!..", id="the mirror is not sampled for a while"),
        pytest.param([WELL, Seen(mirror=Missing("slow")), WELL], "!..", id="it does not answer"),
        pytest.param([UNSEEN, WELL, WELL], "!!.", id="it is not sampled at first"),
        pytest.param([WELL, GONE, GONE, WELL, WELL], "!!.!.", id="the mirror goes, and comes"),
        pytest.param([GONE, Seen(mirror="a file is lost")], "!!", id="it cannot be read otherwise"),
        pytest.param([WELL, Seen(batch=5), Seen(batch=5)], "!!.", id="the log loses its end"),
        pytest.param([WELL, ANOTHER_LIFE, ANOTHER_LIFE], "!!.", id="landing begins anew"),
        pytest.param([WELL, RULED, RULED, LATER], "!!..", id="a rule sends it a shard"),
        pytest.param([WELL, RULED, DEAF, RULED], "!!..", id="a rule, and the log is silent"),
        pytest.param([WELL, Seen(gaps=[("t:0", 7)])], "!.", id="a gap that is no rule's"),
        pytest.param(
            [RULED, Seen(batch=8, gaps=[("rules", 8), ("rules", 7)])], "!!", id="another rule"
        ),
        pytest.param([WELL, Seen(5, mirror=None), Seen(5)], "!!.", id="unseen while the log falls"),
        pytest.param([WELL, Seen(mirror=MirrorPosition(2, 5, "m"))], "!!", id="a version less"),
        pytest.param([WELL, Seen(mirror=MirrorPosition(4, 4, "m"))], "!!", id="a batch less"),
        pytest.param([WELL, Seen(mirror=MirrorPosition(4, 6, "n"))], "!!", id="made anew"),
    ],
)
def test_the_store_is_asked_at_first_and_where_something_may_be_lost(
    seen: Sequence[Seen], asks: str
) -> None:
    """Thousands of tables are gone through in each round."""
    shelf = Shelf()
    forfeits, told = CertificateRevocation(cast(Certificates, shelf)), ""
    for number, one in enumerate(seen):
        before = shelf.asked
        forfeits.take_back(USERS, one.look(number), NOON)
        forfeits.take_back(USERS, one.look(number), NOON)
        told += ".!"[shelf.asked - before]

    assert told == asks


NEWEST = Evidence((), 7, 4, 6, mirror="m", life=1)


@pytest.mark.parametrize(
    ("lost", "why"),
    [
        pytest.param(
            Seen(batch=6),
            ("the change log ends at batch 6, but the certificate rests on 7"),
            id="end",
        ),
        pytest.param(
            replace(LATER, lives={"0": 1, "7": 2}),
            "the change log has lost batch 7, and another batch has its number",
            id="another life",
        ),
        pytest.param(
            replace(LATER, batch=8, gaps=[("rules", 8), ("rules", 5)]),
            "since batch 8 the rules send it a shard that it did not have",
            id="rules",
        ),
        pytest.param(
            replace(LATER, mirror="there is no mirror"),
            "its mirror cannot be read: there is no mirror",
            id="mirror",
        ),
        pytest.param(
            replace(LATER, mirror=MirrorPosition(3, 6, "m")),
            "the mirror is at version 3, but the certificate names 4",
            id="version",
        ),
        pytest.param(
            replace(LATER, mirror=MirrorPosition(5, 5, "m")),
            "the mirror holds batch 5, but the certificate rests on 6",
            id="applied",
        ),
        pytest.param(
            replace(LATER, mirror=MirrorPosition(5, 7, "n")),
            "the mirror is another Delta table now (n), so its rows are not proven",
            id="anew",
        ),
    ],
)
@pytest.mark.parametrize(
    "between",
    [
        pytest.param([], id="at once"),
        pytest.param([Seen(batch=None, mirror=None)], id="after a silence"),
    ],
)
def test_what_is_lost_is_taken_back_and_told(between: list[Seen], lost: Seen, why: str) -> None:
    """However much had come since the table was first looked at."""
    shelf = Shelf()
    forfeits = CertificateRevocation(cast(Certificates, shelf))
    for number, one in enumerate([WELL, LATER, *between]):
        forfeits.take_back(USERS, one.look(number), NOON)
    shelf.held.append(Certificate("c", USERS, Stage.MIRROR, NOON, NOON, NEWEST))

    with capture_logs() as logs:
        forfeits.take_back(USERS, lost.look(9), NOON)

    assert [(one.revoked, one.why) for one in shelf.held] == [(NOON, why)]
    assert [(one["event"], one["table"], one["count"], one["why"]) for one in logs] == [
        ("certificates_revoked", USERS, 1, why)
    ]


@dataclass(eq=False)
class Gaps(Mapping[str, Gap]):
    """None; counts how often somebody goes through them."""

    gone_through: int = 0

    def __getitem__(self, name: str) -> Gap:
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        self.gone_through += 1
        return iter(())

    def __len__(self) -> int:
        return 0


def test_gaps_are_gone_through_once_a_look_and_not_for_each_table() -> None:
    gaps = Gaps()
    look = WELL.look(3)
    assert isinstance(look.checkpoint, Sample)
    look = replace(
        look, checkpoint=replace(look.checkpoint, value=replace(look.checkpoint.value, gaps=gaps))
    )
    forfeits = CertificateRevocation(cast(Certificates, Shelf()))
    for _ in range(3):
        forfeits.take_back(USERS, look, NOON)

    assert gaps.gone_through == 1


@pytest.fixture
def rig(rig: Rig) -> Rig:
    rig.round(2)
    return rig


def test_an_older_look_takes_back_nothing_that_a_newer_one_has_certified(rig: Rig) -> None:
    older = rig.watcher.look(timedelta())
    rig.flow()
    rig.second(2)
    certificate = rig.ask(cut=EARLIER)[1]["tables"][0]["certificate"]

    _judge(rig, older)

    kept = rig.certificate(certificate)
    assert kept.evidence.version == 2
    assert kept.revoked is None


def test_what_an_older_look_has_certified_is_taken_back_by_the_next(rig: Rig) -> None:
    """The one in between has seen that the mirror is gone, and the certificate was not there."""
    older = rig.watcher.look(timedelta())
    rig.second(2)
    del rig.lake.mirrors[USERS]
    rig.ask(cut=DAY)
    certificate = _judge(rig, older)
    rig.second(2)

    rig.ask(cut=DAY)

    kept = rig.certificate(certificate)
    assert kept.why == "its mirror cannot be read: there is no mirror"


def _judge(rig: Rig, look: Sampling) -> str:
    """What a round does with a table: answer, and certify."""
    table = rig.roster.table(USERS)
    assert table is not None
    question = Question(Stage.MIRROR, rig.gate.cut(EARLIER))
    inputs = rig.assessor.inputs(table, look, rig.assessor.facts(rig.now))
    answer = rig.assessor.answer(question, inputs)
    rig.assessor.certify([answer])
    assert answer.certificate is not None
    return answer.certificate.id


@pytest.mark.parametrize("restart", [False, True])
def test_a_rule_that_sends_it_another_shard_takes_back_what_was_said_before(
    rig: Rig, restart: bool
) -> None:
    """A folded table promises all of its shards, and the new one's rows are in no version yet."""
    certificate = rig.ask(cut=EARLIER)[1]["tables"][0]["certificate"]
    other = rig.ask(ORDERS, cut=EARLIER)[1]["tables"][0]["certificate"]
    rig.write_heartbeat()
    rig.land()
    name = "shop/shop.users_2"
    before = replace(rig.newest, shards={**rig.newest.shards, Shard.parse(name): "shop.users_2"})
    rig.lake.newest = detect_new_rules(
        before,
        batch_context(
            before, router=Router((TableRule(r"shop\.users_2", USERS),)), settings_changed=True
        ),
    )
    if restart:
        rig.restart()
    rig.second(2)

    status, answer = rig.ask(cut=EARLIER)

    kept, spared = (rig.store.certificates.get(one) for one in (certificate, other))
    assert kept is not None
    assert kept.why.endswith("the rules send it a shard that it did not have")
    assert spared is not None
    assert spared.revoked is None
    assert (status, answer["state"]) == (409, "revoked")


def test_a_watermark_does_not_go_back_from_one_round_to_the_next(rig: Rig) -> None:
    """One heartbeat less in the same batch is an answer that is older than the last one."""
    before = rig.view(USERS).lags.watermark(Stage.MIRROR)
    rig.set_checkpoint(heartbeats={name: at - 1 for name, at in rig.newest.heartbeats.items()})
    rig.watch()

    assert rig.view(USERS).lags.watermark(Stage.MIRROR) == before
    assert not isinstance(before, Missing)
