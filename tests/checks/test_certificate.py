"""What a certificate speaks of must be there."""

import pytest

from checks.certificate import Certificate, Ground, forfeited
from checks.proof import Evidence
from pipeline.lags.samples import MirrorPosition
from pipeline.model import Stage
from tests.checks.samples import CUT, NOW

EVIDENCE = Evidence((), batch=5, version=7, applied=5, mirror="m")
ISSUED = Certificate("c", "shop.orders", Stage.MIRROR, CUT, NOW, EVIDENCE)


@pytest.mark.parametrize(
    ("mirror", "why"),
    [
        pytest.param(MirrorPosition(7, 5, "m"), "", id="as it was"),
        pytest.param(MirrorPosition(9, 8, "m"), "", id="gone on"),
        pytest.param(
            MirrorPosition(6, 5, "m"),
            "the mirror stands at version 6, and it names 7",
            id="without its newest version",
        ),
        pytest.param(
            MirrorPosition(9, 4, "m"),
            "the mirror holds batch 4, and it rests on 5",
            id="put back, and grown again by upkeep alone",
        ),
        pytest.param(None, "", id="nobody could look"),
    ],
)
def test_a_mirror_that_does_not_hold_what_was_certified_takes_it_back(
    mirror: MirrorPosition | None, why: str
) -> None:
    found = forfeited([ISSUED], Ground(mirror, batch=9), NOW)

    assert [one.why for one in found] == ([why] if why else [])
