"""Who keeps a log is known again by the rules of its kind, and a kind without any is refused."""

import pytest

from pipeline.errors import ConfigError
from pipeline.model import LogKeeper, Position
from pipeline.sources.source import exchanged

HERE = Position("postgres", "0/1")


def test_another_kind_keeps_another_log() -> None:
    known, now = LogKeeper("mysql", "", HERE), LogKeeper("postgres", "", HERE)

    assert exchanged(known, now) == "the source was of kind mysql and is of kind postgres"


def test_a_kind_without_such_rules_is_refused_by_name() -> None:
    keeper = LogKeeper("mysql", "", HERE)

    with pytest.raises(ConfigError, match=r"no log_keeper 'mysql' .* known: postgres"):
        exchanged(keeper, keeper)
