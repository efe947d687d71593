import pytest

from checks.probes.offset_keys import KeyFate, key_fate
from checks.world import Touch
from pipeline.model import Op


@pytest.mark.parametrize(
    ("there", "touch", "fate"),
    [
        pytest.param(True, Touch(Op.UPDATE, 5), KeyFate.FINE, id="there as it should"),
        pytest.param(False, Touch(Op.DELETE, 5), KeyFate.FINE, id="deleted since"),
        pytest.param(False, Touch(Op.TRUNCATE, 5), KeyFate.FINE, id="truncated since"),
        pytest.param(False, Touch(Op.CREATE, 5), KeyFate.MISSING, id="landed, not in the mirror"),
        pytest.param(False, None, KeyFate.MISSING, id="never landed"),
        pytest.param(True, None, KeyFate.FINE, id="older than the change log"),
        pytest.param(True, Touch(Op.DELETE, 5), KeyFate.EXTRA, id="deleted but there"),
        pytest.param(False, Touch(Op.CREATE, 6), KeyFate.MOVING, id="created again, not applied"),
        pytest.param(True, Touch(Op.DELETE, 6), KeyFate.MOVING, id="its delete is not applied"),
    ],
)
def test_a_key_is_compared_with_its_newest_landed_change(
    there: bool, touch: Touch | None, fate: KeyFate
) -> None:
    assert key_fate(there, touch, 5, one_shard=True) is fate


def test_a_row_that_moved_to_another_shard_is_no_ghost() -> None:
    assert key_fate(True, Touch(Op.DELETE, 5), 5, one_shard=False) is KeyFate.FINE
