"""The gate's stage `image`: a certificate names a version that is the mirror at that cut."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from checks.model import Outcome
from pipeline.clocks import parse_cut
from pipeline.image import DueCut, Image, cut_positions, fence_of, shards_digest
from pipeline.lags.samples import MirrorPosition
from pipeline.model import Order, Shard
from tests.monitor.rig import ORDERS, USERS, Rig, codes_of

WEEK = timedelta(days=7)


def add_image(rig: Rig, at: str) -> Image:
    """Let the newest version of the mirror be the image of that cut."""
    instant, mark = parse_cut(at, rig.gate.zone, rig.now), rig.lake.newest
    fence = fence_of(rig.fences.of("shop"), instant)
    assert fence is not None
    assert mark is not None
    where = cut_positions(DueCut(instant, {"shop": fence}), ("shop",), mark)
    assert where is not None
    standing = rig.lake.mirrors[USERS]
    image = Image(instant, standing.version, mark.batch, (fence,), where, rig.now, rig.now + WEEK)
    rig.lake.mirrors[USERS] = replace(standing, images=(*standing.images, image))
    return image


def ask_image_gate(rig: Rig, at: str, **more: Any) -> tuple[int, Any]:
    rig.second(2)
    rig.write_heartbeat()
    asked = {"table": USERS, "stage": "image", "cut": at, **more}
    answer = rig.client.get("/v1/gate", params=asked)
    return answer.status_code, answer.json()


def test_without_an_image_the_gate_is_closed_though_the_mirror_is_ready(published: Rig) -> None:
    status, answer = ask_image_gate(published, "2026-03-28")
    mirror, _ = ask_image_gate(published, "2026-03-28", stage="mirror")

    assert (status, mirror) == (404, 200)
    assert answer["state"] == "not_ready"
    assert codes_of(answer) == ["no_image"]


def test_ready_names_the_version_that_is_the_image(published: Rig) -> None:
    image = add_image(published, "2026-03-28")
    published.land()
    published.apply()
    published.set_images(image)

    status, answer = ask_image_gate(published, "2026-03-28")

    (table,) = answer["tables"]
    kept = published.certificate(table["certificate"])
    assert status == 200
    assert table["version"] == image.version < published.lake.mirrors[USERS].version
    assert kept.evidence.batch == image.batch
    assert kept.evidence.fences == image.fences


def test_of_a_table_without_images_nobody_waits_for_one(published: Rig) -> None:
    status, answer = ask_image_gate(published, "2026-03-28", table=ORDERS)

    assert status == 400
    assert "no images are made of shop.orders" in answer["error"]


def _without_image(standing: MirrorPosition) -> MirrorPosition:
    return replace(standing, images=())


def _another(standing: MirrorPosition) -> MirrorPosition:
    return replace(standing, images=(replace(standing.images[0], version=0),))


def _of_another_mirror(standing: MirrorPosition) -> MirrorPosition:
    return replace(standing, mirror="another")


@pytest.mark.parametrize(
    ("lost", "why"),
    [
        pytest.param(_without_image, "no image of that cut any more", id="it is kept no longer"),
        pytest.param(_another, "is version 0 now", id="it was made again"),
        pytest.param(
            _of_another_mirror, "the mirror is another Delta table now", id="its mirror was"
        ),
    ],
)
def test_a_certificate_holds_while_its_image_is_there(
    published: Rig, lost: Callable[[MirrorPosition], MirrorPosition], why: str
) -> None:
    add_image(published, "2026-03-28")
    _, before = ask_image_gate(published, "2026-03-28")
    name = before["tables"][0]["certificate"]

    published.lake.mirrors[USERS] = lost(published.lake.mirrors[USERS])
    _, answer = ask_image_gate(published, "2026-03-28")

    kept = published.certificate(name)
    assert kept.revoked is not None
    assert why in kept.why
    assert answer["tables"][0]["certificate"] != name


def test_an_image_by_a_heartbeat_whose_clock_was_fast_is_none_of_that_cut(published: Rig) -> None:
    published.second(20)
    published.flow()
    at = published.now.isoformat().replace("+00:00", "Z")
    image = add_image(published, at)
    early = replace(image.fences[0], at=image.cut - timedelta(seconds=1))
    wrong = replace(image, fences=(early,))
    published.set_images(wrong)
    published.second(20)
    published.write_heartbeat()

    _, answer = ask_image_gate(published, at)

    codes = codes_of(answer)
    assert "image_misplaced" in codes


def test_the_board_answers_for_the_image_of_yesterday(published: Rig) -> None:
    add_image(published, "2026-03-28")
    published.flow()
    published.cycle.watch()

    views = {view.table.name: view for view in published.current.board.tables}

    assert [stage.value for stage in views[USERS].day] == ["landed", "mirror", "image"]
    assert [stage.value for stage in views[ORDERS].day] == ["landed", "mirror"]


def test_an_image_from_while_a_check_failed_is_not_ready_though_nobody_was_told_of_it(
    published: Rig,
) -> None:
    """What put the mirror right came after the image: it may still lack those rows."""
    published.rule(USERS, Outcome.FAIL)
    add_image(published, "2026-03-28")
    published.second(5)
    published.rule(USERS, Outcome.PASS)

    status, answer = ask_image_gate(published, "2026-03-28")
    mirror, _ = ask_image_gate(published, "2026-03-28", stage="mirror")

    assert (status, mirror) == (404, 200)
    assert codes_of(answer) == ["image_doubted"]


def _reload(rig: Rig) -> None:
    rig.reload()
    rig.gate.published = lambda table: table == USERS
    rig.cycle.watch()


@pytest.mark.parametrize("restarts", ["while it fails", "after it passed"])
def test_f105_a_restart_forgets_no_doubt_about_an_image(published: Rig, restarts: str) -> None:
    published.rule(USERS, Outcome.FAIL)
    add_image(published, "2026-03-28")
    if restarts == "while it fails":
        _reload(published)
    published.second(5)
    published.rule(USERS, Outcome.PASS)
    published.second(5)
    published.rule(USERS, Outcome.PASS)
    before = ask_image_gate(published, "2026-03-28")

    if restarts == "after it passed":
        _reload(published)
    status, answer = ask_image_gate(published, "2026-03-28")

    assert (before[0], status) == (404, 404)
    assert codes_of(answer) == ["image_doubted"]


def test_a_check_that_was_right_again_before_the_image_was_made_says_nothing_of_it(
    published: Rig,
) -> None:
    published.rule(USERS, Outcome.FAIL)
    published.second(5)
    published.rule(USERS, Outcome.PASS)
    published.second(5)
    published.write_heartbeat()
    add_image(published, "2026-03-28")

    status, _ = ask_image_gate(published, "2026-03-28")

    assert status == 200


SHARD = Shard("shop", "shop.users")
FAR = Order(99, 99, 99)


@pytest.mark.parametrize(
    ("field", "shards"),
    [
        pytest.param("lost", (SHARD,), id="a base after the cut closed a gap"),
        pytest.param("bases", (), id="a shard that it is not of had its base after the cut"),
    ],
)
def test_a_base_after_the_cut_does_not_make_the_image_ready(
    published: Rig, field: str, shards: tuple[Shard, ...]
) -> None:
    image = replace(add_image(published, "2026-03-28"), shards=shards_digest(shards))
    published.set_images(image)
    mark = published.newest
    told: dict[str, Any] = {field: {**getattr(mark, field), SHARD: FAR}}
    published.lake.newest = replace(mark, **told)

    status, answer = ask_image_gate(published, "2026-03-28")
    mirror, _ = ask_image_gate(published, "2026-03-28", stage="mirror")

    assert (status, mirror) == (404, 200)
    assert codes_of(answer) == ["image_unbased"]


def test_a_second_base_after_the_cut_takes_nothing_from_an_image(published: Rig) -> None:
    image = replace(add_image(published, "2026-03-28"), shards=shards_digest((SHARD,)))
    published.set_images(image)
    mark = published.newest
    published.lake.newest = replace(mark, bases={**mark.bases, SHARD: FAR})

    status, _ = ask_image_gate(published, "2026-03-28")

    assert status == 200


def test_an_image_whose_certificate_was_revoked_is_not_certified_again(published: Rig) -> None:
    """The repair went into the mirror: the version that was told wrong is as it was."""
    add_image(published, "2026-03-28")
    _, before = ask_image_gate(published, "2026-03-28")
    held = published.certificate(before["tables"][0]["certificate"])
    wrong = replace(held, revoked=published.now, why="range_counts: 3 rows are lost")
    published.store.certificates.revoke([wrong])

    status, answer = ask_image_gate(published, "2026-03-28")

    assert (status, answer["state"]) == (409, "revoked")
    assert "3 rows are lost" in str(answer["tables"][0]["reasons"])


def test_an_image_that_was_made_again_is_certified_again(published: Rig) -> None:
    image = add_image(published, "2026-03-28")
    _, before = ask_image_gate(published, "2026-03-28")
    name = before["tables"][0]["certificate"]
    published.land()
    published.apply()
    standing = published.lake.mirrors[USERS]
    anew = replace(image, version=standing.version)
    published.lake.mirrors[USERS] = replace(standing, images=(anew,))

    status, answer = ask_image_gate(published, "2026-03-28")

    assert status == 200
    assert answer["tables"][0]["certificate"] != name


def test_a_certificate_lives_no_longer_than_its_image_is_kept(published: Rig) -> None:
    """Nothing but the time has changed since it was asked for last."""
    image = replace(add_image(published, "2026-03-28"), until=published.now + timedelta(seconds=3))
    published.set_images(image)
    first, _ = ask_image_gate(published, "2026-03-28")

    status, answer = ask_image_gate(published, "2026-03-28")

    assert first == 200
    assert (status, answer["state"]) == (409, "revoked")
    assert f"kept until {image.until.isoformat()}" in str(answer["tables"][0]["reasons"])
