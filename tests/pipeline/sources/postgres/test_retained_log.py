"""A slot is known again by what no new one can have; what is new, or may be, is told."""

from dataclasses import replace

import msgspec
import pytest

from pipeline.sources.postgres.retained_log import SlotSnapshot
from pipeline.sources.source import explain_replaced_log

KNOWN = SlotSnapshot(
    name="s",
    server="7/1",
    end="0/200",
    restart="0/100",
    reader="42 noon",
    decoded=30,
    counted="morning",
    begun=1000,
)
LATER = replace(KNOWN, end="0/400", restart="0/300", reader="43 later", decoded=38, begun=1010)
ANEW = (
    "slot s was created again: it retains nothing below 0/300, and at the previous check the log"
    " ended at 0/200"
)
AS_MANY = ANEW.replace("was created", "may have been created", 1)
MAYBE = "slot s may have been created by the server that took over"


@pytest.mark.parametrize(
    ("now", "told"),
    [
        pytest.param(KNOWN, None, id="nothing happened"),
        pytest.param(replace(LATER, restart="0/1FF", decoded=0), None, id="keeps older log"),
        pytest.param(replace(LATER, reader=KNOWN.reader, decoded=0), None, id="read all the while"),
        pytest.param(LATER, None, id="its reader was started again, and it has counted on"),
        pytest.param(replace(LATER, decoded=29), ANEW, id="counts less than before"),
        pytest.param(
            replace(LATER, restart="0/200", decoded=0), "retains nothing", id="at that end"
        ),
        pytest.param(replace(LATER, begun=1038), AS_MANY, id="a new one may have counted as many"),
        pytest.param(replace(LATER, decoded=0, counted="crash"), None, id="counts were lost"),
        pytest.param(replace(LATER, reader="", decoded=0), ANEW, id="nobody reads it yet"),
        pytest.param(replace(LATER, server="7/2", counted="there"), MAYBE, id="on another server"),
        pytest.param(
            replace(LATER, server="7/2", restart="0/180"), None, id="came along to another server"
        ),
        pytest.param(replace(KNOWN, name="t"), "the slot changed from s to t, so", id="another"),
    ],
)
def test_a_slot_is_the_same_only_if_no_new_one_can_look_so(
    now: SlotSnapshot, told: str | None
) -> None:
    found = explain_replaced_log(KNOWN.keeper, now.keeper)

    assert (found is None) == (told is None)
    assert (told or "") in (found or "")


def test_nobody_who_reads_neither_is_no_process_that_reads_both() -> None:
    known = replace(KNOWN, reader="")

    assert explain_replaced_log(known.keeper, replace(LATER, reader="", decoded=0).keeper)


def test_words_are_read_as_they_were_written() -> None:
    assert msgspec.json.decode(KNOWN.keeper.words, type=SlotSnapshot) == KNOWN


def test_words_of_another_version_are_no_reason_to_stop() -> None:
    now = KNOWN.keeper

    assert explain_replaced_log(replace(now, words='{"name": "s"}'), now) is None
