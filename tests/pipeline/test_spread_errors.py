import pickle

import pytest

from pipeline.errors import ConfigError, HeldError, SluiceError, UnreachableError
from pipeline.parallel import failure_text, load_result, run_piece


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
        load_result(run_piece(pickle.dumps((fail, error))))

    assert str(caught.value) == str(error)
    assert vars(caught.value) == vars(error)


def test_what_is_done_comes_back_as_it_is() -> None:
    assert load_result(run_piece(pickle.dumps((sorted, [2, 1])))) == [1, 2]


GONE = "An error occurred while calling o7.getResult.\n: org.apache.spark.SparkException: Exception"
LOST = (
    "\nCaused by: org.apache.spark.SparkException: Job aborted due to stage failure: Task 1 in"
    " stage 0.0 failed 4 times, most recent failure: Lost task 1.3 in stage 0.0 (TID 9)"
    " (10.0.0.4 executor 0): "
)
PYTHON = """org.apache.spark.SparkException:
Error from python worker:
  Traceback (most recent call last):
    File "<frozen runpy>", line 198, in _run_module_as_main
  ModuleNotFoundError: No module named 'pyarrow'
PYTHONPATH was:
  /somewhere
"""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param(
            GONE + LOST + 'java.io.IOException: Cannot run program "/no/python": error=2\n\tat x',
            'at 10.0.0.4: Cannot run program "/no/python": error=2',
            id="no Python",
        ),
        pytest.param(
            GONE + LOST + PYTHON,
            "at 10.0.0.4: ModuleNotFoundError: No module named 'pyarrow'",
            id="another Python",
        ),
        pytest.param(GONE, "An error occurred while calling o7.getResult.", id="nothing better"),
    ],
)
def test_of_sparks_long_text_that_line_is_told_that_says_what_happened(
    text: str, said: str
) -> None:
    assert failure_text(text) == said
