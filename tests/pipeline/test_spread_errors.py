import pickle

import pytest

from pipeline.errors import ConfigError, HeldError, SluiceError, UnreachableError
from pipeline.spread import outcome, result


def fail(error: SluiceError) -> None:
    raise error


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(UnreachableError("no broker at :9092"), id="unreachable"),
        pytest.param(ConfigError("no such setting"), id="config"),
        pytest.param(HeldError("words", "this shard is held"), id="held, by reason and detail"),
    ],
)
def test_an_error_of_ours_comes_back_as_it_was_raised(error: SluiceError) -> None:
    with pytest.raises(type(error)) as caught:
        result(outcome(pickle.dumps((fail, error))))

    assert str(caught.value) == str(error)
    assert vars(caught.value) == vars(error)


def test_what_is_done_comes_back_as_it_is() -> None:
    assert result(outcome(pickle.dumps((sorted, [2, 1])))) == [1, 2]
