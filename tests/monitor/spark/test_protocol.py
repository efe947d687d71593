"""What comes out of the pipe equals what went in."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from monitor.config.sections import build_invariant_rules
from monitor.spark.protocol import (
    CRASH,
    Failure,
    Reply,
    Request,
    Verb,
    as_error,
    as_failure,
    dump_reply,
    dump_request,
    load_reply,
    load_request,
)
from pipeline.checkpoint import Gap
from pipeline.errors import (
    ConfigError,
    FormatError,
    HeldError,
    ProofError,
    SluiceError,
    UnreachableError,
)
from pipeline.invariants.column_loss import ColumnLoss
from pipeline.invariants.not_null import NotNull
from pipeline.model import Account
from pipeline.reports import Hold, LandingReport, MergeReport
from pipeline.settings import CollectorSettings, PipelineSettings, SourceSettings, TableRule

AT = datetime(2026, 10, 25, 0, 59, 59, 999999, tzinfo=UTC)
GAP = Gap("t:0:5", "t", 0, 5, 9, "retention", ("shop.users", "shop.orders"))
HOLD = Hold("h", "source:shop", "server_changed", "waive it")
SOURCE = SourceSettings(
    "shop", "h", 3306, "u", CollectorSettings("http://c", "shop"), "shop", "pass\nword ü"
)


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param(Reply(0), id="an opening"),
        pytest.param(
            Reply(7, LandingReport("main", None, 0, AT, timedelta(0), gaps=(GAP,), holds=(HOLD,))),
            id="a landing that committed nothing",
        ),
        pytest.param(
            Reply(
                8,
                LandingReport(
                    "main", 3, 5, AT, timedelta(microseconds=1), capped=True, tables=(("a", 5),)
                ),
            ),
            id="a capped landing",
        ),
        pytest.param(
            Reply(
                9,
                applied=(
                    MergeReport("a", 3, 4, Account(5, 4, ignored={"p": 1}), AT, timedelta(1), HOLD),
                ),
            ),
            id="a held table",
        ),
        pytest.param(Reply(10, failure=Failure("HeldError", "a: b", "a", "b")), id="a failure"),
    ],
)
def test_a_reply_survives_the_pipe_on_one_line(reply: Reply) -> None:
    line = dump_reply(reply)

    assert load_reply(line) == reply
    assert line.count(b"\n") == 1


def test_a_request_carries_waivers_and_settings_on_one_line() -> None:
    settings = PipelineSettings(
        "/lake", "k:1", (SOURCE,), (TableRule("a.*", "b", key=("x",)),), spark={"a": "b"}
    )
    request = Request(3, Verb.OPEN, frozenset({"h:1", "g"}), {"a": 1}, settings)

    line = dump_request(request)

    assert load_request(line) == request
    assert line.count(b"\n") == 1


def test_invariants_come_out_as_what_they_were() -> None:
    listed, _ = build_invariant_rules(
        [{"tables": "a.*", "not_null": {"columns": ["x"]}, "column_loss": {"share": 0.5}}], Path()
    )
    settings = PipelineSettings("/lake", "k:1", (SOURCE,), invariants=listed)

    opened = load_request(dump_request(Request(3, Verb.OPEN, settings=settings))).settings

    assert opened == settings
    assert opened is not None
    assert [type(one) for _, one in opened.demanded("a.b")] == [NotNull, ColumnLoss]


@pytest.mark.parametrize(
    "error",
    [
        ConfigError("a"),
        UnreachableError("b"),
        FormatError("c"),
        HeldError("foreign_write", "d"),
        ProofError("e"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_raised_over_there_is_raised_again_here(error: SluiceError) -> None:
    again = as_error(as_failure(error))

    assert type(again) is type(error)
    assert str(again) == str(error)


def test_an_error_of_a_narrower_class_keeps_who_must_act() -> None:
    class UnfitError(UnreachableError):
        """A codec that only Spark can read."""

    assert as_failure(UnfitError("zstd")) == Failure("UnreachableError", "zstd")


def test_an_error_nobody_foresaw_is_a_crash_that_may_pass() -> None:
    failure = as_failure(ValueError("boom"))

    assert failure == Failure(CRASH, "ValueError: boom")
    assert isinstance(as_error(failure), UnreachableError)
