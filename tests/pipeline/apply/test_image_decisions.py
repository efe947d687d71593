"""Which mirror becomes the image of a cut, which waits for that, and which is given up, and why."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from pipeline.apply.images import CutDelay, DueImages, find_doubts
from pipeline.apply.mirror import Commit, commit_note, floors_property
from pipeline.apply.table_format import Mirrors
from pipeline.backfill_state import Backfill
from pipeline.changelog.table import build_app_id
from pipeline.checkpoint import Checkpoint, Epoch, Gap, Quarantine
from pipeline.image import DueCut, Image, add_image, images_property, shards_digest
from pipeline.model import Acknowledged, Fence, Head, Order, Origin, Shard, Table
from pipeline.settings import PipelineSettings, PublishRule
from pipeline.sources.mysql.position import binlog_position
from tests.builders.lake import NOW

MINUTE = timedelta(minutes=1)
CUT, LATER = NOW + 20 * MINUTE, NOW + 21 * MINUTE
SHARD, OTHER = Shard("s", "db.t_0"), Shard("s", "db.t_1")
TABLE = Table("db.t", (SHARD, OTHER), ("id",))
HEAD = binlog_position(1, 50)
FENCE = Fence("s", 7, CUT, Head("A", HEAD))
PLACE, BELOW, ABOVE = (Order(1, 1, pos) for pos in (50, 10, 90))
WHOLE = Checkpoint(
    "main",
    9,
    acknowledged={"s": Acknowledged(HEAD)},
    heartbeats={"s": 7},
    epochs={"s": Epoch(1, "A", HEAD)},
    bases={SHARD: BELOW, OTHER: BELOW},
)
UNPROVEN = replace(WHOLE, heartbeats={"s": 6})


def image_of(cut: datetime, *, day: str = "", until: datetime = NOW) -> Image:
    return Image(cut, 4, 3, (), {}, NOW, until, day)


@dataclass(frozen=True)
class Standing:
    """A mirror as it was looked at last."""

    version: int = 4
    transactions: dict[str, int] = field(default_factory=lambda: {build_app_id("main"): 3})
    remembered: dict[str, str] = field(default_factory=dict)
    uri: str = "m"


@dataclass(eq=False)
class FakeMirrors:
    """One mirror, or none, and what its commits say, newest first."""

    mirror: Standing | None = field(default_factory=Standing)
    log: tuple[Commit, ...] = ()
    engine_of: str | None = None
    read: list[tuple[str, int]] = field(default_factory=list)

    def seen(self, table: str) -> Standing | None:
        return self.mirror

    def commits(self, table: str, until: int) -> Iterator[Commit]:
        self.read.append((table, until))
        return iter(self.log)

    @property
    def table_format(self) -> "FakeMirrors":
        return self

    def engine(self, snapshot: object) -> str | None:
        return self.engine_of


def turn(version: int, at: datetime, **more: object) -> Commit:
    """A commit of ours that applied batches, unless *more* says otherwise."""
    return Commit(version, "MERGE", at, note=commit_note(version - 1, 3, "main", since=2, **more))


@dataclass(eq=False)
class LandingHarness:
    """Images of ``db.t`` are due, kept for a day, and waited for for five minutes."""

    how: Any = "pin"
    now: datetime = CUT
    mirrors: FakeMirrors = field(default_factory=lambda: FakeMirrors(log=(turn(4, NOW),)))

    def __post_init__(self) -> None:
        rule = PublishRule("db.*", self.how, keep=timedelta(days=1), hold_back=5 * MINUTE)
        settings = PipelineSettings("lake", "", (), publish=(rule,))
        mirrors = cast("Mirrors[Any]", self.mirrors)
        self.images = DueImages(settings, mirrors, lambda: self.now)
        self.images.set_cuts([DueCut(CUT, {"s": FENCE}, "2026-01-01")])

    def after(self, minutes: float, mark: Checkpoint = WHOLE) -> Image | CutDelay | None:
        """What the next turn is to be, so long after the cut."""
        self.now = CUT + minutes * MINUTE
        return self.images.find_image(TABLE, mark, self.now)

    def missed(self, minutes: float, mark: Checkpoint = WHOLE) -> str:
        """Why the next turn is none of an image, as it is said."""
        with capture_logs() as logged:
            assert self.after(minutes, mark) is None
        told = [one for one in logged if one["event"] == "image_missed"]
        assert all((one["table"], one["cut"]) == ("db.t", CUT.isoformat()) for one in told)
        return "|".join(one["why"] for one in told)


@pytest.fixture
def harness() -> LandingHarness:
    return LandingHarness()


@pytest.mark.parametrize(("how", "pinned"), [("pin", True), ("clone", True), ("parquet", False)])
def test_f113_the_image_of_a_cut_is_the_next_version_of_its_mirror(how: str, pinned: bool) -> None:
    made = LandingHarness(how).after(1)

    assert made == Image(
        CUT,
        5,
        9,
        (FENCE,),
        {"s": PLACE},
        LATER,
        LATER + timedelta(days=1),
        "2026-01-01",
        shards=shards_digest(TABLE.shards),
        pinned=pinned,
    )


def test_f113_a_cut_concerns_a_table_once_it_has_passed_and_until_it_is_missed(
    harness: LandingHarness,
) -> None:
    found = list[bool]()
    for minutes in (-1, 0, 1):
        harness.now = CUT + minutes * MINUTE
        found.append(harness.images.has_due_cut("db.t"))
    harness.images.note_missed("db.t", CUT, "why")

    assert found == [False, True, True]
    assert not harness.images.has_due_cut("db.t")
    assert not harness.images.has_due_cut("other.t")  # of which no images are made
    assert harness.after(-1) is None


def test_f113_without_proof_a_mirror_waits_for_as_long_as_its_rule_says(
    harness: LandingHarness,
) -> None:
    assert harness.after(1, UNPROVEN) == CutDelay(CUT, LATER + 5 * MINUTE)
    assert harness.after(6, UNPROVEN) == CutDelay(CUT, LATER + 5 * MINUTE)
    why = "what is below the cut was not proven to have landed in time"
    assert harness.missed(6.5, UNPROVEN) == why
    assert harness.missed(7) == ""  # it has gone on by then


@pytest.mark.parametrize(
    ("mark", "floors", "why"),
    [
        pytest.param(replace(WHOLE, bases={SHARD: BELOW}), {}, "no complete base", id="base"),
        pytest.param(replace(WHOLE, bases={SHARD: ABOVE, OTHER: BELOW}), {}, "no base", id="late"),
        pytest.param(
            replace(WHOLE, bases={SHARD: ABOVE, OTHER: BELOW}),
            {SHARD: BELOW},
            "",
            id="an older one that the mirror remembers",
        ),
    ],
)
def test_f113_what_the_mirror_may_lack_below_the_cut_makes_no_image(
    harness: LandingHarness, mark: Checkpoint, floors: dict[Shard, Order], why: str
) -> None:
    harness.mirrors.mirror = Standing(remembered=floors_property(floors))

    if not why:
        assert isinstance(harness.after(1, mark), Image)
        return
    assert why in harness.missed(1, mark)
    assert harness.after(1) is None


@pytest.mark.parametrize(
    ("mirror", "why"),
    [
        pytest.param(None, "", id="none is there"),
        pytest.param(Standing(transactions={}), "", id="nothing was applied yet"),
        pytest.param(
            Standing(transactions={build_app_id("other"): 3}), "", id="by another lane only"
        ),
        pytest.param(Standing(remembered=images_property([image_of(CUT)])), "", id="it has one"),
        pytest.param(
            Standing(remembered=images_property([image_of(CUT - MINUTE), image_of(LATER)])),
            "",
            id="of later",
        ),
    ],
)
def test_f113_a_cut_that_is_settled_makes_no_image_and_no_warning(
    harness: LandingHarness, mirror: Standing | None, why: str
) -> None:
    harness.mirrors.mirror = mirror

    assert harness.missed(1) == why
    assert harness.mirrors.read == []


def test_f113_the_image_of_a_cut_before_does_not_stand_for_this_one(
    harness: LandingHarness,
) -> None:
    harness.mirrors.mirror = Standing(
        transactions={build_app_id("main"): 0}, remembered=images_property([image_of(CUT - MINUTE)])
    )

    assert isinstance(harness.after(1), Image)


def test_f113_a_mirror_that_another_engine_writes_has_no_images(harness: LandingHarness) -> None:
    harness.mirrors.engine_of = "spark"

    assert harness.missed(1) == "another engine writes its mirror"
    harness.mirrors.engine_of = None
    assert harness.missed(1) == ""


COMPACTED = Commit(5, "OPTIMIZE", LATER, note=commit_note(4, 3, "main"))


@pytest.mark.parametrize(
    ("log", "made"),
    [
        pytest.param((turn(4, CUT - MINUTE),), True, id="a turn before the cut"),
        pytest.param((turn(4, CUT),), False, id="at it"),
        pytest.param((turn(4, LATER),), False, id="after it"),
        pytest.param(
            (turn(4, LATER, known=(CUT - MINUTE).isoformat()),), True, id="of what landed before it"
        ),
        pytest.param((turn(4, CUT - MINUTE, known=CUT.isoformat()),), False, id="of what is at it"),
        pytest.param((turn(4, CUT - MINUTE, known=None),), True, id="its own time counts"),
        pytest.param((COMPACTED, turn(4, NOW)), True, id="compacted since"),
        pytest.param((turn(5, LATER), turn(4, NOW)), False, id="the newest turn counts"),
        pytest.param((COMPACTED,), False, id="no turn is told of any more"),
        pytest.param((), False, id="nothing is told of any more"),
    ],
)
def test_f113_only_a_mirror_made_of_what_landed_before_the_cut_becomes_its_image(
    harness: LandingHarness, log: tuple[Commit, ...], *, made: bool
) -> None:
    harness.mirrors.log = log

    if made:
        assert isinstance(harness.after(1), Image)
    else:
        assert harness.missed(1) == "the mirror had merged past the cut before the cut was known"
        assert harness.missed(1) == ""
    assert harness.mirrors.read == [("db.t", 4)]


def test_f113_cuts_are_taken_in_turn_the_oldest_first(harness: LandingHarness) -> None:
    first, last = DueCut(CUT, {"s": FENCE}), DueCut(LATER, {"s": FENCE})
    harness.images.set_cuts([last, first])

    both = [harness.after(2)]
    harness.images.note_missed("db.t", CUT, "why")
    both.append(harness.after(2))

    assert [one.cut for one in both if isinstance(one, Image)] == [CUT, LATER]


def test_f113_what_is_known_of_a_cut_is_forgotten_once_nobody_asks_for_its_image(
    harness: LandingHarness,
) -> None:
    cuts = harness.images.cuts
    assert isinstance(harness.after(1, UNPROVEN), CutDelay)
    harness.images.set_cuts(cuts)
    assert harness.after(2, UNPROVEN) == CutDelay(CUT, LATER + 5 * MINUTE)
    harness.images.set_cuts([])
    assert harness.after(3, UNPROVEN) is None
    harness.images.set_cuts(cuts)
    assert harness.after(4, UNPROVEN) == CutDelay(CUT, CUT + 9 * MINUTE)

    harness.images.note_missed("db.t", CUT, "why")
    harness.images.set_cuts(cuts)
    assert not harness.images.has_due_cut("db.t")
    harness.images.set_cuts([])
    harness.images.set_cuts(cuts)
    assert harness.images.has_due_cut("db.t")


def test_f113_changes_without_places_are_not_cut(harness: LandingHarness) -> None:
    harness.images.unplaced = frozenset({"other"})
    assert isinstance(harness.after(1), Image)
    harness.images.unplaced = frozenset({"s", "other"})

    assert harness.missed(1) == "its changes have no position in a log, so no cut can be made"


def test_f113_an_image_that_is_refused_is_given_up_in_time(harness: LandingHarness) -> None:
    harness.images.set_cuts(
        [*harness.images.cuts, DueCut(CUT + 9 * MINUTE)]
    )  # another is in the future
    assert isinstance(harness.after(1), Image)
    harness.images.note_held("db.t")

    told = [harness.images.is_given_up("db.t", CUT + minutes * MINUTE) for minutes in (1, 6, 6.5)]
    others = harness.images.is_given_up("db.u", CUT + 9 * MINUTE)

    assert (told, others) == ([False, False, True], False)
    assert isinstance(harness.after(6), Image)
    assert harness.missed(6.5) == "the merge that makes the image was refused for too long"


def test_f113_a_refused_turn_that_was_to_make_no_image_costs_none(harness: LandingHarness) -> None:
    assert isinstance(harness.after(1, UNPROVEN), CutDelay)
    harness.images.note_held("db.t")
    assert not harness.images.is_given_up("db.t", CUT + 9 * MINUTE)

    assert isinstance(harness.after(1), Image)
    assert isinstance(harness.after(1, UNPROVEN), CutDelay)  # it makes none now
    harness.images.note_held("db.t")
    assert isinstance(harness.after(9), Image)
    harness.images.note_missed("db.t", CUT, "why")
    harness.images.note_held("db.t")
    assert not harness.images.is_given_up("db.t", CUT + 9 * MINUTE)


def test_f113_a_refusal_is_forgotten_with_its_cut(harness: LandingHarness) -> None:
    cuts = harness.images.cuts
    for told in ([*cuts], []):
        assert isinstance(harness.after(1), Image)
        harness.images.note_held("db.t")
        harness.images.set_cuts(told)
        harness.images.set_cuts(cuts)
        harness.after(1, UNPROVEN)
        assert harness.images.is_given_up("db.t", CUT + 9 * MINUTE) is bool(told)


def test_f113_a_refusal_of_a_cut_that_nobody_asked_for_then_counts_for_nothing(
    harness: LandingHarness,
) -> None:
    cuts = harness.images.cuts
    assert isinstance(harness.after(1), Image)
    harness.images.set_cuts([])
    harness.images.note_held("db.t")
    harness.images.set_cuts(cuts)

    assert not harness.images.is_given_up("db.t", CUT + 9 * MINUTE)


PLACES = {"s": PLACE}
GAP = Gap("s.db.t:0:20@1", "s.db.t", 0, 20, 31, "retention", batch=1)
UNREAD = Quarantine(None, 1, 1, ("s.db.t:0:20@1",))
AGAIN = Backfill("x", Origin.SNAPSHOT, BELOW, "A", 1)


@pytest.mark.parametrize(
    ("more", "why"),
    [
        pytest.param({}, "", id="nothing"),
        pytest.param({"gaps": (replace(GAP, tables=("db.t",)),)}, "lost", id="its gap"),
        pytest.param({"gaps": (replace(GAP, shards=(str(OTHER),)),)}, "lost", id="a shard's gap"),
        pytest.param({"gaps": (GAP,)}, "lost", id="a gap of nobody knows what"),
        pytest.param({"gaps": (replace(GAP, tables=("db.u",)),)}, "", id="another table's gap"),
        pytest.param({"gaps": (replace(GAP, shards=("s/db.u",)),)}, "", id="another shard's gap"),
        pytest.param(
            {"gaps": (replace(GAP, tables=("db.u",)), replace(GAP, tables=("db.t",)))},
            "lost",
            id="the second gap",
        ),
        pytest.param({"unread": replace(UNREAD, table="db.t")}, "not be read", id="its quarantine"),
        pytest.param(
            {"unread": replace(UNREAD, shards=(str(SHARD),))}, "not be read", id="a shard's"
        ),
        pytest.param({"unread": UNREAD}, "", id="a quarantine of something else"),
        pytest.param(
            {"unread": replace(UNREAD, table="db.u", shards=("s/db.u",))}, "", id="another table's"
        ),
        pytest.param({"again": AGAIN}, "being read again", id="read again, still"),
        pytest.param({"again": replace(AGAIN, order=PLACE)}, "", id="from the cut on"),
        pytest.param({"again": replace(AGAIN, closing=BELOW)}, "", id="until before the cut"),
        pytest.param({"again": replace(AGAIN, closing=PLACE)}, "", id="until the cut"),
        pytest.param({"again": replace(AGAIN, closing=ABOVE)}, "read again", id="until after it"),
        pytest.param(
            {"again": replace(AGAIN, order=ABOVE, first=BELOW)}, "read again", id="begun anew"
        ),
        pytest.param({"bases": {}}, "no complete base", id="no base"),
    ],
)
def test_f113_an_image_is_made_of_what_is_known_to_be_whole(more: dict[str, Any], why: str) -> None:
    gaps = {str(number): one for number, one in enumerate(more.get("gaps", ()))}
    mark = replace(
        WHOLE,
        gaps=gaps,
        quarantine={"x": more["unread"]} if "unread" in more else {},
        backfills={OTHER: more["again"]} if "again" in more else {},
        bases=more.get("bases", WHOLE.bases),
    )

    found = find_doubts(TABLE, PLACES, mark, {})

    assert why in found
    assert bool(found) == bool(why)


def test_f113_a_day_has_one_image_and_each_is_kept_for_its_time() -> None:
    soon, later = NOW + MINUTE, NOW + 2 * MINUTE
    old = image_of(NOW - MINUTE, until=NOW - MINUTE)
    same = image_of(NOW, day="2026-01-01", until=later)
    other = image_of(soon, day="2025-12-31", until=NOW)
    unnamed = image_of(soon + MINUTE, until=later)
    made = image_of(later + MINUTE, day="2026-01-01", until=later)
    nameless = replace(made, day="")

    assert [*add_image((old, same, other, unnamed), made)] == [other, unnamed, made]
    assert [*add_image((unnamed, same), nameless)] == [unnamed, same, nameless]
