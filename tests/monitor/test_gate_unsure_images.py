"""The gate's stage `image` where the image may lack changes, or is kept no longer."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from pipeline.image import shards_digest
from pipeline.model import Order, Shard
from tests.monitor.rig import USERS, Rig
from tests.monitor.test_gate_images import ask, made

NAME, SHARD = "shop/shop.users", Shard("shop", "shop.users")
FAR = Order(99, 99, 99)


def codes(answer: Mapping[str, Any]) -> list[str]:
    return [one["code"] for one in answer["tables"][0]["reasons"]]


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
    image = replace(made(published, "2026-03-28"), shards=shards_digest(shards))
    standing = published.lake.mirrors[USERS]
    published.lake.mirrors[USERS] = replace(standing, images=(image,))
    mark = published.lake.newest
    assert mark is not None
    told: dict[str, Any] = {field: {**getattr(mark, field), NAME: FAR}}
    published.lake.newest = replace(mark, **told)

    status, answer = ask(published, "2026-03-28")
    mirror, _ = ask(published, "2026-03-28", stage="mirror")

    assert (status, mirror) == (404, 200)
    assert codes(answer) == ["image_unbased"]


def test_a_second_base_after_the_cut_takes_nothing_from_an_image(published: Rig) -> None:
    image = replace(made(published, "2026-03-28"), shards=shards_digest((SHARD,)))
    standing = published.lake.mirrors[USERS]
    published.lake.mirrors[USERS] = replace(standing, images=(image,))
    mark = published.lake.newest
    assert mark is not None
    published.lake.newest = replace(mark, bases={**mark.bases, NAME: FAR})

    status, _ = ask(published, "2026-03-28")

    assert status == 200


def test_an_image_whose_certificate_was_revoked_is_not_certified_again(published: Rig) -> None:
    """The repair went into the mirror: the version that was told wrong is as it was."""
    made(published, "2026-03-28")
    _, before = ask(published, "2026-03-28")
    held = published.store.certificates.get(before["tables"][0]["certificate"])
    assert held is not None
    wrong = replace(held, revoked=published.now, why="range_counts: 3 rows are lost")
    published.store.certificates.revoke([wrong])

    status, answer = ask(published, "2026-03-28")

    assert (status, answer["state"]) == (409, "revoked")
    assert "3 rows are lost" in str(answer["tables"][0]["reasons"])


def test_an_image_that_was_made_again_is_certified_again(published: Rig) -> None:
    image = made(published, "2026-03-28")
    _, before = ask(published, "2026-03-28")
    name = before["tables"][0]["certificate"]
    published.land()
    published.apply()
    standing = published.lake.mirrors[USERS]
    anew = replace(image, version=standing.version)
    published.lake.mirrors[USERS] = replace(standing, images=(anew,))

    status, answer = ask(published, "2026-03-28")

    assert status == 200
    assert answer["tables"][0]["certificate"] != name


def test_a_certificate_lives_no_longer_than_its_image_is_kept(published: Rig) -> None:
    """Nothing but the time has changed since it was asked for last."""
    image = replace(made(published, "2026-03-28"), until=published.now + timedelta(seconds=3))
    standing = published.lake.mirrors[USERS]
    published.lake.mirrors[USERS] = replace(standing, images=(image,))
    first, _ = ask(published, "2026-03-28")

    status, answer = ask(published, "2026-03-28")

    assert first == 200
    assert (status, answer["state"]) == (409, "revoked")
    assert f"kept until {image.until.isoformat()}" in str(answer["tables"][0]["reasons"])
