"""Who keeps a log is known again by the rules of its kind, and a kind without any is refused."""

import pytest

from pipeline.errors import ConfigError
from pipeline.model import Position, RetainedLog
from pipeline.sources.source import explain_replaced_log

HERE = Position("postgres", "0/1")


def test_another_kind_keeps_another_log() -> None:
    known, now = RetainedLog("mysql", "", HERE), RetainedLog("postgres", "", HERE)

    assert (
        explain_replaced_log(known, now) == "the source was of kind mysql and is of kind postgres"
    )


def test_a_kind_without_such_rules_is_refused_by_name() -> None:
    keeper = RetainedLog("mysql", "", HERE)

    with pytest.raises(ConfigError, match=r"no retained_log 'mysql' .* known: postgres"):
        explain_replaced_log(keeper, keeper)
