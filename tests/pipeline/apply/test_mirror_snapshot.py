"""What a mirror remembers is read once for each of its texts, and only the newest is kept."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from pipeline.apply import mirror
from pipeline.apply.mirror import images_of
from pipeline.image import Image, images_property

NOW = datetime(2026, 3, 29, tzinfo=UTC)


@dataclass
class Seen:
    """As much of a mirror as is looked at."""

    uri: str
    remembered: dict[str, str] = field(default_factory=dict)


def seen(uri: str, version: int) -> Any:
    image = Image(NOW, version, 1, (), {}, NOW, NOW + timedelta(days=7))
    return Seen(uri, images_property([image]))


def test_images_are_read_once_for_each_text() -> None:
    first = images_of(seen("a", 1))

    assert images_of(seen("a", 1)) is first
    assert [one.version for one in images_of(seen("a", 2))] == [2]
    assert [one.version for one in images_of(seen("b", 1))] == [1]
    assert images_of(Seen("a")) == ()  # type: ignore[arg-type]


def test_what_a_mirror_remembered_before_is_not_kept() -> None:
    kept = len(mirror._images)

    for version in range(100):
        images_of(seen("of many days", version))

    assert len(mirror._images) == kept + 1
